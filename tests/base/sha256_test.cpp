#include "base/checksums/sha256.hpp"

#include <gtest/gtest.h>

#include <string>

namespace hvd {
namespace {

TEST(Sha256, gives_the_digests_of_the_standard) {  // FIPS 180-4 examples, NIST CAVP
  for (const auto way : {Sha256::Way::by_instructions, Sha256::Way::plain}) {
    EXPECT_EQ(hexadecimal(sha256({}, way)), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(hexadecimal(sha256(as_bytes("abc"), way)),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(hexadecimal(sha256(as_bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"), way)),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(hexadecimal(sha256(as_bytes(std::string(1'000'000, 'a')), way)),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

TEST(Sha256, is_the_same_by_instructions_and_without) {
  std::string text;
  for (std::uint32_t i = 0; i < 4096; ++i) text += static_cast<char>(i * 2654435761u >> 24);
  for (std::size_t begin = 0; begin < 70; begin += 3)
    for (std::size_t length = 0; length < text.size() - begin; length += 97) {
      const auto part = as_bytes(std::string_view(text).substr(begin, length));
      EXPECT_EQ(sha256(part), sha256(part, Sha256::Way::plain)) << begin << " " << length;
    }
}

TEST(Sha256, does_not_depend_on_how_the_bytes_come) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i);
  for (std::size_t length = 0; length <= text.size(); length += 7) {
    std::string_view whole = std::string_view(text).substr(0, length);
    Sha256 in_pieces;
    for (std::size_t at = 0, piece = 1; at < length; at += piece, piece = piece * 3 % 67)
      in_pieces.add(as_bytes(whole.substr(at, piece)));
    EXPECT_EQ(in_pieces.finish(), sha256(as_bytes(whole))) << length;
  }
}

TEST(HmacSha256, gives_the_digests_of_rfc_4231) {
  EXPECT_EQ(hexadecimal(hmac_sha256(as_bytes(std::string(20, '\x0b')), as_bytes("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hexadecimal(hmac_sha256(as_bytes("Jefe"), as_bytes("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hexadecimal(hmac_sha256(as_bytes(std::string(131, '\xaa')),
                                    as_bytes("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Secrets, are_equal_only_if_every_byte_is) {
  EXPECT_TRUE(are_equal_secrets(as_bytes("secret"), as_bytes("secret")));
  EXPECT_TRUE(are_equal_secrets({}, {}));
  for (const char* other : {"Secret", "secreT", "secre", "secrets", ""})
    EXPECT_FALSE(are_equal_secrets(as_bytes("secret"), as_bytes(other))) << other;
}

}  // namespace
}  // namespace hvd
