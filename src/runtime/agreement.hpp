#pragma once
// One node's part in the agreement of all nodes, which form a tree: what happens on the subtree goes up as it happens,
// the log comes down. A pure function object (no sockets, no threads, no time), so that a simulator can run thousands.
//
// 1. When all members of the node and of the subtrees below have arrived at a slot, the slot goes up as one number; at
//    the root it is reported to the coordinator. Ballots for a name go up as one, too, once all of the subtree have
//    voted; that somebody has voted goes up at once, since it may concern a slot at which others wait. Other requests
//    of ranks go up as they are, with the rank. Members are the ranks of the op's process set, less those of the world
//    that have joined; a subtree without members has no say.
// 2. The root's coordinator decides; its records are appended to the root's log and go down. Every node appends the
//    same records in the same order to its own log, so a record's place in the log means the same everywhere.
// 3. All that came together since the last flush() leaves as one frame per neighbour. Nothing new: no frame.
// 4. A frame says how many records its sender had seen, and so does a ballot. If the slot was evicted later, an arrival
//    at it is void: the ranks below have withdrawn it, or will when they read the eviction. An arrival is also void if
//    the slot's batch was decided without its sender, which had joined and had no say. A ballot from before the end of
//    the joins is void, since a rank that still waits then votes anew. A ballot of a joined rank is void if the name
//    was decided on without it: what the rank had submitted became part of that.
// 5. Every frame that goes up says how far the subtree has read. A frame goes up for this alone once so many slots wait
//    to be free again that the coordinator could run out of them.
// 6. A node that learns that a rank is lost tells all its neighbours, which tell theirs.
// 7. When the root wants to tell people who is missing at some slots and names, the question goes down and the answers
//    come up, put together by every node; nothing is counted for it in ordinary times.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "runtime/ballots.hpp"
#include "runtime/coordinator.hpp"
#include "runtime/schedule.hpp"
#include "runtime/subtrees.hpp"

namespace hvd::runtime {

// A neighbour in the tree: a child by its number, or the parent.
struct Neighbour {
  int child = -1;
  static constexpr Neighbour parent() { return {-1}; }
  bool is_parent() const { return child < 0; }
};

// The ranks that have not arrived at a slot, or not voted for a name without one.
struct Missing {
  SlotId slot{-1};
  OpName name;  // empty: it is the slot
  std::vector<Rank> ranks;
};

// What a node's agreement does to the world around it. Called from the methods of NodeAgreement only.
class AgreementEffects {
 public:
  virtual ~AgreementEffects() = default;
  virtual void append(ConstBytes record) = 0;  // to the log of my node
  virtual void send(Neighbour to, ConstBytes frame) = 0;
  virtual void given(SlotId slot) = 0;
  virtual void evicted(SlotId slot) = 0;                               // what the node's ranks had arrived at is void
  virtual void scheduled(SlotId slot) = 0;                             // they may arrive at it again
  virtual void heard_ballot(OpNameView name, Rank from) = 0;           // of my node, or one for a subtree
  virtual void heard_stall(Rank from, const StallRequest& stall) = 0;  // at the root
  virtual void heard_heeded(Rank from) = 0;                            // at the root
  virtual void lost(Rank rank, std::string_view why) = 0;
  virtual std::vector<Rank> missing_at(SlotId slot) const = 0;     // ranks of my node
  virtual void answered(const std::vector<Missing>& missing) = 0;  // at the root: of all nodes
};

class NodeAgreement {
 public:
  struct Settings {
    std::vector<Rank> ranks;  // of my node, by seat
    int children = 0;
    // The child below which a rank of another node is; -1: not below this node. Not called without children.
    std::function<int(Rank)> child_above;
    bool is_root = true;  // only the root has a coordinator
    int world_size = 0;
    std::vector<std::vector<Rank>> sets;  // process sets that exist from the start
    Coordinator::Settings coordinator;
    std::function<std::string(Rank)> describe;  // for messages
  };
  NodeAgreement(Settings settings, AgreementEffects& effects);

  // ---- from the own node
  void request(Seat from, ConstBytes request);
  void node_arrived(SlotId slot);
  void node_has_read(std::uint64_t records) { node_read_ = records; }
  void tell_lost(Rank rank, std::string_view why);

  // At the root: answered() is called once all nodes have said who is missing at these slots, and at all names that are
  // voted on. A new question replaces an old one.
  void ask_who_is_missing(const std::vector<SlotId>& slots);
  // The children that have not answered the last question, and what is known without them.
  std::vector<int> silent_children() const;
  std::vector<Missing> known_missing() const;

  // ---- from the tree
  Status receive(Neighbour from, ConstBytes frame);

