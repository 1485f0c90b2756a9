#include "native/posix/plugins/plugin.hpp"

#include <dlfcn.h>
#include <stdlib.h>

#include <filesystem>

#include "in_own_folder.hpp"
#include "native/posix/machine/host_identity.hpp"
#include "native/posix/plugins/shared_library.hpp"

namespace hvd::posix {
namespace {

Environment with_path(std::string path) {
  Environment environment;
  environment.set("HOROVOD_PLUGIN_PATH", std::move(path));
  return environment;
}

TEST(SharedLibrary, opens_what_the_loader_finds_and_knows_its_functions) {
  auto library = SharedLibrary::open("libm.so.6", RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << library.error().message;
  EXPECT_NE(library->symbol("cos"), nullptr);
  EXPECT_EQ(library->symbol("no_such_function"), nullptr);
  SharedLibrary moved = std::move(*library);
  EXPECT_NE(moved.symbol("cos"), nullptr);
}

TEST(SharedLibrary, hands_on_the_loaders_reason) {
  auto library = SharedLibrary::open("libno_such_library.so", RTLD_NOW);
  ASSERT_FALSE(library);
  EXPECT_NE(library.error().message.find("libno_such_library.so"), std::string::npos) << library.error().message;
}

TEST(SharedLibrary, knows_the_folder_of_its_own_code) {
  EXPECT_EQ(folder_of_code(reinterpret_cast<const void*>(&plugin_stamp)),
            std::filesystem::canonical("/proc/self/exe").parent_path().string());
}

TEST(Plugin, that_is_nowhere_is_reported_with_all_places) {
  auto table = open_plugin_table("nonexistent", 16, with_path("/first/place::/second/place"));
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().code, ErrorCode::unsupported);
  for (const char* part :
       {"libhorovod_nonexistent.so", "/first/place", "/second/place", "../lib", "HOROVOD_PLUGIN_PATH"})
    EXPECT_NE(table.error().message.find(part), std::string::npos) << part << " in " << table.error().message;
}

// A folder for each test, with files that are named like plugins.
class FakePlugins : public testing::InOwnFolder {
 protected:
  // Compiles C code. False if there is no compiler.
  bool build(const std::string& name, const std::string& source) {
    write(name + ".c", source);
    std::string file = folder_ + "/" + name + ".c";
    return std::system(
               ("cc -shared -fPIC -o " + folder_ + "/libhorovod_" + name + ".so " + file + " 2>/dev/null").c_str()) ==
           0;
  }
  std::string table(const std::string& name, const std::string& version, int bytes) {
    return "static const struct { const char* version; unsigned bytes; } table = {\"" + version + "\", " +
           std::to_string(bytes) + "};\nconst void* horovod_" + name + "_plugin(void) { return &table; }\n";
  }
};

TEST_F(FakePlugins, are_opened_only_if_they_are_of_this_build) {
  std::string version = plugin_stamp(16).version;
  if (!build("good", table("good", version, 16))) GTEST_SKIP() << "no C compiler at run time";
  ASSERT_TRUE(build("old", table("old", "0.0.1", 16)));
  ASSERT_TRUE(build("longer", table("longer", version, 24)));
  ASSERT_TRUE(build("other", table("another", version, 16)));
  Environment environment = with_path("/nowhere:" + folder_);
  auto good = open_plugin_table("good", 16, environment);
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_STREQ(static_cast<const PluginStamp*>(*good)->version, version.c_str());
  struct Row {
    const char* name;
    const char* expected;
  };
  for (const Row& row : {Row{"old", "0.0.1"}, Row{"longer", "24"}, Row{"other", "horovod_other_plugin"}}) {
    auto table = open_plugin_table(row.name, 16, environment);
    ASSERT_FALSE(table) << row.name;
    EXPECT_EQ(table.error().code, ErrorCode::unsupported);
    EXPECT_NE(table.error().message.find(row.expected), std::string::npos) << table.error().message;
  }
}

TEST_F(FakePlugins, may_be_no_libraries_at_all) {
  write("libhorovod_text.so", "not a library");
  auto table = open_plugin_table("text", 16, with_path(folder_));
  ASSERT_FALSE(table);
  EXPECT_NE(table.error().message.find("libhorovod_text.so"), std::string::npos) << table.error().message;
}

TEST(HostIdentity, is_the_same_every_time) {
  EXPECT_FALSE(host_name().empty());
  EXPECT_EQ(host_name(), host_name());
  EXPECT_GT(node_id().size(), 8u);
  EXPECT_EQ(node_id(), node_id());
}

}  // namespace
}  // namespace hvd::posix
