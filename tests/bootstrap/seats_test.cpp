// Messages to a store's seats in orders that real clients rarely produce.
#include "bootstrap/store/seats.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace hvd::bootstrap {
namespace {

using store::Verb;

constexpr std::uint32_t ticket = 2;

// The ranks of a job with `size` ranks. Rank r uses connection 10 + r.
class Seats {
 public:
  explicit Seats(int size)
      : seats_({"job", size, {}, [this](std::uint64_t connection, store::SharedMessage message) {
                  answers_[connection].push_back(static_cast<Verb>(message->bytes.front()));
                  texts_[connection] = to_string(message->bytes);
                  if (auto gone = gone_unseen_.extract(connection)) seats_.left(connection, "was killed, too");
                }}) {
    for (int rank = 0; rank < size; ++rank)
      seats_.seat(connection_of(rank), 1, {store::wire_version, rank, size, 4711});
    answers_.clear();
  }

  void bring_card(int rank) {
    Buffer message = store::message(Verb::card, ticket);
    ByteWriter out(message);
    out.put_string("start");
    out.put(rank);
    Buffer card = encode({"card of " + std::to_string(rank)});
    out.put_string(to_string(card));
    EXPECT_TRUE(seats_.handle(connection_of(rank), message));
  }
  void ask_for_all(int rank) {
    Buffer message = store::message(Verb::exchange, ticket);
    ByteWriter(message).put_string("start");
    EXPECT_TRUE(seats_.handle(connection_of(rank), message));
  }
  void end(int rank) { seats_.left(connection_of(rank), "was killed"); }

  // The rank has ended, but the seats notice that only when they send an answer to it.
  void end_unseen(int rank) { gone_unseen_.insert(connection_of(rank)); }

  std::vector<Verb> answers_to(int rank) { return answers_[connection_of(rank)]; }
  std::string last_text_to(int rank) { return texts_[connection_of(rank)]; }

 private:
  static std::uint64_t connection_of(int rank) { return 10 + static_cast<std::uint64_t>(rank); }

  std::map<std::uint64_t, std::vector<Verb>> answers_;
  std::map<std::uint64_t, std::string> texts_;
  std::set<std::uint64_t> gone_unseen_;
  StoreSeats seats_;
};

TEST(StoreSeats, tell_who_asks_for_the_cards_after_an_end_that_there_are_none) {
  Seats seats(3);
  seats.bring_card(0);
  seats.end(1);
  seats.ask_for_all(0);
  EXPECT_EQ(seats.answers_to(0), std::vector{Verb::failed});
  EXPECT_NE(seats.last_text_to(0).find("rank 1 was killed while the others waited"), std::string::npos);
  seats.bring_card(2);
  seats.ask_for_all(2);
  EXPECT_EQ(seats.answers_to(2), std::vector{Verb::failed});
}

TEST(StoreSeats, wait_for_no_question_of_a_rank_that_ended_after_it_brought_its_card) {
  Seats seats(3);
  for (int rank : {0, 1, 2}) seats.bring_card(rank);
  for (int rank : {0, 2}) seats.ask_for_all(rank);
  EXPECT_TRUE(seats.answers_to(0).empty());
  seats.end(1);
  for (int rank : {0, 2}) EXPECT_EQ(seats.answers_to(rank), (std::vector{Verb::piece, Verb::all})) << rank;
}

TEST(StoreSeats, tell_everybody_of_an_end_though_another_one_shows_meanwhile) {
  Seats seats(5);
  for (int rank : {0, 1, 3, 4}) seats.bring_card(rank);
  for (int rank : {0, 1, 3, 4}) seats.ask_for_all(rank);
  for (int rank : {0, 3}) seats.end_unseen(rank);
  seats.end(2);
  for (int rank : {1, 4}) {
    EXPECT_EQ(seats.answers_to(rank), std::vector{Verb::failed}) << rank;
    EXPECT_NE(seats.last_text_to(rank).find("rank 2 was killed"), std::string::npos) << rank;
  }
}

}  // namespace
}  // namespace hvd::bootstrap
