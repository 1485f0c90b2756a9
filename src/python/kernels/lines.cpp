#include "python/kernels/lines.hpp"

#include <algorithm>

#include "python/kernels/entered.hpp"

namespace hvd::kernels {

namespace {

bool is_first_everywhere(const Turn& turn) {
  return std::ranges::all_of(turn.lines, [&](const Line* line) { return line->turns.front() == &turn; });
}

}  // namespace

bool Lines::join(Turn& turn) {
  std::lock_guard lock(mutex_);
  if (lines_.size() + turn.use->members.size() > most) forget_idle();
  for (const Member& member : turn.use->members) {
    std::unique_ptr<Line>& line =
        lines_[std::to_string(turn.generation) + ' ' + std::to_string(turn.use->process_set) + ' ' + member.name];
    if (!line) line = std::make_unique<Line>(turn.generation);
    line->turns.push_back(&turn);
    turn.lines.push_back(line.get());
  }
  return is_first_everywhere(turn);
}

std::vector<Turn*> Lines::leave(const Turn& turn) {
  std::vector<Turn*> next;
  std::lock_guard lock(mutex_);
  for (Line* line : turn.lines) line->turns.pop_front();
  for (const Line* line : turn.lines) {
    if (line->turns.empty()) continue;
    Turn* first = line->turns.front();
    if (std::ranges::find(next, first) == next.end() && is_first_everywhere(*first)) next.push_back(first);
  }
  return next;
}

// Operations of an earlier runtime went with it.
void Lines::forget_idle() {
  const Entered entered;
  std::erase_if(lines_, [&](const auto& entry) {
    const Line& line = *entry.second;
    if (!line.turns.empty()) return false;
    if (entered && line.generation == entered.generation()) hvd_op_release(entered.runtime(), line.op);
    return true;
  });
}

std::size_t Lines::size() {
  std::lock_guard lock(mutex_);
  return lines_.size();
}

// Never destroyed: threads of frameworks may outlive the static objects.
Lines& lines() {
  static auto* all = new Lines;
  return *all;
}

}  // namespace hvd::kernels
