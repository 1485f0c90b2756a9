#pragma once
// One node's part in the agreement of all nodes. The nodes form a tree: events of a subtree travel up, the log travels
// down. A pure function object (no sockets, no threads, no time), so that a simulator can run thousands of them.
//
// 1. When all members of the node and of the subtrees below have arrived at a slot, one number of that slot goes up.
//    The root reports the slot to its coordinator. The ballots for a name also go up as one ballot, when all of the
//    subtree have voted. The first vote for a name is announced upwards immediately, because it may concern a slot at
//    which others wait. Other requests of ranks go up unchanged, with the rank's number. Members are the ranks of the
//    op's process set, without those ranks of the world that have joined. A subtree without members has no say.
// 2. The root's coordinator decides. Its records are appended to the root's log and go down. Every node appends the
//    same records in the same order to its own log, so a position in the log means the same on all nodes.
// 3. Everything new since the last flush() leaves as one frame per neighbour. If nothing is new, no frame is sent.
// 4. A frame says how many records its sender had seen, and so does a ballot. An arrival is void if its slot was
//    evicted after those records: the ranks below have withdrawn the arrival, or will do so when they read the
//    eviction. An arrival is also void if the slot's batch was decided without its sender, because the sender had
//    joined and had no say. A ballot that was sent before the end of the joins is void: a rank that still waits votes
//    again. A ballot of a joined rank is void if the name was decided without the rank: the rank's submission became
//    part of that decision.
// 5. Every frame that goes up says how far the subtree has read the log. If many slots wait to be free again and the
//    coordinator could run out of slots, a frame goes up only to say that.
// 6. A node that learns that a rank is lost tells all its neighbours, and they tell theirs.
// 7. When the root wants to report which ranks are missing at some slots and names, the question goes down the tree.
//    The answers come up, and every node combines those from below. In ordinary times nothing is counted for this.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "runtime/agreement/agreement_frames.hpp"
#include "runtime/agreement/arrivals.hpp"
#include "runtime/agreement/ballots.hpp"
#include "runtime/agreement/coordinator.hpp"
#include "runtime/agreement/electorates.hpp"
#include "runtime/agreement/missing_ranks.hpp"
#include "runtime/agreement/news_for_parent.hpp"
#include "runtime/agreement/schedule.hpp"

namespace hvd::runtime {

// A neighbour in the tree: the child with this number, or the parent.
struct Neighbour {
  int child = -1;
  static constexpr Neighbour parent() { return {-1}; }
  bool is_parent() const { return child < 0; }
};

// The actions that a node's agreement asks of its owner. Only methods of NodeAgreement call these functions.
class AgreementEffects {
 public:
  virtual ~AgreementEffects() = default;
  virtual void append(ConstBytes record) = 0;  // appends to the log of this node
  virtual void send(Neighbour to, ConstBytes frame) = 0;
  virtual void given(SlotId slot) = 0;
  virtual void evicted(SlotId slot) = 0;    // all arrivals at the slot on this node are void
  virtual void scheduled(SlotId slot) = 0;  // the ranks may arrive at it again
  // a ballot has come from a rank of this node, or from a whole subtree
  virtual void ballot_received(OpNameView name, Rank from) = 0;
  virtual void stall_received(Rank from, const StallRequest& stall) = 0;  // called at the root
  virtual void ack_received(Rank from) = 0;                               // called at the root
  virtual void lost(Rank rank, std::string_view why) = 0;
  virtual std::vector<Rank> missing_at(SlotId slot) const = 0;     // the ranks of this node that are missing
  virtual void answered(const std::vector<Missing>& missing) = 0;  // called at the root, with all nodes' answers
};

class NodeAgreement {
 public:
  struct Settings {
    std::vector<Rank> ranks;  // ranks of this node, by seat
    int children = 0;
    // Returns the child whose subtree has a rank of another node; -1 if no child has it. Not called without children.
    std::function<int(Rank)> child_above;
    bool is_root = true;  // only the root has a coordinator
    int world_size = 0;
    std::vector<std::vector<Rank>> sets;  // process sets that exist from the start
    Coordinator::Settings coordinator;
    std::function<std::string(Rank)> describe;  // describes a rank, for messages
  };
  NodeAgreement(Settings settings, AgreementEffects& effects);

  // ---- from the own node
  void request(Seat from, ConstBytes request);
  void node_arrived(SlotId slot);
  void node_has_read(std::uint64_t records) { node_read_ = records; }
  // Whether a program of this node waits for an operation in device memory that is in no batch yet.
  void set_node_waits(bool waits);
  void announce_loss(Rank rank, std::string_view why);

