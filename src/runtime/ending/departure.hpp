#pragma once
// Decides how this rank's part in the job ends: facts go in, the next step comes out. A pure object of the engine's
// thread. It has no board and no links, and its clock is passed in, so every order of facts can be tested by a table.
//
//  1. Connecting: the links are made. A start that is refused ends the rank and is announced. A start that takes too
//     long is not announced, because the first rank to reach its own limit would be blamed. If the log ends meanwhile,
//     that is only remembered.
//  2. Running: a request to stop is sent to all ranks, once. If the log does not end within 10 s, this rank warns and
//     leaves alone.
//  3. The log has ended by agreement of all ranks. Everything that it scheduled is carried out, then this rank leaves
//     in order. From then on a loss is ignored; an earlier loss ends the rank as in 4. If this rank has asked to stop
//     and no batch begins or ends for 10 s, or for HOROVOD_PEER_TIMEOUT if that is longer, it warns and leaves alone.
//  4. A loss ends the rank. The loss that the leader knows counts first, then one that a rank of this node has
//     announced, then one that this rank has noticed itself.
//  5. A failed batch ends the rank. If a loss is known, the loss is the cause. If another rank's failure is the cause,
//     that rank has HOROVOD_PEER_TIMEOUT to announce it. If only this rank failed, for lack of memory or because its
//     device failed, it announces that itself, because the others wait for it.
//  6. Announcing: a rank that ends because of a loss announces the loss on the board before anything else. So its own
//     end is not taken for the cause.
//  7. Telling: the neighbours in the tree of nodes are told of the loss, or that this rank leaves in order.
//  8. Held back: another rank has stopped the job without a reason. That rank may have failed, and the launcher must
//     then see its end first; otherwise the launcher would take a rank that only failed as a result for the cause. So
//     this rank waits for 5 s, or until its own program asks to stop. Not so in an elastic job, which goes on after the
//     failure.
//  9. Ended: every handle and every later call gets the reason.
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
  // How long a peer's engine may take to answer. A program's answer has no limit.
  static constexpr auto answer_time = std::chrono::seconds(10);
  // The longest time from the stop by a failed rank, for example after an exception, to the end of that rank's process.
  static constexpr auto time_to_end = std::chrono::seconds(5);

  struct Settings {
    Rank me;
    std::chrono::milliseconds time_for_cause{};    // how long another rank may take to announce the cause:
                                                   // HOROVOD_PEER_TIMEOUT
    std::function<std::string(Rank)> describe;     // describes a rank, for messages
    std::function<std::string()> describe_leader;  // the leader of this node, and the state of its process
    std::function<std::string()> describe_work;    // what is left of the scheduled work
    std::function<Time()> now = Clock::now;
    bool is_elastic = false;  // the job survives the end of a rank: nobody is held back
  };
  explicit Departure(Settings settings) : settings_(std::move(settings)) {}

  // ---- facts; a fact may be stated several times, the first statement counts
  void connected();
  void start_failed(const Error& error);
  // Asks for the end of the job. If a reason is given, all ranks get it. Without a reason the program itself asks for
  // the end.
  void stop_requested(std::string_view reason);
  void log_ended(Rank by, std::string_view reason, std::string_view id = {});
  // A batch began or ended, most recently at this time.
  void work_moved(Time at) { work_moved_ = at; }
  // Everything that the log had scheduled has been carried out.
  void work_done() { is_work_done_ = true; }
  void batch_failed(const Error& error);
  // Call these functions only after the log has been read, because all ranks may have agreed to end before the loss.
  void leader_ends(const Error& verdict);
  void loss_announced(Rank lost, std::string_view why);
  void loss_noticed(Rank lost);
  // Something waits for an event that no rank will ever cause.
  void stalled(const Error& error);

  // ---- what to do; views are valid until the next call
  struct GoOn {};
  struct WaitUntil {  // go on, and call next() again at that time at the latest
    Time when;
  };
  struct SendRequest {
    std::string_view reason;
  };
  struct Warn {
    std::string_view text;
  };
  struct AnnounceLoss {  // announces the loss on the board of the node
    Rank lost;
    std::string_view why;
  };
  struct TellNeighbours {  // tell the neighbours in the tree that they must end too
    Rank lost;
    std::string_view why;
  };
  struct Leave {};  // this rank leaves in order: tell the board and the neighbours
  struct End {
    const Error& reason;
  };
  using Step = std::variant<GoOn, WaitUntil, SendRequest, Warn, AnnounceLoss, TellNeighbours, Leave, End>;
  // Returns the next step. It is called again until it returns GoOn or WaitUntil. Each other step must be carried out
  // before the next call.
  Step next();

  enum class Phase : std::uint8_t { connecting, running, warning, announcing, telling, held_back, ended };
  Phase phase() const { return phase_; }
  bool has_ended() const { return phase_ == Phase::ended; }
  bool has_log_ended() const { return agreed_.has_value(); }
  // True if all ranks had agreed to end and this rank has carried out everything that was scheduled before.
  bool is_in_order() const { return is_in_order_; }

 private:
  struct Loss {
    Rank rank;
    std::string why;
  };

  bool decide();
  void end(const Error& reason);
  bool is_cause_unknown() const;
  std::optional<Time> patience_ends() const;
  Step wait_in_time();
  Rank whose() const;

  Settings settings_;
  Phase phase_ = Phase::connecting;
  std::optional<Error> start_failure_;
  std::optional<std::string> request_;
  std::optional<Time> answer_due_;  // set when the request to stop was sent
  std::optional<Error> agreed_;     // set when the log has ended
  bool is_stopped_by_another_ = false;
  bool is_work_done_ = false;
  Time work_moved_{};
  std::optional<Error> failed_batch_;
  std::optional<Time> cause_due_;
  std::optional<Error> verdict_;
  std::optional<Loss> announced_, noticed_;
  std::optional<Error> stall_;
  std::optional<Error> reason_;
  Rank lost_;  // the rank that is named together with the reason
  bool is_in_order_ = false;
  std::optional<Time> held_until_;
};

}  // namespace hvd::runtime
