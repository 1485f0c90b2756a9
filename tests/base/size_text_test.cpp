#include "base/text/size_text.hpp"

#include <gtest/gtest.h>

namespace hvd {
namespace {

TEST(SizeText, has_units_of_1024_and_one_place_below_ten) {
  EXPECT_EQ(size_text(0), "0 bytes");
  EXPECT_EQ(size_text(1023), "1023 bytes");
  EXPECT_EQ(size_text(1536), "1.5 KiB");
  EXPECT_EQ(size_text(300ull << 20), "300 MiB");
  EXPECT_EQ(size_text(8.0 * (1ll << 30)), "8.0 GiB");
  EXPECT_EQ(size_text(1ull << 62), "4194304 TiB");
}

}  // namespace
}  // namespace hvd
