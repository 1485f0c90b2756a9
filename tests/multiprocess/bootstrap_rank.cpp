// A rank of a job that horovodrun started: finds its bootstrap, meets the others and leaves, as many times as asked.
// bootstrap_rank EXPECTED-BOOTSTRAP ROUNDS
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "bootstrap/meeting.hpp"
#include "bootstrap/selection.hpp"

namespace {

using namespace hvd;
using namespace hvd::bootstrap;

int fail(int round, const std::string& why) {
  std::fprintf(stderr, "round %d: %s\n", round, why.c_str());
  return 1;
}

// `fresh`: choose and join again in every round, as a process would that destroys its bootstrap each time.
int run(const std::string& expected, int rounds, bool fresh) {
  Environment environment = Environment::of_this_process();
  std::vector<std::string> warnings;
  auto config = Config::from(environment, warnings);
  if (!config) return fail(0, config.error().message);
  std::optional<Chosen> chosen;
  for (int round = 0; round < rounds; ++round) {
    if (fresh) chosen.reset();
    if (!chosen) {
      std::vector<Notice> notices;
      auto found = choose(environment, *config, notices);
      if (!found) return fail(round, found.error().message);
      if (found->bootstrap->name() != expected) return fail(round, std::string("found ") + found->bootstrap->name());
      chosen = std::move(*found);
    }
    const Identity& identity = chosen->identity;
    if (std::to_string(identity.rank.value) != environment.get("HOROVOD_RANK").value_or("") ||
        std::to_string(identity.size) != environment.get("HOROVOD_SIZE").value_or(""))
      return fail(round, "another rank or size than the launcher says");
    std::string address = "@" + std::to_string(identity.rank.value) + "." + std::to_string(round);
    auto epoch = static_cast<std::uint32_t>(round + (fresh ? 1000 : 0));
    auto world = meet(*chosen->bootstrap, identity, epoch, address, Deadline::after(std::chrono::seconds(60)));
    if (!world) return fail(round, world.error().message);
    for (int rank = 0; rank < world->size(); ++rank) {
      const Member& member = world->member(Rank{rank});
      if (member.address != "@" + std::to_string(rank) + "." + std::to_string(round))
        return fail(round, "a wrong address");
      if (member.node != world->me().node) return fail(round, "ranks of one machine on different nodes");
    }
  }
  return 0;
}

}  // namespace

int main(int, char** arguments) {
  int rounds = std::atoi(arguments[2]);
  if (int code = run(arguments[1], rounds, false)) return code;
  return run(arguments[1], rounds, true);
}
