#pragma once
// The keeper stands between a site's launcher and one of its ranks. It tells horovodrun how the rank ended, and ends
// what the rank leaves behind.
#include <chrono>
#include <string>
#include <vector>

namespace hvd::launcher {

struct KeeperOrders {
  std::chrono::milliseconds grace{5000};
  bool packs_input = false;  // of rank 0; the others get none
  bool labels = false;       // the keeper says whose lines they are, since the launcher does not
};

// The first argument of the program; the next two are KeeperOrders, then comes the command.
inline constexpr const char* rank_keeper_flag = "--as-keeper-of-a-rank";

// The command that starts a rank below a keeper, in words that no launcher takes for its own. `horovodrun` is the
// path of this program on the hosts of the ranks.
std::vector<std::string> below_a_keeper(const std::string& horovodrun, const KeeperOrders& orders,
                                        const std::vector<std::string>& command);

// `arguments` come after the flag. Returns the exit code when nothing is left of the rank; if a signal ended the
// rank, it ends this process, too.
int run_rank_keeper(char** arguments);

}  // namespace hvd::launcher
