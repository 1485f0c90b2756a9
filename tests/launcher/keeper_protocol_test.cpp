#include "launcher/wire/keeper_protocol.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "launcher/agent/rank_keeper.hpp"

namespace hvd::launcher {
namespace {

TEST(KeeperProtocol, hides_from_launchers_what_they_take_for_their_own_words) {
  for (const char* word : {"", ":", "\\:", "\\\\:", "::", "\\", "a:", "--", "\n"}) {
    EXPECT_NE(escape_colon(word), ":");
    EXPECT_EQ(unescape_colon(escape_colon(word)), word);
  }
  EXPECT_EQ(below_a_keeper("horovodrun", {}, {"echo", "a:", ":", "hostname"}),
            (std::vector<std::string>{"horovodrun", rank_keeper_flag, "5000", "input-as-it-comes", "echo",
                                      "a:", "\\:", "hostname"}));
}

std::string text_of_all_kinds() {
  std::string text;
  for (int number = 0; number < 400; ++number) {
    for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
    text +=
        std::to_string(number) + "\r\n[1,0]<stdout>:" + std::string(static_cast<std::size_t>(number * 7), 'x') + "\n";
  }
  return text + "no end";
}

TEST(KeeperProtocol, carries_any_bytes_in_lines_that_no_launcher_cuts) {
  const std::string text = text_of_all_kinds();
  for (std::size_t piece : {std::size_t{1}, std::size_t{5}, std::size_t{16384}, text.size()}) {
    std::string arrived;
    for (std::size_t at = 0; at < text.size(); at += piece)
      pack(std::string_view(text).substr(at, piece), [&](std::string_view packet) {
        ASSERT_GE(packet.size(), shortest_packet);
        ASSERT_LE(packet.size(), longest_packet);
        ASSERT_EQ(packet.find('\n'), packet.size() - 1);
        ASSERT_EQ(packet.find('\0'), packet.npos);
        ASSERT_EQ(packet.find("]<stdout>"), packet.npos);
        arrived += unpack(std::string(packet)).bytes;
      });
    EXPECT_EQ(arrived.size(), text.size());
    EXPECT_TRUE(arrived == text) << "in pieces of " << piece;
  }
}

TEST(KeeperProtocol, tells_packets_from_what_comes_without_a_keeper) {
  for (const char* line : {"plain\n", "no end", "", "\x10", "\x10x\n", "\x10r nonsense\n"}) {
    Unpacked unpacked = unpack(line);
    EXPECT_EQ(unpacked.bytes, line);
    EXPECT_FALSE(unpacked.report);
  }
  EXPECT_TRUE(unpack(std::string(end_of_input)).is_end_of_input);
  auto taken = unpack(packet_of(InputTaken{24000, true})).taken;
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->bytes, 24000u);
  EXPECT_TRUE(taken->is_closed);
  Unpacked unpacked = unpack("no end" + packet_of({645, 9, true, 2000, "n2"}));
  EXPECT_EQ(unpacked.bytes, "no end");
  ASSERT_TRUE(unpacked.report);
  EXPECT_EQ(unpacked.report->process, 645);
  EXPECT_EQ(unpacked.report->wait_status, 9);
  EXPECT_TRUE(unpacked.report->was_asked);
  EXPECT_EQ(unpacked.report->at_ns, 2000);
  EXPECT_EQ(unpacked.report->host, "n2");
}

}  // namespace
}  // namespace hvd::launcher
