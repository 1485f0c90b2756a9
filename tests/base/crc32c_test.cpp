#include "base/checksums/crc32c.hpp"

#include <gtest/gtest.h>

#include <string>

namespace hvd {
namespace {

TEST(Crc32c, gives_the_values_of_the_standard) {
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\xff'))), 0x62a8ab43u);
}

TEST(Crc32c, is_the_same_with_and_without_the_instruction_and_in_parts) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += static_cast<char>(i * 7 + i / 13);
  for (std::size_t size = 0; size <= text.size(); size += 1 + size / 5) {
    ConstBytes all = as_bytes(std::string_view(text).substr(0, size));
    EXPECT_EQ(crc32c(all), crc32c_by_table(all)) << size;
    EXPECT_EQ(crc32c(all), crc32c(all.subspan(size / 3), crc32c(all.first(size / 3)))) << size;
  }
}

}  // namespace
}  // namespace hvd
