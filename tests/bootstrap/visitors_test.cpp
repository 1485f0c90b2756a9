#include <gtest/gtest.h>

#include <map>

#include "bootstrap/store/pieces.hpp"
#include "bootstrap/store/tcp_client.hpp"
#include "bootstrap/store/tcp_server.hpp"
#include "bootstrap/store/verbs.hpp"
#include "bootstrap/store/visitor.hpp"
#include "store_thread.hpp"

namespace hvd::bootstrap {
namespace {

constexpr const char* visitors_secret = "what only the job's ranks know";

class Visitors : public ::testing::Test {
 protected:
  Visitors() { open(true); }
  void open(bool takes_visitors) {
    TcpStoreServer::Options options;
    options.size = 2;
    options.secret = visitors_secret;
    options.interfaces = {"lo"};
    options.takes_visitors = takes_visitors;
    store_ = std::move(*TcpStoreThread::start(std::move(options)));
  }
  Result<std::unique_ptr<StoreVisitor>> enter() {
    return StoreVisitor::enter(store_->server().addresses(), std::to_string(store_->server().port()), visitors_secret,
                               soon());
  }
  std::string get(StoreVisitor& visitor, std::string_view key, bool forgets = false) {
    auto size = visitor.size_of(key, soon());
    EXPECT_TRUE(size) << size.error().message;
    std::string value(*size, '?');
    auto read = visitor.read(key, {reinterpret_cast<std::byte*>(value.data()), value.size()}, forgets);
    EXPECT_TRUE(read) << read.error().message;
    return value;
  }
  std::unique_ptr<TcpStoreThread> store_;
};

TEST_F(Visitors, put_and_get_values_of_any_size) {
  auto one = std::move(*enter()), other = std::move(*enter());
  for (std::size_t size :
       {std::size_t{0}, std::size_t{1}, store::piece_bytes, store::piece_bytes + 1, store::piece_bytes * 200 + 7}) {
    std::string value;
    for (std::size_t i = 0; i < size; ++i) value += static_cast<char>(i * 31 % 251);
    ASSERT_TRUE(one->put("value", as_bytes(value)));  // in place of the value before
    EXPECT_EQ(get(*other, "value"), value);
    EXPECT_EQ(get(*one, "value"), value);
  }
}

TEST_F(Visitors, wait_for_values_that_others_put_later) {
  std::thread later([this] {
    auto other = std::move(*enter());
    ASSERT_TRUE(other->put("another", as_bytes("7")));
    ASSERT_TRUE(other->put("value", as_bytes("42")));
  });
  auto one = std::move(*enter());
  EXPECT_EQ(get(*one, "value"), "42");
  later.join();
  auto never = one->size_of("never put", Deadline::after(std::chrono::milliseconds(20)));
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().code, ErrorCode::timeout);
  EXPECT_EQ(one->size_of("never put", Deadline::after(std::chrono::milliseconds(0))).error().code, ErrorCode::timeout);
  EXPECT_EQ(get(*one, "another"), "7");  // the answer that came too late is not taken for this one
}

TEST_F(Visitors, take_values_away) {
  auto one = std::move(*enter()), other = std::move(*enter());
  const std::string value(store::piece_bytes * 3, 'v');
  ASSERT_TRUE(one->put("value", as_bytes(value)));
  EXPECT_EQ(get(*one, "value", true), value);
  EXPECT_FALSE(other->size_of("value", Deadline::after(std::chrono::milliseconds(20))));
  ASSERT_TRUE(one->put("value", as_bytes("next")));
  EXPECT_EQ(get(*other, "value", true), "next");
  std::byte room[3];
  ASSERT_TRUE(one->put("value", as_bytes("four")));
  for (const bool forgets : {false, true})
    EXPECT_NE(one->read("value", room, forgets).error().message.find("has 4 bytes"), std::string::npos);
  EXPECT_EQ(get(*other, "value"), "four") << "a read into the wrong room takes nothing away";
  EXPECT_NE(one->put("", as_bytes("value")).error().message.find("1 to 256"), std::string::npos);
}

TEST_F(Visitors, tell_the_end_of_a_rank_to_the_others) {
  auto visitor = std::move(*enter());
  auto rank = enter_tcp_store(store_->server().addresses(), std::to_string(store_->server().port()), visitors_secret,
                              Rank{1}, 2, soon());
  ASSERT_TRUE(rank) << rank.error().message;
  ASSERT_TRUE(visitor->rank_ended(Rank{0}, "exited with code 3"));
  auto fenced = (*rank)->fence(soon());
  ASSERT_FALSE(fenced);
  EXPECT_NE(fenced.error().message.find("rank 0 exited with code 3"), std::string::npos) << fenced.error().message;
  EXPECT_NE(visitor->rank_ended(Rank{2}, "").error().message.find("no rank 2"), std::string::npos);
}

TEST_F(Visitors, are_told_when_the_store_has_ended) {
  auto visitor = std::move(*enter());
  std::thread waits([&] {
    auto value = visitor->size_of("value", Deadline::never());
    ASSERT_FALSE(value);
    EXPECT_EQ(value.error().code, ErrorCode::peer_lost) << value.error().message;
  });
  store_.reset();
  waits.join();
}

TEST_F(Visitors, are_refused_by_the_store_of_a_launcher) {
  open(false);
  auto visitor = enter();
  ASSERT_FALSE(visitor);
  EXPECT_NE(visitor.error().message.find("rank -1"), std::string::npos) << visitor.error().message;
}

template <typename... Fields>
Buffer message(store::Verb verb, Fields... fields) {
  Buffer buffer = store::message(verb, 1);
  ByteWriter out(buffer);
  out.put_string("key");
  (out.put(fields), ...);
  return buffer;
}

TEST(StorePieces, drop_what_was_not_published_and_end_connections_that_break_the_protocol) {
  std::map<std::uint64_t, store::Verb> last;
  StorePieces pieces({"job",
                      [&](std::uint64_t connection, const store::SharedMessage& message) {
                        last[connection] = static_cast<store::Verb>(message->bytes[0]);
                      },
                      [](Rank, std::string_view) { return Status(); }});
  pieces.admit(7, 1);
  pieces.admit(8, 1);
  const auto put = [&](std::uint64_t at, char byte) {
    return pieces.handle(7, message(store::Verb::put, at, std::uint32_t{1}, byte));
  };
  EXPECT_TRUE(put(0, 'x'));
  pieces.left(7);
  EXPECT_TRUE(pieces.handle(
      8, message(store::Verb::fetch, std::uint64_t{0}, std::uint8_t{0}, std::uint8_t{1}, std::uint64_t{0})));
  EXPECT_EQ(last[8], store::Verb::welcome) << "there is no value, so it waits";
  EXPECT_FALSE(pieces.handle(8, message(store::Verb::put)));
  EXPECT_FALSE(pieces.handle(8, message(store::Verb::fetch, std::uint8_t{0})));
  EXPECT_FALSE(pieces.handle(8, message(store::Verb::card)));
  EXPECT_FALSE(pieces.handle(8, {}));
  EXPECT_TRUE(pieces.handle(8, message(store::Verb::publish)));  // an empty value
  EXPECT_EQ(last[8], store::Verb::value);
  pieces.admit(7, 1);
  EXPECT_FALSE(put(1, 'x')) << "a piece is missing";
  pieces.left(7);
  pieces.left(8);
  EXPECT_TRUE(pieces.is_empty());
}

TEST(StorePieces, begin_anew_after_a_put_that_has_failed_and_give_all_visitors_the_same_message) {
  std::map<std::uint64_t, store::SharedMessage> pieces_sent;
  StorePieces pieces({"job",
                      [&](std::uint64_t connection, const store::SharedMessage& message) {
                        if (static_cast<store::Verb>(message->bytes[0]) == store::Verb::piece)
                          pieces_sent[connection] = message;
                      },
                      [](Rank, std::string_view) { return Status(); }});
  for (const std::uint64_t visitor : {7, 8}) pieces.admit(visitor, 1);
  for (const char byte : {'x', 'y'})
    EXPECT_TRUE(pieces.handle(7, message(store::Verb::put, std::uint64_t{0}, std::uint32_t{1}, byte)));
  EXPECT_TRUE(pieces.handle(7, message(store::Verb::publish)));
  for (const std::uint64_t visitor : {7, 8})
    EXPECT_TRUE(pieces.handle(
        visitor, message(store::Verb::fetch, std::uint64_t{0}, std::uint8_t{0}, std::uint8_t{0}, std::uint64_t{1})));
  EXPECT_EQ(to_string(ConstBytes(pieces_sent.at(7)->bytes).subspan(5)), "y");
  EXPECT_EQ(pieces_sent.at(7), pieces_sent.at(8)) << "it is hashed once";
}

}  // namespace
}  // namespace hvd::bootstrap
