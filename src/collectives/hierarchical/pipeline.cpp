#include "collectives/hierarchical/pipeline.hpp"

#include <algorithm>

namespace hvd::collectives::hierarchical {

namespace {

constexpr std::array stages{Stage::first, Stage::middle, Stage::last};

}  // namespace

void Pipeline::restart(std::int64_t chunks, Sequence sequence) {
  sequence_ = sequence;
  chunks_ = chunks;
  node_turns_ = rail_turns_ = finished_ = 0;
  for (Track& track : tracks_) track = Track{};
}

std::optional<Turn> Pipeline::next() {
  while (!failure_) {
    if (auto turn = next_on_rail()) return turn;
    if (auto turn = next_on_node()) return turn;
    if (!step_running()) break;
  }
  return std::nullopt;
}

std::int64_t Pipeline::first_ones() const {
  return std::min(chunks_, static_cast<std::int64_t>(track_count));
}

// Returns the stage and the chunk at this position in the node's order.
std::pair<Stage, std::int64_t> Pipeline::on_node(std::int64_t place) const {
  if (place < first_ones()) return {Stage::first, place};
  std::int64_t turn = place - first_ones(), takeovers = chunks_ - first_ones();
  if (turn >= 2 * takeovers) return {Stage::last, turn - takeovers};
  if (turn % 2 == 0) return {Stage::last, turn / 2};
  return {Stage::first, first_ones() + turn / 2};
}

std::optional<Turn> Pipeline::next_on_node() {
  if (node_turns_ == 2 * chunks_) return std::nullopt;
  auto [stage, chunk] = on_node(node_turns_);
  Track& track = track_of(chunk);
  if (stage == Stage::last && track.at(Stage::middle).state != State::done) return std::nullopt;
  if (stage == Stage::first) {
    if (track.chunk >= 0 && track.at(Stage::last).state != State::done) return std::nullopt;
    track = Track{};
    track.chunk = chunk;
  }
  return turn_of(stage, chunk, node_turns_);
}

std::optional<Turn> Pipeline::next_on_rail() {
  if (rail_turns_ == chunks_) return std::nullopt;
  Track& track = track_of(rail_turns_);
  if (track.chunk != rail_turns_ || track.at(Stage::first).state != State::done) return std::nullopt;
  return turn_of(Stage::middle, rail_turns_, rail_turns_);
}

Turn Pipeline::turn_of(Stage stage, std::int64_t chunk, std::int64_t place) const {
  return {stage, chunk, static_cast<std::size_t>(chunk) % track_count, sequence_of_place(sequence_, place)};
}

void Pipeline::started(const Turn& turn, Task* task) {
  ++(turn.stage == Stage::middle ? rail_turns_ : node_turns_);
  Track& track = track_of(turn.chunk);
  track.at(turn.stage) = {State::running, task};
  if (task == nullptr) set_done(track, turn.stage);
}

void Pipeline::set_done(Track& track, Stage stage) {
  track.at(stage).state = State::done;
  if (stage == Stage::last) ++finished_;
}

// Returns true if a stage has become done.
bool Pipeline::step_running() {
  bool moves = false;
  for (Track& track : tracks_)
    for (Stage stage : stages) {
      StageOfTrack& running = track.at(stage);
      if (running.state != State::running) continue;
      Progress progress = running.task->step();
      if (progress == Progress::failed) {
        failure_ = running.task->failure();
        return false;
      }
      if (progress != Progress::done) continue;
      set_done(track, stage);
      moves = true;
    }
  return moves;
}

Progress Pipeline::progress() const {
  if (failure_) return Progress::failed;
  return finished_ == chunks_ ? Progress::done : Progress::pending;
}

Seat Pipeline::waiting_for() const {
  for (const Track& track : tracks_)
    for (Stage stage : stages) {
      const StageOfTrack& running = track.stages[static_cast<std::size_t>(stage)];
      if (running.state != State::running) continue;
      Seat seat = running.task->waiting_for();
      const Team& stage_team = stage == Stage::middle ? *team_.rail : *team_.node;
      return seat.value < 0 ? seat : team_.group.seat_of(stage_team.group.rank_at(seat));
    }
  return Seat{-1};
}

}  // namespace hvd::collectives::hierarchical
