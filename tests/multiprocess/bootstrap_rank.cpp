// A rank of a job: finds its bootstrap, meets the other ranks and leaves, ROUNDS times.
// bootstrap_rank EXPECTED-BOOTSTRAP ROUNDS [HOST,HOST…]
// HOST,HOST…: the expected host of each rank; without them all ranks must be on one host.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bootstrap/meeting/meeting.hpp"
#include "bootstrap/selection/selection.hpp"

namespace {

using namespace hvd;
using namespace hvd::bootstrap;

int fail(int round, const std::string& why) {
  std::fprintf(stderr, "round %d: %s\n", round, why.c_str());
  return 1;
}

// Variables that only our own launchers set. True if the variable is not set or has the expected value.
bool agrees(const Environment& environment, const char* name, int value) {
  auto said = environment.get(name);
  return !said || *said == std::to_string(value);
}

std::string hosts_of(const World& world) {
  std::string hosts;
  for (const Member& member : world.members) hosts += (hosts.empty() ? "" : ",") + member.host;
  return hosts;
}

// If `fresh`, chooses a bootstrap and joins again in every round, like a process that destroys its bootstrap each time.
int run(const std::string& expected, int rounds, const std::string& hosts, bool fresh) {
  Environment environment = Environment::of_this_process();
  std::vector<std::string> warnings;
  auto config = Config::from(environment, warnings);
  if (!config) return fail(0, config.error().message);
  std::chrono::milliseconds patience = std::chrono::seconds(60);
  if (environment.has("HOROVOD_START_TIMEOUT")) patience = milliseconds_of(config->start_timeout_s);
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
    if (!agrees(environment, "HOROVOD_RANK", identity.rank.value) ||
        !agrees(environment, "HOROVOD_SIZE", identity.size))
      return fail(round, "another rank or size than the launcher says");
    std::string address = "@" + std::to_string(identity.rank.value) + "." + std::to_string(round);
    auto epoch = static_cast<std::uint32_t>(round + (fresh ? 1000 : 0));
    auto world =
        meet(*chosen->bootstrap, identity, epoch, introduce_myself(environment, address), Deadline::after(patience));
    if (!world) return fail(round, world.error().message);
    chosen->bootstrap->tidy_up();
    for (int rank = 0; rank < world->size(); ++rank) {
      const Member& member = world->member(Rank{rank});
      if (member.address != "@" + std::to_string(rank) + "." + std::to_string(round))
        return fail(round, "a wrong address");
      if ((member.node == world->me().node) != (member.host == world->me().host))
        return fail(round, "nodes are not told apart, or ranks of one machine are on different nodes");
    }
    if (!hosts.empty() && hosts_of(*world) != hosts) return fail(round, "the ranks are on " + hosts_of(*world));
    if (hosts.empty() && world->member(Rank{0}).node != world->me().node) return fail(round, "on different nodes");
    if (world->size() > 1 && world->secret.size() != 32) return fail(round, "no secret of the job");
  }
  // A PMIx client keeps what it has put until it ends. A process that meets again and again must not grow by that.
  if (expected == "pmix" && !fresh && rounds > 1 && chosen->identity.size > 1 &&
      chosen->bootstrap->get(chosen->identity.rank, "hvd.meet.1", Deadline::after(std::chrono::seconds(1))))
    return fail(rounds, "the PMIx client has values of the second meeting");
  // PMIx never finishes a request that is under way when the client ends. LeakSanitizer sees what is lost by that.
  if (expected == "pmix" &&
      chosen->bootstrap->get(chosen->identity.rank, "hvd.never", Deadline::after(std::chrono::seconds(0))))
    return fail(rounds, "the PMIx client has a value that nobody has put");
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return fail(0, "expected the name of a bootstrap and a number of rounds");
  int rounds = std::atoi(arguments[2]);
  std::string hosts = count > 3 ? arguments[3] : "";
  if (int code = run(arguments[1], rounds, hosts, false)) return code;
  return run(arguments[1], rounds, hosts, true);
}
