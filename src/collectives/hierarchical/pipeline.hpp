#pragma once
// The order in which the stages of a hierarchical collective run. Several chunks are under way at the same time, so
// that the nodes and the network work at the same time.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/task.hpp"
#include "collectives/algorithm.hpp"

namespace hvd::collectives::hierarchical {

// First and last are done on the node, middle is done on the rail.
enum class Stage : std::uint8_t { first, middle, last };

// A stage of a chunk that is to be started next.
struct Turn {
  Stage stage;
  std::int64_t chunk;
  std::size_t track;  // no other chunk uses it until this chunk's last stage is done
  Sequence place;     // the sequence number with which the stage's task is restarted
};

// The sequence number of a stage's task contains the batch's number. Its low bits are the task's place in the order of
// its link.
constexpr Sequence sequence_of_place(Sequence batch, std::int64_t place) {
  constexpr int bits_for_place = 24;
  return Sequence{(batch.value << bits_for_place) + static_cast<std::uint64_t>(place)};
}

// On all ranks the tasks of a link are restarted in the same order, even if they become ready in another order:
//  1. On the node: first the first stages of as many chunks as there are tracks. Then alternately the last stage of the
//     next chunk, and the first stage of the chunk that takes over its track. Then the remaining last stages.
//  2. On the rail: in the order of the chunks.
// A task is planned when it is first needed, so tasks are also planned in the same order on all ranks.
class Pipeline {
 public:
  static constexpr std::size_t track_count = 4;

  // Uses the team, which must outlive this object.
  explicit Pipeline(const Team& team) : team_(team) {}

  void restart(std::int64_t chunks, Sequence sequence);
  // Steps the running stages until another stage may start, and returns that stage. Returns nothing while all stages
  // wait, and after the end. The caller answers every turn by started() before the next call.
  std::optional<Turn> next();
  // Called when the task of this turn has been restarted. A null task means that this rank has no part in this stage.
  void started(const Turn& turn, Task* task);

  Progress progress() const;
  const Error& failure() const { return *failure_; }
  Seat waiting_for() const;

 private:
  enum class State : std::uint8_t { waiting, running, done };
  struct StageOfTrack {
    State state = State::waiting;
    Task* task = nullptr;
  };
  struct Track {
    std::int64_t chunk = -1;  // the chunk that the track works on; -1: none yet
    std::array<StageOfTrack, 3> stages;
    StageOfTrack& at(Stage stage) { return stages[static_cast<std::size_t>(stage)]; }
  };

  Track& track_of(std::int64_t chunk) { return tracks_[static_cast<std::size_t>(chunk) % track_count]; }
  std::int64_t first_ones() const;
  std::pair<Stage, std::int64_t> on_node(std::int64_t place) const;
  std::optional<Turn> next_on_node();
  std::optional<Turn> next_on_rail();
  Turn turn_of(Stage stage, std::int64_t chunk, std::int64_t place) const;
  bool step_running();
  void set_done(Track& track, Stage stage);

  const Team& team_;
  Sequence sequence_;
  std::int64_t chunks_ = 0;
  std::int64_t node_turns_ = 0, rail_turns_ = 0, finished_ = 0;
  std::array<Track, track_count> tracks_;
  std::optional<Error> failure_;
};

}  // namespace hvd::collectives::hierarchical
