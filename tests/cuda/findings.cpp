// A test fails if the double of the driver has found something, and begins with a double that is as new.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "doubles/cuda/control.h"

namespace hvd::cuda {
namespace {

class AsksTheDouble final : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override {
    std::vector<std::string> found;
    const auto keep = [](void* list, const char* text) {
      static_cast<std::vector<std::string>*>(list)->push_back(text);
    };
    const std::size_t count = hvd_double_take_findings(keep, &found);
    constexpr std::size_t most_shown = 5;
    for (std::size_t i = 0; i < count && i < most_shown; ++i)
      ADD_FAILURE() << "the double of the driver has found:\n  " << found[i];
    EXPECT_EQ(hvd_double_allocations(), 0u) << "the test has not given back all memory";
    hvd_double_reset();
  }
};

const bool is_listening = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new AsksTheDouble);
  return true;
}();

}  // namespace
}  // namespace hvd::cuda
