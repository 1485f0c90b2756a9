#pragma once
// Starts and stops the timeline of a rank, as the settings and the program say.
#include <memory>
#include <mutex>
#include <string>

#include "base/config.hpp"
#include "base/result.hpp"
#include "base/world.hpp"
#include "runtime/observers/registry.hpp"
#include "runtime/observers/timeline.hpp"

namespace hvd::runtime {

// Rank 0 writes; the others only if all shall (HOROVOD_TIMELINE_ALL_RANKS), each to a file of its own.
class TimelineSwitch {
 public:
  TimelineSwitch(const World& world, const Config& config, ObserverRegistry& observers)
      : world_(world), config_(config), observers_(observers) {}
  ~TimelineSwitch() { stop(); }

  // Starts what HOROVOD_TIMELINE names, unless it is DYNAMIC. If the file cannot be written, there is a warning.
  void start_as_configured();
  // Any thread but the engine's. Nothing happens if that file is being written already. Fails without HOROVOD_TIMELINE.
  Status start(const std::string& path, bool marks_cycles);
  void stop();

 private:
  Status open(const std::string& path, bool marks_cycles);
  void close();

  const World& world_;
  const Config& config_;
  ObserverRegistry& observers_;
  std::mutex mutex_;
  std::string path_;  // as the program names it
  std::unique_ptr<Timeline> timeline_;
};

}  // namespace hvd::runtime
