#pragma once
// The keeper is a process between a site's launcher and one of its ranks. It tells horovodrun how the rank ended, and
// ends what the rank leaves behind.
#include <chrono>
#include <string>
#include <vector>

namespace hvd::launcher {

struct KeeperOrders {
  std::chrono::milliseconds grace{5000};
  bool packs_input = false;  // rank 0's input comes in packets; the other ranks get no input
  bool labels = false;       // the keeper labels its packets with the rank, because the launcher does not
};

// The first argument of the program. The next two arguments are the KeeperOrders, then comes the command.
inline constexpr const char* rank_keeper_flag = "--as-keeper-of-a-rank";

// Returns the command that starts a rank below a keeper. It contains no word that a launcher would take for its own.
// `horovodrun` is the path of this program on the hosts of the ranks.
std::vector<std::string> below_a_keeper(const std::string& horovodrun, const KeeperOrders& orders,
                                        const std::vector<std::string>& command);

// `arguments` begin after the flag. Returns the exit code when nothing of the rank is left. If a signal ended the rank,
// the same signal ends this process.
int run_rank_keeper(char** arguments);

}  // namespace hvd::launcher
