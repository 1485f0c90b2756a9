#pragma once
// One node's part in the agreement of all nodes, which form a tree: what happens on the subtree goes up as it happens,
// the log comes down. A pure function object (no sockets, no threads, no time), so that a simulator can run thousands.
//
//  1. A slot at which all ranks of the node and of the subtrees below have arrived goes up as one number; at the root
//     the coordinator hears of it. Ballots for a name go up as one, too, once all of the subtree have voted; that
//     somebody has voted goes up at once, since it may concern a slot at which others wait. What else ranks ask for
//     goes up as it is, with the rank.
//  2. The root's coordinator decides; its records are appended to the root's log and go down. Every node appends the
//     same records in the same order to its own log, so a record's place in the log means the same everywhere.
//  3. All that came together since the last flush() leaves as one frame per neighbour. Nothing new: no frame.
//  4. A frame says how many records its sender had seen. An arrival at a slot that was evicted later than that is
//     void: the ranks below have withdrawn it, or will when they read the eviction.
//  5. How far a subtree has read travels with every frame up, and by itself once so many slots wait for it to be free
//     again that the coordinator could run out of them.
//  6. Who learns that a rank is lost tells all neighbours, who tell theirs.
//  7. When the root wants to tell people who is missing at some slots and names, the question goes down and the answers
//     come up, put together by every node; nothing is counted for it in ordinary times.
#include <cstdint>
#include <functional>
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
  std::string name;  // empty: it is the slot
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
  virtual void heard_ballot(std::string_view name, Rank from) = 0;     // of my node, or one for a subtree
  virtual void heard_stall(Rank from, const StallRequest& stall) = 0;  // at the root
  virtual void lost(Rank rank, std::string_view why) = 0;
  virtual std::vector<Rank> missing_at(SlotId slot) const = 0;     // of my node
  virtual void answered(const std::vector<Missing>& missing) = 0;  // at the root: of all nodes
};

class NodeAgreement {
 public:
  struct Settings {
    std::vector<Rank> ranks;  // of my node, by seat
    int children = 0;
    bool is_root = true;  // only the root has a coordinator
    Coordinator::Settings coordinator;
    std::function<std::string(Rank)> describe;  // for messages
  };
  NodeAgreement(Settings settings, AgreementEffects& effects);

  // ---- from the own node
  void request(Seat from, ConstBytes request);
  void node_arrived(SlotId slot);
  void node_has_read(std::uint64_t records) { node_read_ = records; }
  void tell_lost(Rank rank, std::string_view why);

  // At the root: answered() comes once all nodes have said who is missing at these slots and at all names that are
  // voted on. A new question replaces an old one.
  void ask_who_is_missing(const std::vector<SlotId>& slots);
  // The children that have not answered the last question, and what is known without them.
  std::vector<int> silent_children() const;
  std::vector<Missing> known_missing() const;

  // ---- from the tree
  Status receive(Neighbour from, ConstBytes frame);

  // Lets the root decide, and sends what has gathered. True if a frame was sent.
  bool flush(int batches_in_flight);

  // Something can go on only when ranks have read more of the log, which nobody announces.
  bool waits_for_readers() const;

  Coordinator* coordinator() const { return coordinator_.get(); }  // null but at the root
  std::uint64_t frames_sent() const { return frames_sent_; }
  // Arrivals of subtrees (mine included) at a slot that is not complete here.
  int arrivals_at(SlotId slot) const { return at(slot).arrivals; }

 private:
  struct Slot {
    std::uint64_t evicted_at = 0;  // number of records up to its last eviction
    int arrivals = 0;              // subtrees that are complete
    bool is_outgoing = false;      // complete, in the frame that is being made
  };
  struct Child {
    std::uint64_t read = 0;
    bool is_silent = false;  // owes an answer
  };

  Slot& at(SlotId slot) { return slots_[static_cast<std::size_t>(slot.value)]; }
  const Slot& at(SlotId slot) const { return slots_[static_cast<std::size_t>(slot.value)]; }
  void arrived(SlotId slot);
  void hear(Rank from, const Request& request, ConstBytes bytes);
  void open(std::string_view name);
  void vote(int voter, std::string_view name, Opinions opinions);
  void decide(const std::string& name, const Opinions& opinions);
  void pass_on_ballot(std::string_view name, const Opinions& opinions);
  void decided(const Record& record);
  void logged(const Record& record, ConstBytes bytes);
  Status take_opened(ByteReader& frame);
  Status take_ballot(Neighbour from, ByteReader& frame);
  Status take_request(ByteReader& frame);
  Status take_record(ByteReader& frame);
  void take_lost(Neighbour from, ByteReader& frame);
  void pass_on_lost(Neighbour except, Rank rank, std::string_view why);
  void ask_children(std::uint32_t question, const std::vector<SlotId>& slots, const std::vector<std::string>& names);
  Status take_question(ByteReader& frame);
  Status take_answer(Neighbour from, ByteReader& frame);
  void answer_if_complete();
  void put(Neighbour to, const Buffer& frame);
  std::uint64_t read_by_subtree() const;
  bool flush_up();
  bool flush_down();

  Settings settings_;
  AgreementEffects& effects_;
  std::unique_ptr<Coordinator> coordinator_;
  Ballots ballots_;  // voters: the ranks of my node, then the children
  std::vector<Slot> slots_;
  std::vector<Child> children_;
  std::uint64_t records_ = 0;  // appended to my node's log
  std::uint64_t node_read_ = 0;
  std::uint64_t read_told_ = 0;       // up
  std::uint64_t slots_in_doubt_ = 0;  // given or evicted since I last told how far we have read
  std::vector<SlotId> outgoing_;
  std::vector<std::string> opened_;  // names of which the parent has not heard
  Buffer requests_up_, records_down_, frame_, scratch_;
  std::vector<SlotId> batch_slots_;
  std::uint32_t question_ = 0;
  std::vector<Missing> missing_;  // the answer, as far as it is known
  std::uint64_t frames_sent_ = 0;
};

}  // namespace hvd::runtime