  // Lets the root decide, and sends what has gathered. True if a frame was sent.
  bool flush(const BatchesInFlight& batches_in_flight);
  bool flush(int batches_in_flight);  // as many in every set

  // Something can go on only when ranks have read more of the log, which nothing announces.
  bool waits_for_readers() const;

  Coordinator* coordinator() const { return coordinator_.get(); }  // null but at the root
  std::uint64_t frames_sent() const { return frames_sent_; }
  // Some subtree (mine counts as one) has arrived at the slot, and others have not.
  bool is_partial(SlotId slot) const { return !at(slot).arrived.is_empty() && !at(slot).is_complete; }
  const ProcessSets& sets() const { return sets_; }

 private:
  struct Slot {
    std::uint64_t void_before = 0;  // number of records up to its last eviction or batch: an older arrival is void
    ProcessSetId set;
    bool is_transient = false;
    bool is_given = false;
    Subtrees arrived;
    bool is_complete = false;  // until its batch
    bool is_outgoing = false;  // complete, in the frame that is being made
  };
  // Who has a say about a process set.
  struct Electorate {
    std::vector<bool> voters;  // the ranks of my node by seat, then the children
    Subtrees subtrees;
  };
  struct Child {
    std::uint64_t read = 0;
    bool is_silent = false;  // owes an answer
  };

  Slot& at(SlotId slot) { return slots_[static_cast<std::size_t>(slot.value)]; }
  const Slot& at(SlotId slot) const { return slots_[static_cast<std::size_t>(slot.value)]; }
  Electorate electorate_of(const ProcessSet& set) const;
  void elect(const ProcessSet& set);
  void arrived(SlotId slot, int part);
  void complete_if_all_arrived(SlotId slot);
  void hear(Rank from, const Request& request, ConstBytes bytes);
  bool is_void(int voter, OpNameView name, std::uint64_t seen) const;
  bool has_a_say(int voter, ProcessSetId set) const {
    return electorates_.at(set).voters[static_cast<std::size_t>(voter)];
  }
  int voter_of(Neighbour child) const { return static_cast<int>(settings_.ranks.size()) + child.child; }
  void open(OpNameView name);
  void vote(int voter, OpNameView name, Opinions opinions);
  void voted(OpNameView name, const Opinions& opinions);
  void decide(OpNameView name, const Opinions& opinions);
  void pass_on_ballot(OpNameView name, const Opinions& opinions);
  void note_joins();
  void decided(const Record& record);
  void logged(const Record& record, ConstBytes bytes);
  void take_note(const Record& record);
  Status take_opened(Neighbour from, ByteReader& frame);
  Status take_ballot(Neighbour from, ByteReader& frame);
  Status take_request(ByteReader& frame);
  Status take_record(ByteReader& frame);
  void take_lost(Neighbour from, ByteReader& frame);
  void pass_on_lost(Neighbour except, Rank rank, std::string_view why);
  void ask_children(std::uint32_t question, const std::vector<SlotId>& slots, const std::vector<OpName>& names);
  Status take_question(ByteReader& frame);
  Status take_answer(Neighbour from, ByteReader& frame);
  void note_decided(OpNameView name);
  void answer_if_complete();
  void put(Neighbour to, const Buffer& frame);
  std::uint64_t read_by_subtree() const;
  bool flush_up();
  bool flush_down();

  Settings settings_;
  AgreementEffects& effects_;
  ProcessSets sets_;
  std::map<ProcessSetId, Electorate> electorates_;
  std::vector<bool> joined_;          // by rank; empty while nobody is
  bool joins_are_new_ = false;        // some have not been taken into account
  std::uint64_t joins_ended_at_ = 0;  // number of records up to the last end of joins
  // Names of the world that were decided on since somebody has joined: the number of records up to the last time.
  std::map<OpName, std::uint64_t, OrderOfNames> decided_at_;
  std::unique_ptr<Coordinator> coordinator_;
  Ballots ballots_;  // voters: the ranks of my node, then the children
  std::vector<Slot> slots_;
  std::vector<Child> children_;
  std::uint64_t records_ = 0;  // appended to my node's log
  std::uint64_t node_read_ = 0;
  std::uint64_t read_told_ = 0;       // up
  std::uint64_t slots_in_doubt_ = 0;  // given or evicted since I last reported how far we have read
  std::vector<SlotId> outgoing_;
  std::vector<OpName> opened_;  // the parent has not heard of these
  Buffer requests_up_, records_down_, frame_, scratch_;
  RecordStorage storage_;
  std::uint32_t question_ = 0;
  std::vector<Missing> missing_;  // the answer, as far as it is known
  std::uint64_t frames_sent_ = 0;
};

}  // namespace hvd::runtime
