// Draws programs. Every program that is drawn here must end on every rank: a rank waits only when it has submitted all
// operations of the step, and all ranks have the same phases.
#include <algorithm>
#include <numeric>
#include <set>

#include "programs/program.hpp"

namespace hvd::programs {

namespace {

using Mix = Wanted::Mix;

class Generator {
 public:
  Generator(std::uint64_t seed, const Wanted& wanted)
      : wanted_(wanted), dice_(Dice(seed).of({static_cast<int>(wanted.mix)})) {
    program_.seed = seed;
  }
  Program draw() {
    draw_world();
    draw_knobs();
    draw_sets();
    const int phases = is_mix(Mix::overlapping_sets) ? 2 : dice_.between(1, 4);
    for (int phase = 0; phase < phases; ++phase) draw_phase();
    // The failures of a sudden end are held back for seconds. Therefore such an end is rare.
    program_.ending = dice_.one_in(100)   ? Ending::with_pending
                      : dice_.one_in(100) ? Ending::while_threads_submit
                                          : Ending::in_order;
    return std::move(program_);
  }

 private:
  bool is_mix(Mix mix) const { return wanted_.mix == mix; }
  int ranks() const { return program_.ranks(); }

  void draw_world() {
    int ranks = is_mix(Mix::overlapping_sets) ? dice_.between(3, 6) : dice_.between(1, 6);
    if (wanted_.ranks > 0) ranks = wanted_.ranks;
    program_.sets.push_back({{}, true});
    program_.sets[0].ranks.resize(static_cast<std::size_t>(ranks));
    std::iota(program_.sets[0].ranks.begin(), program_.sets[0].ranks.end(), 0);
    program_.nodes = {ranks};
    if (ranks > 1 && dice_.one_in(4)) {
      int first = dice_.between(1, ranks - 1);
      program_.nodes = {first, ranks - first};
      if (ranks - first > 1 && dice_.one_in(2)) program_.nodes = {first, 1, ranks - first - 1};
    }
  }

  void draw_knobs() {
    program_.cache_capacity = dice_.one_of<std::int64_t>({0, 1, 2, 5, 1024, 1024, 1024});
    program_.fusion_threshold = dice_.one_of<std::int64_t>({0, 1, 64, 4096, 1 << 20, 128 << 20, 128 << 20});
    program_.chunk = dice_.one_of<std::int64_t>({4096, 8192, 64 << 10, 256 << 10});
    program_.groups_do_not_mix = dice_.one_in(4);
  }

  // Draws some ranks: neither all ranks nor the ranks of an existing set.
  std::vector<int> draw_members() {
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<int> members = program_.sets[0].ranks;
      dice_.shuffle(members);
      members.resize(static_cast<std::size_t>(dice_.between(1, std::max(1, ranks() - 1))));
      std::ranges::sort(members);
      bool is_new = std::ranges::none_of(program_.sets, [&](const ProcessSet& set) { return set.ranks == members; });
      if (is_new) return members;
    }
    return {};
  }

  void draw_sets() {
    if (ranks() == 1) return;
    const int most = is_mix(Mix::overlapping_sets) ? 6 : dice_.one_of({0, 0, 1, 3});
    for (int i = 0; i < most; ++i)
      if (auto members = draw_members(); !members.empty()) add_set({members, true});
  }
  int add_set(ProcessSet set) {
    program_.sets.push_back(std::move(set));
    live_.push_back(static_cast<int>(program_.sets.size()) - 1);
    return live_.back();
  }

  void draw_phase() {
    Phase phase;
    const bool joins = is_mix(Mix::everything) && dice_.one_in(4);
    phase.steps = dice_.one_of({1, 2, 4, 8, 12});
    phase.is_in_lockstep = dice_.one_in(6);
    if (joins) draw_joins(phase);
    std::set<int> before(live_.begin(), live_.end());
    if (!joins && ranks() > 1 && dice_.one_in(2)) draw_changes(phase);
    std::vector<int> usable{0};  // sets that exist during the whole phase
    for (int set : live_)
      if (before.contains(set)) usable.push_back(set);
    const bool has_many = dice_.one_in(8);
    const int uses = has_many ? dice_.between(20, 40) : dice_.between(1, is_mix(Mix::overlapping_sets) ? 14 : 8);
    for (int i = 0; i < uses; ++i) draw_use(phase, usable, has_many);
    program_.phases.push_back(std::move(phase));
  }

  void draw_joins(Phase& phase) {
    phase.is_in_lockstep = false;
    for (int rank = 0; rank < ranks(); ++rank) phase.join_after.push_back(dice_.between(0, phase.steps));
    phase.joins_before_wait = dice_.one_in(3);
  }

