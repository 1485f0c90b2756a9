// Random programs on late devices, compared with a naive model: verbs, sets, streams, groups, drops, joins and deaths
// in any mixture, on one to four nodes, a third of them with the hierarchy on devices. HVD_RANDOM_PROGRAMS="FIRST LAST"
// runs the programs with these seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "device_rig.hpp"
#include "fixtures/device_double/findings.hpp"
#include "random_program.hpp"
#include "sanitized.hpp"

namespace hvd::runtime {
namespace {

using namespace rigs;

// One rank that carries a program out.
class Player {
 public:
  Player(const Program& program, std::uint64_t seed, DeviceRig& rig, int rank)
      : program_(program),
        rig_(rig),
        rank_(rank),
        dice_(seed * 1000 + static_cast<std::uint64_t>(rank)),
        where_("program " + std::to_string(seed) + ", rank " + std::to_string(rank) + ": "),
        second_(rig.device->stream().value()) {
    if (!program.has_separate_thread) rig.program.reset();
    numbers_.push_back(0);
    for (std::size_t i = 1; i < program.sets.size(); ++i) {
      std::vector<Rank> ranks;
      for (int member : program.sets[i]) ranks.emplace_back(member);
      auto number = rig.runtime->add_process_set(ranks);
      if (number) numbers_.push_back(*number);
      else fail(number.error().message);
    }
  }
  ~Player() {
    rig_.runtime->stop();
    if (rig_.program) rig_.program->is_told();  // what the engine saw before it ended
    rig_.runtime.reset();
    // Work that was aborted after a loss still ends on its own stream, which is not ordered with the program's.
    EXPECT_TRUE(rig_.device->engine().sleep_until_idle(0));
    left_.clear();
    finish_streams();
  }

  void play() {
    for (std::size_t number = 0; number < program_.rounds.size() && !is_over_; ++number) {
      is_last_ = number + 1 == program_.rounds.size();
      // A rank that joins ends what others have not started and it has not waited for, in whichever round that was.
      const bool has_joins = !program_.rounds[number].joined.empty();
      if (may_fail() || has_joins) run({"all are here", Verb::barrier, {}, nullptr, nullptr, false, DeviceKind::host});
      play(program_.rounds[number], number);
    }
    // A rank that has not waited for everything may not end the job before all have started the same.
    if (!program_.victim) run({"all have started", Verb::barrier, {}, nullptr, nullptr, false, DeviceKind::host});
  }

 private:
  struct Use {
    const Slot* slot = nullptr;
    Stream stream;
    devices::Memory in, out;   // on the device
    Values host_in, host_out;  // on the host
    const void* input = nullptr;
    void* output = nullptr;
    std::size_t count = 0;  // elements of the input
    std::vector<std::int64_t> splits;
  };
  struct Named {
    const Slot* slot;
    std::string name;
  };
  // The uses of one handle.
  struct Started {
    Handles::Number handle = 0;
    std::vector<Use> uses;
  };

  void play(const Program::Round& round, std::size_t number) {
    std::vector<Named> order;
    for (std::size_t i = 0; i < round.used.size(); ++i) {
      const Slot& slot = program_.slots[static_cast<std::size_t>(round.used[i])];
      if (!holds(round.joined, rank_) && holds(members(slot), rank_))
        order.push_back({&slot, slot.name + "." + std::to_string(round.names[i])});
    }
    std::ranges::shuffle(order, dice_.source());
    is_held_ = dice_.one_in(3);
    if (is_held_) rig_.device->hold(rig_.stream);
    std::vector<Started> all;
    for (std::size_t begin = 0; begin < order.size() && !is_over_;) {
      std::size_t end = begin + 1;
      while (end < order.size() && dice_.one_in(2) && may_share_a_handle(*order[begin].slot, *order[end].slot)) ++end;
      all.push_back(
          start({order.begin() + static_cast<std::ptrdiff_t>(begin), order.begin() + static_cast<std::ptrdiff_t>(end)},
                number));
      begin = end;
    }
    if (is_last_ && program_.victim && *program_.victim != rank_) rig_.runtime->report_lost(Rank{*program_.victim});
    if (is_held_) rig_.device->let_go(rig_.stream);
    std::ranges::shuffle(all, dice_.source());
    for (Started& started : all) end(started, number, round);
    if (!round.joined.empty() && !is_over_) join();
  }
  const std::vector<int>& members(const Slot& slot) const { return program_.sets[static_cast<std::size_t>(slot.set)]; }
  static bool may_share_a_handle(const Slot& a, const Slot& b) {
    return a.verb == Verb::allreduce && b.verb == Verb::allreduce && a.set == b.set &&
           a.is_on_device == b.is_on_device && a.has_stream == b.has_stream;
  }

