#include "launcher/job/rank_table.hpp"

#include <sys/wait.h>

#include <algorithm>

#include "launcher/wire/messages.hpp"

namespace hvd::launcher {

void RankTable::start(Rank rank, int process) {
  at(rank).process = process;
  ++started_;
}

void RankTable::end(Rank rank, int wait_status) {
  at(rank).ended = true;
  at(rank).wait_status = wait_status;
}

bool RankTable::have_all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const State& r) { return r.ended || r.is_left_out; });
}

bool RankTable::have_all_succeeded() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const State& r) { return r.is_left_out || (r.ended && r.wait_status == 0); });
}

bool RankTable::have_all_exited() const {
  const auto counts = [](const State& r) { return !r.is_left_out; };
  return std::any_of(ranks_.begin(), ranks_.end(), counts) &&
         std::all_of(ranks_.begin(), ranks_.end(),
                     [](const State& r) { return r.is_left_out || (r.ended && WIFEXITED(r.wait_status)); });
}

bool RankTable::want_another_run() const {
  return have_all_exited() && std::any_of(ranks_.begin(), ranks_.end(), [](const State& r) {
           return !r.is_left_out && wants_another_run(r.wait_status);
         });
}

int RankTable::first_exit_code() const {
  auto failed =
      std::find_if(ranks_.begin(), ranks_.end(), [](const State& r) { return !r.is_left_out && r.wait_status != 0; });
  return failed == ranks_.end() ? 0 : WEXITSTATUS(failed->wait_status);
}

}  // namespace hvd::launcher
