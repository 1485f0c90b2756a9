#pragma once
// The seats of a store (seats.hpp), one generation after the other. A job whose ranks stay has one generation, which is
// there from the start. In a job whose ranks come and go, processes connect by a number that they keep, and ask for a
// place. The owner of the store begins a generation when it has decided who gets which place. What a process of an
// older generation asks for fails from then on, so it cannot meet anybody.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bootstrap/store/seats.hpp"

namespace hvd::bootstrap {

// What a process tells when it asks for a place.
struct AskForPlace {
  std::int32_t process = 0;  // its number in the job, which it keeps
  std::uint8_t cause = 0;    // 0: it has had no place yet, 1: its round failed, 2: it was told of other hosts
  std::int64_t step = 0;     // 1 + the number of its commits; 0: it has no state of the training
  bool keeps = false;        // it can write a checkpoint of its last commit, should the job end
};

// The place of a process in a generation.
struct AssignedPlace {
  std::int32_t process = 0;
  std::uint32_t epoch = 0;  // number of the generation; higher than that of every generation before
  std::int32_t rank = 0, size = 1;
  std::int32_t local_rank = 0, local_size = 1;
  std::int32_t cross_rank = 0, cross_size = 1;
  std::int32_t newcomers = 0;  // how many ranks of the generation have no state of the training
};

class StoreGenerations {
 public:
  struct Options {
    std::string job;
    int size = 1;  // the ranks of the only generation; 0: assign() gives the places
    std::function<void(Rank, std::string_view reason)> on_abort;
    // A process asks for a place. The call comes while a message is handled.
    std::function<void(const AskForPlace&)> on_ask;
    std::function<void(std::uint64_t connection, store::SharedMessage message)> answer;
  };
  explicit StoreGenerations(Options options);

  // As the functions of StoreSeats. For ranks that come and go guest.rank is the number of the process, and guest.size
  // is 0.
  bool seat(std::uint64_t connection, std::uint32_t ticket, const StoreGuest& guest);
  bool is_seated(std::uint64_t connection) const;
  bool is_empty() const;
  bool handle(std::uint64_t connection, ConstBytes message);
  void left(std::uint64_t connection, std::string_view why);
  void lose(Rank rank, std::string_view how);
  bool is_rank(std::int32_t number) const { return seats_ != nullptr && seats_->is_rank(number); }

  // Answers a process that has asked. The first place of another epoch begins a generation. A process that is not
  // connected any more counts as lost for the others.
  void assign(const AssignedPlace& place);
  // Answers a process that has asked: it gets no place.
  void refuse(int process, std::string_view why);
  // Tells a process that the hosts have changed, or (4) that it is to write a checkpoint. Refuse it after that.
  void send_news(int process, double time, std::uint8_t change);
  // The process has ended.
  void end(int process, std::string_view how);

 private:
  struct Client {
    std::int32_t process = 0, pid = 0;
    std::optional<std::uint32_t> asks;  // ticket of its request for a place
  };
  std::optional<std::uint64_t> connection_of(int process) const;
  bool admit(std::uint64_t connection, std::uint32_t ticket, const StoreGuest& guest);
  bool ask(std::uint64_t connection, std::uint32_t ticket, ByteReader& in);
  void answer_failed(std::uint64_t connection, std::uint32_t ticket, ErrorCode code, std::string_view text);
  void answer(std::uint64_t connection, Buffer message);

  Options options_;
  std::uint32_t epoch_ = 0;
  std::unique_ptr<StoreSeats> seats_;   // of the newest generation; null before the first
  std::unique_ptr<StoreSeats> former_;  // those before, which may be answering still
  std::map<std::uint64_t, Client> clients_;
  std::map<int, Rank> ranks_;  // the processes of the newest generation
};

}  // namespace hvd::bootstrap
