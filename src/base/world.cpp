#include "base/world.hpp"

namespace hvd {

std::string describe(const World& world, Rank rank) {
  const Member& member = world.member(rank);
  return "rank " + std::to_string(rank.value) + " (host " + member.host + ", process " + std::to_string(member.pid) +
         ")";
}

}  // namespace hvd
