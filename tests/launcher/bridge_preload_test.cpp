#include "launcher/agent/bridge_preload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "in_own_folder.hpp"
#include "native/posix/files/program_file.hpp"

namespace hvd::launcher {
namespace {

using Settings = std::map<std::string, std::string, std::less<>>;

class BridgePreload : public testing::InOwnFolder {
 protected:
  BridgePreload() { write("libhorovod_pmi_bridge.so", ""); }
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }

  // Returns the value of LD_PRELOAD that contains only the bridge, or "none" if nothing is preloaded.
  std::string preload(Settings variables, const std::string& program = "/bin/sh") {
    variables.emplace("HOROVOD_PLUGIN_PATH", folder_);
    std::string text = preload_with_bridge(program, Environment(variables)).value_or("none");
    for (std::size_t end; (end = text.find("/libhorovod_pmi_bridge.so")) != std::string::npos;) {
      std::size_t colon = text.rfind(':', end), begin = colon == std::string::npos ? 0 : colon + 1;
      text.replace(begin, end + 25 - begin, "bridge");
    }
    return text;
  }
};

TEST_F(BridgePreload, is_for_ranks_that_can_meet_but_have_no_pmi) {
  EXPECT_EQ(preload({{"PMIX_NAMESPACE", "job"}}), "bridge");
  EXPECT_EQ(preload({{"HOROVOD_LOCAL_STORE", "@1"}}), "bridge");
  EXPECT_EQ(preload({{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"}}), "bridge");
  EXPECT_EQ(preload({{"PATH", "/bin"}}), "none");
  EXPECT_EQ(preload({{"PMIX_NAMESPACE", "job"}, {"PMI_FD", "4"}}), "none");
  EXPECT_EQ(preload({{"PMIX_NAMESPACE", "job"}, {"PMI_PORT", "n1:4"}}), "none");
}

TEST_F(BridgePreload, comes_after_what_the_site_preloads_and_once) {
  EXPECT_EQ(preload({{"PMIX_NAMESPACE", "job"}, {"LD_PRELOAD", "libm.so.6 libc.so.6"}}), "libm.so.6 libc.so.6:bridge");
  EXPECT_EQ(preload({{"PMIX_NAMESPACE", "job"}, {"LD_PRELOAD", "/x/libhorovod_pmi_bridge.so"}}), "none");
}

TEST_F(BridgePreload, can_be_turned_off) {
  EXPECT_EQ(preload({{"PMIX_NAMESPACE", "job"}, {"HOROVOD_PMI_BRIDGE", "0"}}), "none");
  EXPECT_EQ(preload({{"PMIX_NAMESPACE", "job"}, {"HOROVOD_PMI_BRIDGE", "on"}}), "bridge");
}

TEST_F(BridgePreload, stays_away_from_programs_whose_loader_would_complain) {
  const Settings job = {{"PMIX_NAMESPACE", "job"}};
  write("script", "#! /bin/sh -e\ntrue\n");
  EXPECT_EQ(preload(job, path_of("script")), "bridge");
  write("for_the_shell", "true\n");
  EXPECT_EQ(preload(job, path_of("for_the_shell")), "bridge");
  EXPECT_EQ(preload(job, path_of("missing")), "none");
  std::filesystem::copy_file("/bin/true", path_of("apptainer"));
  EXPECT_EQ(preload(job, path_of("apptainer")), "none") << "the file is not there in the container";

  std::ifstream file("/bin/true", std::ios::binary);
  std::string program((std::istreambuf_iterator<char>(file)), {});
  auto changed = [&](const char* name, std::size_t at, const std::string& to) {
    std::string copy = program;
    copy.replace(at, to.size(), to);
    write(name, copy);
    return path_of(name);
  };
  EXPECT_EQ(preload(job, changed("same", 0, "")), "bridge");
  EXPECT_EQ(preload(job, changed("other_processor", 18, "\xf3")), "none");  // the field e_machine names RISC-V
  EXPECT_EQ(preload(job, changed("other_class", 4, "\x01")), "none");       // a program for 32 bits
  std::size_t loader = program.find("/ld-linux");
  ASSERT_NE(loader, std::string::npos);
  EXPECT_EQ(preload(job, changed("other_libc", loader, "/ld-musl-")), "none");
  std::size_t libc = program.find("libc.so.6");
  ASSERT_NE(libc, std::string::npos);
  EXPECT_EQ(preload(job, changed("sanitized", libc, "libasan.6")), "none");
  write("cut_off", program.substr(0, 70));
  EXPECT_EQ(preload(job, path_of("cut_off")), "none");
}

TEST(ProgramFile, knows_the_loader_and_the_libraries) {
  auto sh = posix::read_program_file("/bin/sh");
  ASSERT_TRUE(sh);
  EXPECT_EQ(sh->loader.substr(0, 3), "ld-");
  EXPECT_NE(std::find(sh->libraries.begin(), sh->libraries.end(), "libc.so.6"), sh->libraries.end());
  EXPECT_TRUE(sh->glibc.starts_with("2.")) << sh->glibc;
  EXPECT_FALSE(posix::read_program_file("/does/not/exist"));
}

}  // namespace
}  // namespace hvd::launcher
