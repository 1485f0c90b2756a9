#include "base/hmac.hpp"

#include <gtest/gtest.h>

namespace hvd {
namespace {

std::string hexadecimal(const Digest& digest) {
  std::string text;
  for (std::byte byte : digest) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

std::string sha256(const std::string& text, std::size_t step) {
  Sha256 sum;
  for (std::size_t at = 0; at < text.size(); at += step) sum.add(as_bytes(std::string_view(text).substr(at, step)));
  return hexadecimal(sum.finish());
}

TEST(Hmac, sums_as_the_standard_does) {
  EXPECT_EQ(sha256("", 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 5),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  for (std::size_t step : {1u, 63u, 64u, 65u, 1000u})
    EXPECT_EQ(sha256(std::string(1'000'000, 'a'), step),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0")
        << step;
}

TEST(Hmac, agrees_with_rfc_4231) {
  auto of = [](const std::string& key, const std::string& text) {
    return hexadecimal(Hmac(as_bytes(key)).add(as_bytes(text)).finish());
  };
  EXPECT_EQ(of(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(of("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(of(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Hmac, compares_all_bytes) {
  EXPECT_TRUE(equal_in_constant_time(as_bytes("same"), as_bytes("same")));
  EXPECT_FALSE(equal_in_constant_time(as_bytes("same"), as_bytes("sane")));
  EXPECT_FALSE(equal_in_constant_time(as_bytes("same"), as_bytes("samee")));
}

}  // namespace
}  // namespace hvd
