#pragma once
// The leader's part of the agreement. It runs on the engine of the lowest rank of a node. It connects three things: the
// node's board, the neighbours in the tree of nodes, and the agreement (agreement.hpp). It also reports stalls to
// the user.
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/task.hpp"
#include "control/control_link.hpp"
#include "runtime/agreement/agreement.hpp"
#include "runtime/agreement/stall.hpp"
#include "runtime/observers/observer.hpp"
#include "runtime/operations/rank_context.hpp"

namespace hvd::runtime {

class Leader final : private AgreementEffects {
 public:
  // `net` is null if the job has one node. `sets` are the process sets that exist from the start. `batches_in_flight`
  // tells the batches in flight on this rank.
  Leader(const RankContext& rank, connections::NetPeers* net, const std::vector<std::vector<Rank>>& sets,
         BatchesInFlight batches_in_flight);
  // the length before a frame (control/control_link)
  static constexpr std::int64_t bytes_before_a_frame = sizeof(std::uint32_t);

  // Connects the neighbours. Called until all are connected. Never blocks.
  Progress connect();
  // Looks once at everything that could have changed. Returns true if something had.
  bool step();
  // Called before the engine sleeps. From now on messages of the neighbours wake it.
  void arm();
  // True while the leader waits for room in the log, or for a slot that all ranks have forgotten. Nothing announces
  // these.
  bool has_to_look_again() const { return !unlogged_.empty() || agreement_.waits_for_readers(); }
  // Set on the root while ops in device memory wait for others that share their batch: step() must be called again
  // then.
  std::optional<Clock::time_point> linger_due() const {
    const Coordinator* coordinator = agreement_.coordinator();
    return coordinator == nullptr ? std::nullopt : coordinator->linger_due();
  }
  // Takes the request of a rank, perhaps this one, that has waited for a long time. One report names all operations
  // that wait.
  void on_stall(Rank from, const StallRequest& stall);
  // Called when the log has a stop point. If some ranks have not left their loops after the time of a stall warning
  // (HOROVOD_STALL_CHECK_TIME_SECONDS), the root reports which ranks. On other nodes this call does nothing.
  void await_acks();
  // Set on the root while a report is planned: report_what_is_due() must be called then.
  std::optional<Clock::time_point> report_due() const {
    if (!stall_on_device_ || (acks_due_ && *acks_due_ < stall_on_device_due_)) return acks_due_;
    return stall_on_device_due_;
  }
  void report_what_is_due(Clock::time_point now);
  // Returns why this rank must end: a stall that nothing else ends, or a lost neighbour. Empty if it need not end.
  const std::optional<Error>& verdict() const { return verdict_; }
  // Called when this rank leaves by agreement of all ranks. The neighbours need no reason.
  void leave();
  // Called when this rank ends because `lost` is lost. All other ranks must end too.
  void leave_because(Rank lost, std::string_view why);

 private:
  using Link = control::ControlLink;

  bool read_board();
  bool receive_from_neighbours();
  bool receive_from(Neighbour from, Link& link);
  void link_failed(Neighbour at, const Error& error);
  Link* link_to(Neighbour neighbour);
  std::vector<SlotId> slots_in_doubt() const;
  void report_stall(const std::vector<Missing>& missing);
  void on_device_stall(Rank from, const StallRequest& stall);
  void report_stall_on_device(StallOnDevice stall);
  bool append_waiting();
  void note_moved(SlotId slot);
  bool moved_lately(SlotId slot) const;

  // The functions of AgreementEffects:
  void append(ConstBytes record) override;
  void send(Neighbour to, ConstBytes frame) override;
  void given(SlotId slot) override {
    board_.given(slot);
    note_moved(slot);
  }
  void evicted(SlotId slot) override { board_.evicted(slot); }
  void scheduled(SlotId slot) override {
    board_.scheduled(slot);
    note_moved(slot);
  }
  void ballot_received(OpNameView name, Rank from) override;
  void stall_received(Rank from, const StallRequest& stall) override { on_stall(from, stall); }
  void ack_received(Rank from) override;
  void lost(Rank rank, std::string_view why) override;
  std::vector<Rank> missing_at(SlotId slot) const override;
  void answered(const std::vector<Missing>& missing) override;

  const World& world_;
  const Config& config_;
  const topology::Layout& layout_;
  control::NodeBoard& board_;
  const std::vector<Observer*>& observers_;
  Counters& counters_;
  const BatchesInFlight batches_in_flight_;
  std::unique_ptr<Link> parent_;
  std::vector<std::unique_ptr<Link>> children_;
  std::vector<Clock::time_point> moved_;           // for each slot: when it was given, or was last part of a batch
  std::optional<Clock::time_point> time_of_step_;  // read at most once in a step
  NodeAgreement agreement_;
  std::list<Buffer> unlogged_;
  Buffer scratch_;
  Clock::time_point last_report_;
  struct Stall {  // a StallRequest for which a report is being made
    double waited_s;
    Rank missing;
    OpName name;
    bool final;
  };
  std::optional<Stall> stall_;
  Clock::time_point asked_at_;
  // The rank at which a batch on a device is held up may tell it a moment after the others.
  std::optional<StallOnDevice> stall_on_device_;
  Clock::time_point stall_on_device_due_, last_report_on_device_;
  std::vector<bool> has_acked_;                // for each rank: true if it has left its loop; empty before there is a
                                               // stop point
  std::optional<Clock::time_point> acks_due_;  // the time of the next report; set while some ranks stay in their loops
  std::optional<Error> verdict_;
  std::optional<Rank> lost_;  // the rank that is named as the cause of this rank's end
};

}  // namespace hvd::runtime