  Started start(const std::vector<Named>& slots, std::size_t round) {
    Started started;
    std::vector<Start> starts;
    started.uses.resize(slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      fill(started.uses[i], *slots[i].slot, round);
      auto use = start_of(started.uses[i], slots[i].name);
      if (!use) return fail(use.error().message), std::move(started);
      starts.push_back(*use);
    }
    auto handle = rig_.runtime->submit(starts);
    if (handle) started.handle = *handle;
    else if (!may_fail()) fail(handle.error().message);
    return started;
  }
  void fill(Use& use, const Slot& slot, std::size_t round) {
    use.slot = &slot;
    // A stream that is held never gets to what a use without a stream needs.
    use.stream = slot.has_stream && dice_.one_in(2) ? rig_.stream : Stream{second_.get()};
    const Values values = given(program_, slot, round, rank_);
    use.count = values.size();
    if (slot.verb == Verb::alltoall)
      for (int to : members(slot)) use.splits.push_back(rows_of(slot, round, rank_, to));
    const bool is_kept = slot.verb != Verb::allreduce && slot.verb != Verb::broadcast;
    if (slot.is_on_device) {
      auto upload = [&](const Values& of) {
        return rig_.device->upload(use.stream, of.data(), of.size() * sizeof(float));
      };
      use.in = upload(values);
      use.out = upload(Values(values.size()));
      if (!slot.has_stream) devices::finish(*rig_.device, use.stream);
      use.input = use.in.data();
      use.output = slot.is_in_place ? use.in.data() : use.out.data();
    } else {
      use.host_in = values;
      use.host_out.resize(values.size());
      use.input = use.host_in.data();
      use.output = slot.is_in_place ? use.host_in.data() : use.host_out.data();
    }
    if (is_kept) use.output = nullptr;
  }
  Result<Start> start_of(const Use& use, const std::string& name) {
    const Slot& slot = *use.slot;
    Signature signature;
    signature.verb = slot.verb;
    signature.op = slot.op;
    signature.postscale = slot.postscale;
    signature.root = Rank{slot.root};
    signature.device = slot.is_on_device ? DeviceKind::cuda : DeviceKind::host;
    const auto rows = static_cast<std::int64_t>(use.count) / slot.width;
    if (signature.row().has_tensor()) signature.shape = {rows, slot.width};
    if (signature.row().agreed == VerbRow::Agreed::all_but_first) signature.shape[0] = 0;
    auto operation = rig_.runtime->prepare(name, signature, numbers_[static_cast<std::size_t>(slot.set)]);
    if (!operation) return operation.error();
    Start start{*operation, use.input, use.output, rows};
    start.splits = use.splits;
    if (slot.has_stream) start.stream = use.stream;
    return start;
  }