  void draw_changes(Phase& phase) {
    const int changes = dice_.between(1, 4);
    for (int i = 0; i < changes; ++i) {
      Change change;
      change.what = dice_.one_of({Change::What::add, Change::What::add, Change::What::add, Change::What::remove,
                                  Change::What::remove, Change::What::add_again, Change::What::remove_unknown,
                                  Change::What::disagree});
      if (change.what == Change::What::add) {
        auto members = draw_members();
        if (members.empty()) continue;
        change.set = add_set({members, false});
      } else if (change.what == Change::What::remove || change.what == Change::What::add_again) {
        if (live_.empty()) continue;
        change.set = dice_.one_of(live_);
        if (change.what == Change::What::remove) std::erase(live_, change.set);
        change.has_pending = change.what == Change::What::remove && dice_.one_in(2);
      }
      phase.changes.push_back(change);
    }
  }

  std::string draw_name() {
    if (dice_.one_in(30)) return std::string(static_cast<std::size_t>(dice_.between(200, 1000)), 'n');
    if (dice_.one_in(30)) return "\x01 ümlaut/\"\\\n" + std::to_string(dice_.below(3));
    return "t" + std::to_string(dice_.below(60));
  }

  void draw_use(Phase& phase, const std::vector<int>& usable, bool is_small) {
    Use use;
    const bool wants_a_set = is_mix(Mix::overlapping_sets) ? !dice_.one_in(5) : dice_.one_in(3);
    use.set = wants_a_set ? dice_.one_of(usable) : 0;
    use.name = draw_name();
    auto has_the_name = [&](const Use& other) { return other.set == use.set && other.name == use.name; };
    while (std::ranges::any_of(phase.uses, has_the_name)) use.name += "'";
    use.is_transient = dice_.one_in(8);
    use.group = dice_.one_in(3) ? dice_.between(1, 3) : 0;
    use.period = dice_.between(1, 4);
    const bool is_in_join = !phase.join_after.empty() && use.set == 0;
    const int kinds = dice_.one_in(4) ? dice_.between(2, 3) : 1;
    for (int i = 0; i < kinds; ++i)
      use.kinds.push_back(i > 0 && dice_.one_in(2) ? altered(use.kinds.back())
                                                   : draw_kind(use.set, is_in_join, is_small));
    if (is_in_join && phase.joins_before_wait)
      for (Kind& kind : use.kinds)
        if (kind.verb != HVD_ALLREDUCE && kind.verb != HVD_BARRIER) kind.verb = HVD_BARRIER;
    if (!is_in_join && dice_.one_in(5)) use.steps = dice_.draw() | 1;
    if (!is_in_join && dice_.one_in(10)) draw_fault(phase, use);
    phase.uses.push_back(std::move(use));
  }

  void draw_fault(const Phase& phase, Use& use) {
    const auto size = static_cast<int>(program_.sets[static_cast<std::size_t>(use.set)].ranks.size());
    if (size < 2) return;
    use.fault_step = dice_.below(phase.steps);
    use.odd_place = dice_.below(size);
    if (!use.is_in(use.fault_step)) return;
    const Kind& kind = use.kind_in(use.fault_step);
    std::vector<Fault> possible{Fault::verb, Fault::use};
    if (kind.verb != HVD_BARRIER) possible.insert(possible.end(), {Fault::dtype, Fault::shape});
    if (kind.verb == HVD_ALLREDUCE && kind.op != HVD_ADASUM) possible.insert(possible.end(), {Fault::op, Fault::scale});
    if (kind.verb == HVD_REDUCESCATTER) possible.push_back(Fault::scale);
    if (kind.verb == HVD_BROADCAST) possible.push_back(Fault::root);
    if (kind.has_own_rows()) possible.push_back(Fault::no_rows);
    use.fault = dice_.one_of(possible);
  }

  Kind altered(Kind kind) {
    if (kind.verb == HVD_BARRIER) return kind;
    if (dice_.one_in(2)) kind.dtype = draw_type(kind);
    if (kind.has_own_rows() || kind.shape.empty()) return kind;
    if (dice_.one_in(2)) kind.shape[0] = std::max<std::int64_t>(0, kind.shape[0] + dice_.between(-2, 2));
    return kind;
  }

  hvd_dtype draw_type(const Kind& kind) {
    if (kind.verb == HVD_ALLREDUCE && kind.op == HVD_ADASUM)
      return dice_.one_of({HVD_FLOAT16, HVD_BFLOAT16, HVD_FLOAT32, HVD_FLOAT64});
    bool is_scaled = kind.prescale != 1 || kind.postscale != 1 || kind.op == HVD_AVERAGE;
    if (dice_.one_in(2)) return HVD_FLOAT32;
    return static_cast<hvd_dtype>(dice_.between(is_scaled ? HVD_UINT8 : HVD_BOOL, HVD_UINT64));
  }

