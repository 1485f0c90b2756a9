// A rank of a job that plays random programs, each with a new runtime: programs_rank FIRST COUNT [sets] plays the seeds
// FIRST to FIRST + COUNT - 1. With "sets" the programs mostly test overlapping process sets.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "programs/player.hpp"
#include "sanitized.hpp"

namespace {

using namespace hvd::programs;

constexpr auto patience = std::chrono::seconds(hvd::testing::is_sanitized ? 120 : 40);

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), hvd_last_error());
  std::exit(1);
}

void set_knob(const char* name, std::int64_t value) {
  ::setenv(name, std::to_string(value).c_str(), 1);
}

hvd_runtime* start(const Program& program) {
  set_knob("HOROVOD_CACHE_CAPACITY", program.cache_capacity);
  set_knob("HOROVOD_FUSION_THRESHOLD", program.fusion_threshold);
  set_knob("HOROVOD_SLAB_CHUNK", program.chunk);
  set_knob("HOROVOD_DISABLE_GROUP_FUSION", program.groups_do_not_mix ? 1 : 0);
  set_knob("HOROVOD_DYNAMIC_PROCESS_SETS", 1);
  auto [ranks, sizes] = static_sets_of(program);
  hvd_init_options options{};
  options.struct_size = sizeof options;
  options.set_ranks = ranks.data();
  options.set_sizes = sizes.data();
  options.set_count = sizes.size();
  hvd_runtime* runtime = nullptr;
  if (hvd_init_with(&runtime, &options) != HVD_OK) give_up("no start for seed " + std::to_string(program.seed));
  return runtime;
}

hvd_world find_world() {
  hvd_runtime* runtime = nullptr;
  if (hvd_init(&runtime) != HVD_OK) give_up("no start");
  hvd_world world{};
  world.struct_size = sizeof world;
  if (hvd_get_world(runtime, &world) != HVD_OK) give_up("no world");
  hvd_shutdown(runtime);
  return world;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "programs_rank FIRST COUNT [sets]: plays the programs of these seeds\n");
    return 2;
  }
  const std::uint64_t first = std::strtoull(argv[1], nullptr, 10), count = std::strtoull(argv[2], nullptr, 10);
  const hvd_world world = find_world();
  Wanted wanted;
  wanted.ranks = world.size;
  const bool has_sets = argc > 3 && std::strcmp(argv[3], "sets") == 0;
  if (has_sets) wanted.mix = Wanted::Mix::overlapping_sets;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Program program = draw_program(seed, wanted);
    std::string repeat = "horovodrun -np " + std::to_string(world.size) + " programs_rank " + std::to_string(seed) +
                         " 1" + (has_sets ? " sets" : "");
    hvd_runtime* runtime = start(program);
    Watch watch(repeat + "\n" + text_of(program), patience);
    Player(program, runtime, world.rank, watch).play();
    hvd_shutdown(runtime);
    if (std::string faults = watch.faults(); !faults.empty()) {
      std::fprintf(stderr, "%s%s\n%s", faults.c_str(), repeat.c_str(), text_of(program).c_str());
      return 1;
    }
  }
  if (world.rank == 0) std::printf("%d programs of %d ranks\n", static_cast<int>(count), world.size);
  return 0;
}
