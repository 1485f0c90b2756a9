#include "runtime/thread_affinity.hpp"

#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/text/comma_list.hpp"
#include "native/posix/machine/affinity.hpp"

namespace hvd::runtime {

void choose_core(const World& world, const Config& config, const topology::Layout& layout) {
  if (config.thread_affinity.empty()) return;
  const std::string& text = config.thread_affinity;
  std::vector<std::string> cores = items_of(text);
  auto local_rank = static_cast<std::size_t>(layout.node.me.value);
  auto ranks = static_cast<std::size_t>(layout.node.size());
  auto mask =
      cores.size() < ranks ? Result<posix::CpuMask>(posix::CpuMask()) : posix::CpuMask::parse(cores[local_rank]);
  Status bound =
      !mask ? Status(mask.error())
      : mask->count() == 1
          ? posix::set_affinity(*mask)
          : Status(Error(ErrorCode::invalid_argument,
                         "expected a core for each of the " + std::to_string(ranks) + " ranks of the node, 0,4,8,12"));
  if (!bound)
    log::error("HOROVOD_THREAD_AFFINITY=" + text + " is not followed on " + describe(world, world.rank) + ": " +
               bound.error().message);
}

}  // namespace hvd::runtime
