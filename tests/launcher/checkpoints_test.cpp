#include <limits>

#include "checkpoint/checkpoint_files.hpp"
#include "launcher/checkpoints/command.hpp"

namespace hvd::launcher {
namespace {

class CheckpointCommand : public checkpoint::WithCheckpoints {
 protected:
  // Runs the command. Returns the text that it prints to standard output and standard error, followed by its exit code.
  std::string run(const std::string& action, std::vector<std::string> arguments) {
    for (std::string& argument : arguments)
      if (!argument.starts_with('/')) argument = folder_ + "/" + argument;
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    int code = run_checkpoint_command(action, arguments, Environment::of_this_process());
    std::fflush(stdout);
    std::string text = ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
    return text + std::to_string(code);
  }
  static void expect_in(const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  void save(const std::string& name, std::int64_t step, float first) {
    floats_[0] = first;
    checkpoint::WriteOptions options;
    options.step = options.sequence = step;
    ASSERT_TRUE(write(name, everything(), options));
  }
};

TEST_F(CheckpointCommand, lists_a_folder_and_what_is_in_a_file) {
  save("a.h5", 5, 0);
  save("b.h5", 6, 0);
  write_bytes("c.h5", "");
  std::string folder = run("ls", {""});
  expect_in(folder, {"b.h5\n", "a.h5\n", "damaged: ", "c.h5 is damaged", "MiB"});
  EXPECT_LT(folder.find("b.h5"), folder.find("a.h5"));
  EXPECT_TRUE(folder.ends_with("1"));
  std::string file = run("ls", {"a.h5"});
  expect_in(file, {"step 5,", "/model/layer1.weight: float32 [300, 7]\n", "/model/a%2Fb: float32 [3, 5] in m/s\n",
                   "/text: text \"größer than \"nothing\"\\n\"\n", "/nothing: nothing\n", "/step: integer 1200\n",
                   "/model: group (OrderedDict)\n"});
  EXPECT_TRUE(file.ends_with("\n0"));
}

TEST_F(CheckpointCommand, verifies_files_and_folders) {
  save("a.h5", 5, 0);
  EXPECT_TRUE(run("verify", {"a.h5"}).ends_with("a.h5 is whole: step 5, 4.5 MiB\n0")) << run("verify", {"a.h5"});
  std::string bytes = bytes_of_file("a.h5");
  bytes[bytes.size() / 2] ^= 1;
  write_bytes("b.h5", bytes);
  std::string text = run("verify", {""});
  expect_in(text, {"a.h5 is whole", "b.h5 is damaged"});
  EXPECT_TRUE(text.ends_with("\n1"));
  EXPECT_TRUE(run("verify", {"none.h5"}).ends_with("\n1"));
}

TEST_F(CheckpointCommand, tells_what_two_differ_in) {
  save("a.h5", 5, 0);
  save("b.h5", 6, 0);
  EXPECT_EQ(run("diff", {"a.h5", "b.h5"}), "0");
  save("b.h5", 6, 2.5f);
  std::string text = run("diff", {"a.h5", "b.h5"});
  expect_in(text, {"/model/layer1.weight: 1 of 2100 elements differ, at most by 2.5\n", "/model/scalar: "});
  EXPECT_TRUE(text.ends_with("\n1"));
}

TEST_F(CheckpointCommand, tells_the_difference_of_integers_that_a_double_would_round) {
  const std::int64_t whole[] = {std::int64_t{1} << 60, (std::int64_t{1} << 60) + 1};
  const std::uint64_t natural[] = {0, ~std::uint64_t{0} - 1};
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(write(i == 0 ? "a.h5" : "b.h5", {{"/", "", checkpoint::Group{}},
                                                 {"/natural", "", checkpoint::Tensor{"uint64", {1}, &natural[i], ""}},
                                                 {"/whole", "", checkpoint::Tensor{"int64", {1}, &whole[i], ""}}}));
  EXPECT_EQ(run("diff", {"a.h5", "b.h5"}),
            "/natural: 1 of 1 elements differ, at most by 18446744073709551614\n"
            "/whole: 1 of 1 elements differ, at most by 1\n1");
}

TEST_F(CheckpointCommand, finds_no_difference_between_numbers_that_are_the_same_nan) {
  checkpoint::State state = {{"/", "", checkpoint::Group{}}, {"/loss", "", std::numeric_limits<double>::quiet_NaN()}};
  ASSERT_TRUE(write("a.h5", state));
  EXPECT_EQ(run("diff", {"a.h5", "a.h5"}), "0");
  state[1].content = 0.5;
  ASSERT_TRUE(write("b.h5", state));
  EXPECT_EQ(run("diff", {"a.h5", "b.h5"}), "/loss: number nan and number 0.5\n1");
}

TEST_F(CheckpointCommand, tells_of_a_nan_that_numbers_follow) {
  const float losses[][3] = {{1, 0, 0}, {1, std::numeric_limits<float>::quiet_NaN(), 3}};
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(write(i == 0 ? "a.h5" : "b.h5", {{"/", "", checkpoint::Group{}},
                                                 {"/loss", "", checkpoint::Tensor{"float32", {3}, losses[i], ""}}}));
  EXPECT_EQ(run("diff", {"a.h5", "b.h5"}), "/loss: 2 of 3 elements differ, at most by nan\n1");
}

TEST_F(CheckpointCommand, exports_a_model_as_safetensors) {
  floats_.resize(8);
  checkpoint::State state = {{"/", "", checkpoint::Group{}},
                             {"/model", "", checkpoint::Group{}},
                             {"/model/a%2Fb", "", checkpoint::Tensor{"float32", {2, 2}, floats_.data(), ""}},
                             {"/model/brain", "", checkpoint::Tensor{"bfloat16", {3}, floats_.data(), ""}},
                             {"/other", "", checkpoint::Tensor{"float32", {1}, floats_.data(), ""}}};
  ASSERT_TRUE(write("a.h5", state));
  EXPECT_TRUE(run("export", {"a.h5", "a.safetensors"}).ends_with("\n0"));
  std::string bytes = bytes_of_file("a.safetensors");
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), 8);
  EXPECT_EQ(size % 8, 0u);
  expect_in(bytes, {R"("a/b":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]})",
                    R"("brain":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]})"});
  EXPECT_EQ(bytes.size(), 8 + size + 22);
  EXPECT_EQ(std::memcmp(bytes.data() + 8 + size, floats_.data(), 16), 0);
  expect_in(run("export", {"a.h5", "a.pt"}), {"pickle", "safetensors"});
  expect_in(run("export", {"a.h5", "b.safetensors", "/none"}), {"has no tensors in /none"});
}

TEST_F(CheckpointCommand, says_how_it_is_used) {
  for (const char* action : {"list", "diff", ""}) {
    std::string text = run(action, {"a.h5"});
    expect_in(text, {"is not understood", "export PATH FILE.safetensors"});
    EXPECT_TRUE(text.ends_with("\n2"));
  }
}

}  // namespace
}  // namespace hvd::launcher
