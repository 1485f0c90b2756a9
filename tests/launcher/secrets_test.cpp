#include "launcher/options/secrets.hpp"

#include <gtest/gtest.h>

namespace hvd::launcher {
namespace {

std::string cleaned(std::string_view text) {
  return Secrets(Environment()).taken_out_of(text);
}

TEST(Secrets, are_known_by_their_names) {
  for (const char* name : {"HOROVOD_SECRET_KEY", "WANDB_API_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD", "db-password",
                           "--token", "GOOGLE_APPLICATION_CREDENTIALS", "SSH_AUTH_SOCK", "SMTP_PWD"})
    EXPECT_TRUE(names_a_secret(name)) << name;
  for (const char* name : {"PATH", "PWD", "OLDPWD", "SLURM_JOB_ID", "HOROVOD_LOG_LEVEL", "LD_LIBRARY_PATH"})
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

TEST(Secrets, of_the_environment_go_wherever_they_appear) {
  Environment environment;
  environment.set("MY_TOKEN", "abcdefgh");
  environment.set("MY_KEY", "1");
  EXPECT_EQ(Secrets(environment).taken_out_of("curl abcdefgh 1"), "curl (not shown) 1");
  environment.set("TEXT", "two\nlines");
  EXPECT_EQ(variables_without_secrets(environment, {}), "MY_KEY=(not shown)\nMY_TOKEN=(not shown)\nTEXT=two\\nlines\n");
  EXPECT_EQ(variables_without_secrets(environment, {"TE"}), "TEXT=two\\nlines\n");
}

}  // namespace
}  // namespace hvd::launcher