  void end(Started& started, std::size_t number, const Program::Round& round) {
    if (is_over_ || started.handle == 0) return leave(started);
    HandleCell& cell = *rig_.runtime->find(started.handle);
    const bool has_stream = started.uses.front().slot->has_stream;
    // A thread of its own cannot tell whether the engine has seen the end of what it drops without a stream.
    if (round.may_drop && dice_.one_in(2) && (has_stream || !rig_.program)) {
      rig_.runtime->release(cell);
      return leave(started);
    }
    if (!rig_.runtime->wait(cell, Deadline::after(patience)))
      return fail("a handle was not done in time"), leave(started);
    if (rig_.program && !has_stream) rig_.program->is_told();
    if (cell.error) {
      if (!may_fail()) fail(cell.error->message);
      rig_.runtime->release(cell);
      return leave(started);
    }
    const bool on_another = dice_.one_in(3);
    const Status ordered = on_another ? rig_.runtime->order(cell, rig_.stream) : rig_.runtime->order(cell);
    if (!ordered && !may_fail()) return fail(ordered.error().message), leave(started);
    for (std::size_t i = 0; i < started.uses.size() && !may_fail(); ++i) {
      Use& use = started.uses[i];
      const Values right = expected(program_, *use.slot, number, rank_, round.joined);
      if (!right.empty()) compare(use, *use.slot, cell, i, on_another ? rig_.stream : use.stream, right);
    }
    rig_.runtime->release(cell);
    if (may_fail()) leave(started);
  }
  void compare(const Use& use, const Slot& slot, HandleCell& cell, std::size_t index, Stream reader,
               const Values& right) {
    const void* result = use.output;
    if (result == nullptr) result = cell.results.at(index).data.data();
    Values found(right.size());
    const std::size_t bytes = found.size() * sizeof(float);
    if (slot.is_on_device) std::memcpy(found.data(), rig_.device->download(reader, result, bytes).data(), bytes);
    else std::memcpy(found.data(), result, bytes);
    if (found != right) {
      const auto at = static_cast<std::size_t>(std::ranges::mismatch(found, right).in1 - found.begin());
      fail(slot.name + " (" + name_of(slot.verb) + ") has " + std::to_string(found[at]) + " in place of " +
           std::to_string(right[at]) + " at " + std::to_string(at) + " of " + std::to_string(right.size()));
    }
  }
  void join() {
    std::int32_t last = -1;
    run({"join", Verb::join, {}, nullptr, &last, false, DeviceKind::host});
  }
  void run(const DeviceRig::Use& use) {
    const std::string text = rig_.run(use);
    if (!text.empty() && !may_fail()) fail(text);
  }

  // A rank is lost in this round: whatever was started may fail, or leave what nobody may use.
  bool may_fail() const { return is_last_ && program_.victim.has_value(); }
  void fail(const std::string& what) {
    ADD_FAILURE() << where_ << what;
    is_over_ = true;
  }
  // Keeps the memory of what may still be under way.
  void leave(Started& started) {
    for (Use& use : started.uses) left_.push_back(std::move(use));
    started.uses.clear();
  }
  void finish_streams() {
    for (Stream stream : {rig_.stream, Stream{second_.get()}}) devices::finish(*rig_.device, stream);
  }

  const Program& program_;
  DeviceRig& rig_;
  const int rank_;
  Dice dice_;
  const std::string where_;
  const std::shared_ptr<void> second_;  // a second stream of the program
  // If there is one, the program's thread knows of the device only what it has seen and was told.
  std::vector<int> numbers_;  // of the program's sets
  std::vector<Use> left_;
  bool is_held_ = false, is_last_ = false, is_over_ = false;
};

void run_program(std::uint64_t seed) {
  const Program program(seed);
  Ensemble ensemble(hvd::testing::made_up_world(program.shape));
  ensemble.config.network_interfaces = "lo";
  if (program.is_hierarchical) ensemble.config.hierarchical_allreduce = "1";
  ensemble.config.torus_allreduce = program.is_torus;
  ensemble.config.deterministic = seed % 2 == 0;  // without measurements
  with_devices(
      ensemble, program.is_direct, [&](DeviceRig& rig, int rank) { Player(program, seed, rig, rank).play(); },
      program.shape.size() > 1, program.victim.has_value(),
      [&](Runtime::Parts& parts) {
        if (program.is_hierarchical && !program.is_direct) parts.transports = {hvd::testing::direct_in_nodes};
      });
  for (const hvd::testing::Finding& finding : hvd::testing::take_findings())
    ADD_FAILURE() << "program " << seed << (program.victim ? ", with a loss" : "") << ": " << finding.text();
}

TEST(RandomDevicePrograms, have_the_results_of_a_naive_model) {
  std::uint64_t first = 1, last = hvd::testing::is_sanitized ? 10 : 40;
  if (const char* asked = std::getenv("HVD_RANDOM_PROGRAMS")) std::istringstream(asked) >> first >> last;
  for (std::uint64_t seed = first; seed <= last && !HasFailure(); ++seed) run_program(seed);
}

}  // namespace
}  // namespace hvd::runtime
