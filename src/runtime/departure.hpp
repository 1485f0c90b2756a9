#pragma once
// How this rank's part in the job ends: facts in, the next step out. A pure object of the engine's thread that knows no
// board, no links and no clock but the one it is given, so that every order of facts is a table test.
//
//  1. Connecting: the links are made. A start that is refused ends the rank and is announced. One that takes too long
//     is not announced: the first rank to reach its own limit would be blamed. A log that has ended is only remembered.
//  2. Running: the wish to stop is sent, once. If the log does not end within 10 s, this rank warns and leaves alone.
//  3. The log has ended, by agreement of all. What it scheduled is carried out, then this rank leaves in order. From
//     then on no loss concerns it; one that comes before ends it as in 4.
//  4. A loss ends the rank: the one that the leader has heard of, else the one that a rank of this node has announced,
//     else the one that this rank has noticed itself.
//  5. A failed batch ends the rank, unless a loss is known: that is why it failed. If something else made it fail,
//     the rank that knows the cause has HOROVOD_PEER_TIMEOUT to announce it. What this rank alone could not do, for
//     want of memory or because its device failed, it announces: the others wait for it.
//  6. Announcing: a rank that ends because of a loss says so on the board before anything else, so that its own end is
//     not taken for the cause.
//  7. Telling: the neighbours in the tree of nodes are told, of the loss or that this rank leaves in order.
//  8. Held back: another rank has stopped the job and gave no reason. It may have failed, and then the launcher must
//     see its end first, or it would take a rank that failed because of it for the cause. So this rank waits for 5 s,
//     or until its own program wishes to stop.
//  9. Ended: the reason is what every handle and every later call gets.
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/deadline.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"

namespace hvd::runtime {

class Departure {
 public:
  using Time = Clock::time_point;
  // How long a peer's engine may take to answer; there is no limit for a program.
  static constexpr auto answer_time = std::chrono::seconds(10);
  // The time from the stop of a failed rank (after an exception, say) to the end of its process.
  static constexpr auto time_to_end = std::chrono::seconds(5);

  struct Settings {
    Rank me;
    std::chrono::milliseconds time_for_cause{};    // HOROVOD_PEER_TIMEOUT
    std::function<std::string(Rank)> describe;     // for messages
    std::function<std::string()> describe_leader;  // the leader of this node, and what its process does
    std::function<Time()> now = Clock::now;
  };
  explicit Departure(Settings settings) : settings_(std::move(settings)) {}

  // ---- facts; each may be stated again, and the first statement counts
  void connected();
  void start_failed(const Error& error);
  // A reason is told to all; no reason means that the program wished it.
  void stop_wished(std::string_view reason);
  void log_ended(Rank by, std::string_view reason);
  // Everything that the log had scheduled when it ended is carried out.
  void work_done() { is_work_done_ = true; }
  void batch_failed(const Error& error);
  // A loss counts only after the log has been read: all may have agreed to end before it.
  void leader_ends(const Error& verdict);
  void loss_announced(Rank lost, std::string_view why);
  void loss_noticed(Rank lost);
  // Something waits that no rank will ever end.
  void stalled(const Error& error);

  // ---- what to do; views are valid until the next call
  struct GoOn {};
  struct WaitUntil {  // go on, and ask again by then
    Time when;
  };
  struct SendWish {
    std::string_view reason;
  };
  struct Warn {
    std::string_view text;
  };
  struct AnnounceLoss {  // on the board
    Rank lost;
    std::string_view why;
  };
  struct TellNeighbours {  // that they must end, too
    Rank lost;
    std::string_view why;
  };
  struct Leave {};  // in order: the board, and the neighbours
  struct End {
    const Error& reason;
  };
  using Step = std::variant<GoOn, WaitUntil, SendWish, Warn, AnnounceLoss, TellNeighbours, Leave, End>;
  // Called until it is GoOn or WaitUntil; each other step is to be carried out before the next call.
  Step next();

  enum class Phase : std::uint8_t { connecting, running, warning, announcing, telling, held_back, ended };
  Phase phase() const { return phase_; }
  bool has_ended() const { return phase_ == Phase::ended; }
  bool has_log_ended() const { return agreed_.has_value(); }
  // All ranks had agreed to end, and this one has carried out what was scheduled before.
  bool is_in_order() const { return is_in_order_; }

 private:
  struct Loss {
    Rank rank;
    std::string why;
  };

  bool decide();
  void end(const Error& reason);
  bool is_cause_unknown() const;
  Step wait_in_time();
  Rank whose() const;

  Settings settings_;
  Phase phase_ = Phase::connecting;
  std::optional<Error> start_failure_;
  std::optional<std::string> wish_;
  std::optional<Time> answer_due_;  // once the wish is sent
  std::optional<Error> agreed_;     // the log has ended
  bool is_stopped_by_another_ = false;
  bool is_work_done_ = false;
  std::optional<Error> failed_batch_;
  std::optional<Time> cause_due_;
  std::optional<Error> verdict_;
  std::optional<Loss> announced_, noticed_;
  std::optional<Error> stall_;
  std::optional<Error> reason_;
  Rank lost_;  // the rank that is named with the reason when others are told
  bool is_in_order_ = false;
  std::optional<Time> held_until_;
};

}  // namespace hvd::runtime