  // Draws a number of elements: none, few, near the sizes at which algorithms cut tensors, or many.
  std::int64_t draw_count(bool is_small) {
    if (is_small) return dice_.between(0, 60);
    switch (dice_.below(12)) {
      case 0: return 0;
      case 1: return 1;
      case 2: return program_.chunk / dice_.one_of({1, 2, 4, 8}) + dice_.between(-2, 2);
      case 3: return dice_.between(1000, 20'000);
      case 4: return dice_.one_in(6) ? dice_.between(200'000, 500'000) : dice_.between(1, 9);
      default: return dice_.between(1, 300);
    }
  }

  std::vector<std::int64_t> draw_shape(bool is_small) {
    std::int64_t count = draw_count(is_small);
    switch (dice_.below(6)) {
      case 0: return {count / 3, 3};
      case 1: return {count / 8, 2, 4};
      case 2: return {count, 1};
      case 3: return {dice_.between(0, 9), std::max<std::int64_t>(1, count / 8)};
      default: return {count};
    }
  }

  Kind draw_kind(int set, bool is_in_join, bool is_small) {
    Kind kind;
    kind.verb = dice_.one_of({HVD_ALLREDUCE, HVD_ALLREDUCE, HVD_ALLREDUCE, HVD_ALLGATHER, HVD_BROADCAST,
                              HVD_REDUCESCATTER, HVD_ALLTOALL, HVD_BARRIER});
    if (is_in_join && !dice_.one_in(6)) kind.verb = dice_.one_in(6) ? HVD_BARRIER : HVD_ALLREDUCE;
    const std::vector<int>& members = program_.sets[static_cast<std::size_t>(set)].ranks;
    const std::size_t size = members.size();
    if (kind.verb == HVD_ALLREDUCE) {
      kind.op = dice_.one_of({HVD_SUM, HVD_SUM, HVD_AVERAGE, HVD_AVERAGE, HVD_MIN, HVD_MAX, HVD_PRODUCT});
      if (set == 0 && (size & (size - 1)) == 0 && dice_.one_in(5)) kind.op = HVD_ADASUM;
      kind.shape = draw_shape(is_small);
      if (kind.op == HVD_ADASUM && kind.count() > 3000) kind.shape = {dice_.between(0, 3000)};
      if (dice_.one_in(10)) kind.shape.clear();
    } else if (kind.verb == HVD_REDUCESCATTER) {
      kind.op = dice_.one_of({HVD_SUM, HVD_AVERAGE});
      kind.shape = draw_shape(is_small);
    } else if (kind.verb == HVD_BROADCAST) {
      kind.root = dice_.one_of(members);
      kind.shape = draw_shape(is_small);
      if (dice_.one_in(10)) kind.shape.clear();
    } else if (kind.has_own_rows()) {
      kind.shape = dice_.one_of<std::vector<std::int64_t>>({{}, {}, {1}, {3}, {0}, {2, 5}, {257}});
      kind.most_rows = dice_.one_of({0, 1, 5, 5, 40, is_small ? 3 : 900});
    }
    const bool reduces = kind.verb == HVD_ALLREDUCE || kind.verb == HVD_REDUCESCATTER;
    if (reduces && kind.op != HVD_PRODUCT && dice_.one_in(4)) kind.prescale = dice_.one_of({0.5, 2.0, 0.3, 1.5});
    if (reduces && dice_.one_in(4)) kind.postscale = dice_.one_of({0.5, 2.0, 0.3, 1.5});
    kind.dtype = draw_type(kind);
    return kind;
  }

  Wanted wanted_;
  Dice dice_;
  Program program_;
  std::vector<int> live_;  // sets other than the world that exist after the phases drawn so far
};

// Dice for the numbers of rows. They change from step to step in some uses, and not in others.
Dice dice_of_rows(const Program& program, int phase, int use, int step) {
  Dice dice = Dice(program.seed).of({phase, use, 1});
  return dice.one_in(2) ? dice : dice.of({step});
}

}  // namespace

std::int64_t Kind::count() const {
  std::int64_t count = 1;
  for (std::int64_t extent : shape) count *= extent;
  return verb == HVD_BARRIER ? 0 : count;
}

Program draw_program(std::uint64_t seed, const Wanted& wanted) {
  return Generator(seed, wanted).draw();
}

std::int64_t rows_of(const Program& program, int phase, int use, int step, int rank) {
  const Kind& kind = program.phases[static_cast<std::size_t>(phase)].uses[static_cast<std::size_t>(use)].kind_in(step);
  Dice dice = dice_of_rows(program, phase, use, step).of({rank});
  return dice.one_in(4) ? 0 : dice.between(0, kind.most_rows);
}

bool has_equal_splits(const Program& program, int phase, int use, int step) {
  return dice_of_rows(program, phase, use, step).of({-1}).one_in(4);
}

std::int64_t rows_between(const Program& program, int phase, int use, int step, int from, int to) {
  const Kind& kind = program.phases[static_cast<std::size_t>(phase)].uses[static_cast<std::size_t>(use)].kind_in(step);
  const bool are_equal = has_equal_splits(program, phase, use, step);
  Dice dice =
      dice_of_rows(program, phase, use, step)
          .of(are_equal ? std::initializer_list<std::int64_t>{from} : std::initializer_list<std::int64_t>{from, to});
  return dice.one_in(4) ? 0 : dice.between(0, kind.most_rows);
}

}  // namespace hvd::programs
