#include "base/gpu_makes.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace hvd {
namespace {

TEST(GpuMakes, are_the_kinds_of_memory_beside_that_of_the_host) {
  EXPECT_EQ(gpu_make_of(DeviceKind::host), nullptr);
  ASSERT_EQ(gpu_makes().size(), static_cast<std::size_t>(device_kind_count - 1));
  for (int kind = 1; kind < device_kind_count; ++kind) {
    const GpuMake& make = gpu_makes()[static_cast<std::size_t>(kind - 1)];
    EXPECT_EQ(make.kind, static_cast<DeviceKind>(kind));
    EXPECT_EQ(gpu_make_of(make.kind), &make);
    EXPECT_STREQ(make.plugin, name_of(make.kind)) << "a make has one name";
  }
}

TEST(GpuMakes, have_nothing_in_common) {
  std::set<std::string> words;
  std::set<int> types{dlpack_host};
  std::size_t count = 0;
  for (const GpuMake& make : gpu_makes()) {
    EXPECT_TRUE(types.insert(make.dlpack_type).second) << make.title;
    ASSERT_FALSE(make.visibility.empty()) << make.title;
    words.insert({make.plugin, make.title, make.owner});
    words.insert(make.visibility.begin(), make.visibility.end());
    count += 3 + make.visibility.size();
  }
  EXPECT_EQ(words.size(), count);
}

TEST(GpuMakes, are_named_by_their_usual_variables_in_messages) {
  EXPECT_EQ(visibility_variables(), "CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace hvd
