#include "checkpoint/content_bytes.hpp"

#include <gtest/gtest.h>

namespace extended {

// A type that the set of types does not have yet.
struct Duration {
  std::int64_t seconds = 0;
  friend bool operator==(const Duration&, const Duration&) = default;
};
void put_value(hvd::ByteWriter& writer, const Duration& value) {
  writer.put(value.seconds);
}
void get_value(hvd::ByteReader& reader, Duration& value) {
  value.seconds = reader.get<std::int64_t>();
}

}  // namespace extended

namespace hvd::checkpoint {
namespace {

using Extended = std::variant<Group, None, bool, std::int64_t, double, std::string, Tensor, extended::Duration>;

template <typename Written, typename Read = Written>
std::optional<Read> sent(const Written& content) {
  Buffer bytes;
  ByteWriter writer(bytes);
  put_content(writer, content);
  ByteReader reader(bytes);
  auto found = get_content<Read>(reader);
  EXPECT_TRUE(!found || reader.at_end());
  return found;
}

TEST(ContentForOtherRanks, of_every_type_is_the_same_there) {
  const Content all[] = {Group{},
                         None{},
                         true,
                         std::int64_t{-7},
                         0.5,
                         std::string("größer"),
                         Tensor{"float32", {3, 0, 5}, nullptr, "m/s"}};
  ASSERT_EQ(std::size(all), std::variant_size_v<Content>);
  for (std::size_t i = 0; i < std::size(all); ++i) {
    EXPECT_EQ(all[i].index(), i);
    EXPECT_EQ(sent(all[i]), all[i]) << i;
  }
}

TEST(ContentForOtherRanks, of_a_type_that_was_added_is_the_same_there) {
  EXPECT_EQ(sent(Extended(extended::Duration{60})), Extended(extended::Duration{60}));
}

TEST(ContentForOtherRanks, of_a_type_that_they_do_not_know_is_an_error_and_not_nothing) {
  EXPECT_EQ((sent<Extended, Content>(extended::Duration{60})), std::nullopt);
}

}  // namespace
}  // namespace hvd::checkpoint