  // Only at the root: asks all nodes which ranks are missing at these slots, and at all names that are being voted on.
  // answered() is called when all nodes have answered. A new question replaces an older one.
  void ask_who_is_missing(const std::vector<SlotId>& slots);
  // The children that have not answered the last question, and the missing ranks that the others have reported.
  std::vector<int> silent_children() const { return missing_.silent_children(); }
  std::vector<Missing> known_missing() const { return missing_.known(); }

  // ---- from the tree
  Status receive(Neighbour from, ConstBytes frame);

  // At the root decides; then sends everything new. Returns true if a frame was sent.
  bool flush(const BatchesInFlight& batches_in_flight);
  bool flush(int batches_in_flight);  // decides as if every process set had this number of batches in flight

  // True if something can go on only after ranks have read more of the log. Nothing announces that they have read it.
  bool waits_for_readers() const;

  Coordinator* coordinator() const { return coordinator_.get(); }  // null on all nodes but the root
  std::uint64_t frames_sent() const { return frames_sent_; }
  // True if a subtree (this node counts as one) has arrived at the slot and others have not.
  bool is_partial(SlotId slot) const { return arrivals_.is_partial(slot); }
  const ProcessSets& sets() const { return sets_; }

 private:
  struct Child {
    std::uint64_t read = 0;
    bool waits = false;  // a program of the child's subtree waits
  };
  struct Sender {  // of the frame that is being read
    Neighbour node;
    std::uint64_t seen = 0;  // how many records it had seen
  };

  void elect(const ProcessSet& set);
  void arrived(SlotId slot, int part);
  void pass_on_if_complete(SlotId slot);
  void handle(Rank from, const Request& request, ConstBytes bytes);
  bool is_void(int voter, OpNameView name, std::uint64_t seen) const;
  bool has_a_say(int voter, ProcessSetId set) const {
    return electorates_.at(set).voters[static_cast<std::size_t>(voter)];
  }
  int voter_of(Neighbour child) const { return static_cast<int>(settings_.ranks.size()) + child.child; }
  void open(OpNameView name);
  void vote(int voter, OpNameView name, Opinions opinions);
  void voted(OpNameView name, const Opinions& opinions);
  void decide(OpNameView name, const Opinions& opinions);
  void note_joins();
  void decided(const Record& record);
  void logged(const Record& record, ConstBytes bytes);
  void take_note(const Record& record);
  Status take(Sender& from, const PositionItem& item);
  Status take(const Sender& from, const ArrivalsItem& item);
  Status take(const Sender& from, const WaitingItem& item);
  void pass_on_waiting();
  Status take(const Sender& from, const OpenedItem& item);
  Status take(const Sender& from, BallotItem& item);
  Status take(const Sender&, const RequestItem& item);
  Status take(const Sender&, const RecordItem& item);
  Status take(const Sender& from, const LostItem& item);
  Status take(const Sender&, const QuestionItem& item);
  Status take(const Sender& from, const AnswerItem& item);
  bool have_all(std::span<const SlotId> slots) const;
  void pass_on_lost(Neighbour except, Rank rank, std::string_view why);
  void ask_children(const QuestionItem& question);
  void note_decided(OpNameView name);
  void answer_if_complete();
  void put(Neighbour to, const Buffer& frame);
  std::uint64_t read_by_subtree() const;
  bool flush_up();
  bool flush_down();

  Settings settings_;
  AgreementEffects& effects_;
  ProcessSets sets_;
  Electorates electorates_;
  bool joins_are_new_ = false;        // some joins have not been taken into account
  std::uint64_t joins_ended_at_ = 0;  // number of records up to the last time that all joins ended
  // For each name of the world that was decided since a rank joined: the number of records up to its last decision.
  std::map<OpName, std::uint64_t, OrderOfNames> decided_at_;
  std::unique_ptr<Coordinator> coordinator_;
  Ballots ballots_;  // its voters: the ranks of this node, then the children
  Arrivals arrivals_;
  std::vector<Child> children_;
  std::uint64_t records_ = 0;  // number of records that were appended to this node's log
  std::uint64_t node_read_ = 0;
  bool node_waits_ = false, subtree_waits_ = false;
  NewsForParent news_;
  Buffer records_down_, frame_, scratch_;
  RecordStorage storage_;
  MissingRanks missing_;
  std::uint64_t frames_sent_ = 0;
};

}  // namespace hvd::runtime
