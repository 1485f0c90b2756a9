#include "schedulers/selection/selection.hpp"

#include <algorithm>
#include <string_view>

#include "base/panic.hpp"
#include "schedulers/registry.hpp"

namespace hvd::schedulers {
namespace {

// Flux comes first, because an instance of Flux is often a job of another scheduler. The machine itself comes last.
int place_in_order(std::string_view key) {
  if (key == "flux") return 0;
  return key == "local" ? 2 : 1;
}

}  // namespace

Around scheduler_around(const Environment& environment) {
  std::vector<Maker> makers(registry().begin(), registry().end());
  std::ranges::stable_sort(makers, {}, [](const Maker& maker) { return place_in_order(maker.name); });
  for (const Maker& maker : makers) {
    std::shared_ptr<const Scheduler> scheduler = maker.make();
    if (auto evidence = scheduler->detected(environment)) return {maker.name, std::move(scheduler), *evidence};
  }
  panic("the scheduler \"local\" applies always");
}

}  // namespace hvd::schedulers
