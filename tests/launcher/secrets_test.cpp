#include "launcher/options/secrets.hpp"

#include <gtest/gtest.h>

namespace hvd::launcher {
namespace {

std::string cleaned(std::string_view text) {
  return Secrets(Environment()).taken_out_of(text);
}

TEST(Secrets, are_known_by_their_names) {
  for (const char* name : {"HOROVOD_SECRET_KEY", "WANDB_API_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD", "db-password",
                           "--token", "GOOGLE_APPLICATION_CREDENTIALS", "SSH_AUTH_SOCK", "SMTP_PWD", "MY_GITHUB_PAT",
                           "OPENAI_CREDS", "sig", "wifi-psk"})
    EXPECT_TRUE(names_a_secret(name)) << name;
  for (const char* name : {"PATH", "PWD", "OLDPWD", "SLURM_JOB_ID", "HOROVOD_LOG_LEVEL", "LD_LIBRARY_PATH", "SIGTERM",
                           "PATCH", "SACRED_HOME"})
    EXPECT_FALSE(names_a_secret(name)) << name;
}

TEST(Secrets, go_from_lines_that_name_them) {
  EXPECT_EQ(cleaned("WANDB_API_KEY=abc rest\n"), "WANDB_API_KEY=(not shown) rest\n");
  EXPECT_EQ(cleaned("password: two words"), "password: (not shown)");
  EXPECT_EQ(cleaned("{\"token\": \"abc\", \"rank\": 1}"), "{\"token\": (not shown), \"rank\": 1}");
  EXPECT_EQ(cleaned("Authorization: Bearer abc"), "Authorization: (not shown)");
  EXPECT_EQ(cleaned("train.py --api-key abc --lr 1"), "train.py --api-key (not shown) --lr 1");
  EXPECT_EQ(cleaned("pulls https://me:abc@host/x"), "pulls https://(not shown)@host/x");
  EXPECT_EQ(cleaned("password='abc def' x"), "password=(not shown) x");
  EXPECT_EQ(cleaned("the key has no effect\n\nrank 1"), "the key has no effect\n\nrank 1");
}

TEST(Secrets, of_a_known_form_go_without_a_name) {
  EXPECT_EQ(cleaned("cloning with ghp_SECRET0123456789abcdefghijklmnopqrstu now"), "cloning with (not shown) now");
  EXPECT_EQ(cleaned("login hf_SECRETabcdefghijklmnopqrstuvwxyz"), "login (not shown)");
  for (const char* token :
       {"github_pat_11ABCDEFG0123456789_abcdef", "glpat-abcdefghij0123456789", "AKIAIOSFODNN7EXAMPLE",
        "xoxb-123456789012-abcdef", "sk-proj-abcdef0123456789abcdef", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc"})
    EXPECT_EQ(cleaned("x " + std::string(token) + ", y"), "x (not shown), y");
  EXPECT_EQ(cleaned("+ curl -u me:SECRET https://api"), "+ curl -u (not shown) https://api");
  EXPECT_EQ(cleaned("curl --user='me:a b' -ume:SECRET x"), "curl --user=(not shown) -u(not shown) x");
  EXPECT_EQ(cleaned("wandb: appending key 0123456789abcdef0123456789abcdef01234567 to x"),
            "wandb: appending key (not shown) to x");
  EXPECT_EQ(cleaned("machine api.x login me password abc"), "machine api.x login me password (not shown)");
  EXPECT_EQ(cleaned("Server=db;User=me;Pwd=abc;"), "Server=db;User=me;Pwd=(not shown)");
  EXPECT_EQ(cleaned("pwd: abc"), "pwd: (not shown)");
  EXPECT_EQ(cleaned("https://x/y?sv=2020&sig=abc"), "https://x/y?sv=2020&sig=(not shown)");
  EXPECT_EQ(cleaned("post to https://hooks.slack.com/services/T00/B00/abc."),
            "post to https://hooks.slack.com/(not shown)");
}

TEST(Secrets, that_are_private_keys_go_line_by_line) {
  const std::string end = "-----END OPENSSH PRIVATE KEY-----\n";
  EXPECT_EQ(cleaned("1 -----BEGIN OPENSSH PRIVATE KEY-----\n2 b3Blbn\n3 abc\n" + end + "on\n"),
            "1 -----BEGIN OPENSSH PRIVATE KEY-----(not shown)" + end + "on\n");
  EXPECT_EQ(cleaned("-----BEGIN RSA PRIVATE KEY-----\nabc"), "-----BEGIN RSA PRIVATE KEY-----(not shown)");
  EXPECT_EQ(cleaned("b3Blbn\nabc\n" + end + "on"), "(not shown)" + end + "on");
  const std::string certificate = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n";
  EXPECT_EQ(cleaned(certificate), certificate);
}

TEST(Secrets, are_not_seen_in_everyday_texts) {
  for (const char* text :
       {"PWD=/home/me", "pwd: /home/me", "docker run -u 1000:1000 x", "sk-learn-of-the-whole-project",
        "the key of the table has changed", "task-0123456789abcdef0123", "hf_model_of_mine_2",
        "key /gpfs/alpine/proj-shared/abc123/a_long_name_of_a_file.h5", "curl https://x -o file"})
    EXPECT_EQ(cleaned(text), text);
}

TEST(Secrets, of_the_environment_go_wherever_they_appear) {
  Environment environment;
  environment.set("MY_TOKEN", "abcdefgh");
  environment.set("MY_KEY", "1");
  EXPECT_EQ(Secrets(environment).taken_out_of("curl abcdefgh 1"), "curl (not shown) 1");
  environment.set("SHORT_PASSWORD", "ab12");
  environment.set("TOKENIZERS_PARALLELISM", "false");
  environment.set("MAX_TOKENS", "2048");
  EXPECT_EQ(Secrets(environment).taken_out_of("ab12 grab123 false 2048"), "(not shown) grab123 false 2048");
  environment = Environment();
  environment.set("MY_TOKEN", "abcdefgh");
  environment.set("MY_KEY", "1");
  environment.set("TEXT", "two\nlines");
  EXPECT_EQ(variables_without_secrets(environment, {}), "MY_KEY=(not shown)\nMY_TOKEN=(not shown)\nTEXT=two\\nlines\n");
  EXPECT_EQ(variables_without_secrets(environment, {"TE"}), "TEXT=two\\nlines\n");
}

}  // namespace
}  // namespace hvd::launcher
