// How NCCL's library is found and judged.
#include "native/nccl/library.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "doubles/nccl/control.h"
#include "in_own_folder.hpp"

namespace hvd::nccl {
namespace {

class NcclLibrary : public testing::InOwnFolder {};

TEST_F(NcclLibrary, the_one_that_the_process_has_is_taken) {
  const auto library = find_library(Environment());
  ASSERT_TRUE(library) << library.error().message;
  EXPECT_EQ(std::filesystem::canonical(library->path), std::filesystem::canonical(HVD_NCCL_DOUBLE));
  EXPECT_EQ(library->version, 22809);
}

TEST_F(NcclLibrary, one_that_is_too_old_is_refused_with_both_versions) {
  hvd_nccl_double_set_version(21602);
  const auto library = find_library(Environment());
  hvd_nccl_double_set_version(22809);
  ASSERT_FALSE(library);
  EXPECT_NE(library.error().message.find("is NCCL 2.16.2, needed is 2.18.0 or later"), std::string::npos)
      << library.error().message;
}

TEST_F(NcclLibrary, a_file_that_is_none_is_named_with_the_variable) {
  Environment environment;
  environment.set("HOROVOD_NCCL_LIBRARY", "/nowhere/libnccl.so.2");
  const auto library = find_library(environment);
  ASSERT_FALSE(library);
  EXPECT_NE(library.error().message.find("/nowhere/libnccl.so.2"), std::string::npos) << library.error().message;
  EXPECT_NE(library.error().message.find("HOROVOD_NCCL_LIBRARY"), std::string::npos);
  environment.set("HOROVOD_NCCL_LIBRARY", "libm.so.6");
  const auto other = find_library(environment);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("libm.so.6 is no complete NCCL, it lacks ncclGetVersion"), std::string::npos)
      << other.error().message;
}

TEST_F(NcclLibrary, two_in_one_process_are_refused_with_both_paths) {
  const std::string copy = folder_ + "/libnccl.so.2";
  std::filesystem::copy_file(HVD_NCCL_DOUBLE, copy);
  void* const second = ::dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(second, nullptr) << ::dlerror();
  const auto library = find_library(Environment());
  ::dlclose(second);
  ASSERT_FALSE(library);
  EXPECT_NE(library.error().message.find(copy), std::string::npos) << library.error().message;
  EXPECT_NE(library.error().message.find("two NCCLs are in this process"), std::string::npos);
}

TEST_F(NcclLibrary, versions_with_known_faults_are_told) {
  EXPECT_EQ(known_fault(22802), "");
  EXPECT_NE(known_fault(22803), "");
  EXPECT_NE(known_fault(22808), "");
  EXPECT_EQ(known_fault(22809), "");
  EXPECT_NE(known_fault(22907).find("NCCL_NVLS_ENABLE=0"), std::string::npos);
  EXPECT_EQ(known_fault(23004), "");
  EXPECT_NE(fault_with_stack(22707, true).find("ulimit -s 8192"), std::string::npos);
  EXPECT_EQ(fault_with_stack(22707, false), "");
  EXPECT_EQ(fault_with_stack(22803, true), "");
}

}  // namespace
}  // namespace hvd::nccl
