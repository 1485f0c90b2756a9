#pragma once
// Measures what chunks cost in each stage, before the first batch of a team, so that the size of the chunks fits the
// links. The ranks do it at the same place of the log and take the longest times of all of them, so they cut their
// batches alike.
//
// Shares of two lengths go through each stage, with nothing else under way. Of three times the first does not count.
// On the rail that is an allreduce of about a megabyte, in small pieces.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "collectives/hierarchical/on_device/estimate.hpp"
#include "collectives/hierarchical/on_device/slots.hpp"

namespace hvd::collectives::hierarchical {

// It is stepped like a task. Its work uses the slots' streams and memory, so the slots must be finished (Slots::finish)
// before it is destroyed.
class Measurement {
 public:
  // How many sequence numbers it uses, from `first` on.
  static constexpr std::uint64_t places = 64;

  // The slots have room for shares of the greatest length. The team has a clock.
  Measurement(Team& team, Team& rail, Slots& slots, Sequence first);

  Progress step();
  // After step() returned done.
  const StageCosts& costs() const { return costs_; }
  double seconds() const { return seconds_; }  // that it took here
  const Error& failure() const { return *failure_; }
  // While it is pending: the event on the device that it waits for.
  Event event() const { return awaited_; }
  Seat waiting_for() const;  // of the team

 private:
  enum Stage : std::uint8_t { pack, node, out, along_rail, back, stages };
  static constexpr std::array<std::int64_t, 2> share_bytes{64 << 10, 256 << 10};
  // A turn: one stage with one length. Before the turns the memory is filled, after them the ranks agree.
  static constexpr int times = 3, turns = times * static_cast<int>(share_bytes.size()) * stages;

  bool goes_on();
  void begin_turn();
  void end_turn();
  void fill();
  void copy(Stream stream, std::byte* to, const std::byte* from, std::int64_t count);
  void launch();
  void restart(Task& task, std::byte* from, std::int64_t count_from, std::byte* to, std::int64_t count_to,
               Sequence sequence);
  bool step_task();
  void agree();
  void derive_costs();
  void await(Stream stream);
  void refuse(const Error& error);

  bool is_measured() const { return turn_ == turns; }
  Stage stage() const { return static_cast<Stage>(turn_ % stages); }
  std::size_t length() const { return static_cast<std::size_t>(turn_ / stages) % share_bytes.size(); }
  std::int64_t share() const { return share_bytes[length()] / static_cast<std::int64_t>(sizeof(float)); }
  double& seconds_of(Stage stage, std::size_t length) { return seconds_of_[length * stages + stage]; }

  Team& team_;
  Team& rail_;
  Slots& slots_;
  devices::Device& device_;
  const Sequence first_;
  const bool is_over_host_, has_node_;
  Collective sum_;  // of floats
  std::byte *packed_ = nullptr, *unpacked_ = nullptr;
  std::unique_ptr<Task> scatter_, gather_, agreement_;
  std::array<std::unique_ptr<Task>, share_bytes.size()> rails_;

  int turn_ = -1;
  int left_ = 0;  // how often the present turn has a link to use yet
  std::uint64_t launched_ = 0;
  Task* on_link_ = nullptr;
  Event awaited_;
  double began_ = 0, turn_began_ = 0, seconds_ = 0;
  std::array<double, share_bytes.size() * stages> seconds_of_{};
  StageCosts costs_;
  bool has_begun_ = false, is_over_ = false;
  std::optional<Error> failure_;
};

}  // namespace hvd::collectives::hierarchical
