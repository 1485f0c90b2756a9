#include "launcher/elastic/ranking.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

namespace hvd::launcher {
namespace {

// Lower comes first: with state, without state, newcomers; among survivors by rank.
using Seniority = std::tuple<int, int>;
Seniority seniority_of(const Candidate& it) {
  if (!it.before) return {2, 0};
  return {it.has_state ? 0 : 1, it.before->value};
}

using SortKey = std::tuple<Seniority, std::size_t, Seniority, int>;

std::vector<Candidate> in_order(std::vector<Candidate> candidates) {
  std::map<std::size_t, Seniority> of_hosts;
  for (const Candidate& each : candidates) {
    auto [host, is_new] = of_hosts.emplace(each.place_of_host, seniority_of(each));
    if (!is_new) host->second = std::min(host->second, seniority_of(each));
  }
  auto order_of = [&](const Candidate& it) {
    return SortKey{of_hosts.at(it.place_of_host), it.place_of_host, seniority_of(it), it.slot.index};
  };
  std::sort(candidates.begin(), candidates.end(),
            [&](const Candidate& a, const Candidate& b) { return order_of(a) < order_of(b); });
  return candidates;
}

void keep_survivors_first(std::vector<Candidate>& candidates, std::size_t most) {
  std::size_t survivors = static_cast<std::size_t>(
      std::count_if(candidates.begin(), candidates.end(), [](const Candidate& it) { return it.before.has_value(); }));
  std::size_t newcomers = most > survivors ? most - survivors : 0;
  std::erase_if(candidates, [&](const Candidate& it) {
    if (it.before) return false;
    if (newcomers == 0) return true;
    --newcomers;
    return false;
  });
}

}  // namespace

std::vector<WorldPlace> rank_workers(std::vector<Candidate> candidates, int most) {
  candidates = in_order(std::move(candidates));
  keep_survivors_first(candidates, static_cast<std::size_t>(most));
  std::map<std::size_t, int> sizes;  // of each host
  std::map<int, int> hosts_with;     // how many hosts have this local rank
  std::vector<WorldPlace> world;
  for (const Candidate& each : candidates) {
    WorldPlace place{each.worker, Rank{static_cast<std::int32_t>(world.size())}};
    place.local_rank = sizes[each.place_of_host]++;
    place.cross_rank = hosts_with[place.local_rank]++;
    world.push_back(place);
  }
  for (std::size_t i = 0; i < world.size(); ++i) {
    world[i].local_size = sizes.at(candidates[i].place_of_host);
    world[i].cross_size = hosts_with.at(world[i].local_rank);
  }
  return world;
}

}  // namespace hvd::launcher
