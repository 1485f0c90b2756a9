#pragma once
// Starts and stops the timeline of a rank, as the settings and the program demand.
#include <memory>
#include <mutex>
#include <string>

#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "base/world.hpp"
#include "runtime/observers/registry.hpp"
#include "runtime/observers/timeline.hpp"

namespace hvd::runtime {

// Rank 0 writes a timeline. The other ranks write only if HOROVOD_TIMELINE_ALL_RANKS is set, each to its own file.
class TimelineSwitch {
 public:
  TimelineSwitch(const World& world, const Config& config, ObserverRegistry& observers)
      : world_(world), config_(config), observers_(observers) {}
  ~TimelineSwitch() { stop(); }

  // Starts the timeline that HOROVOD_TIMELINE names, unless the value is DYNAMIC. If the file cannot be written, only a
  // warning is given.
  void start_as_configured();
  // May be called on any thread except the engine's. Does nothing if that file is already being written. Fails if
  // HOROVOD_TIMELINE is not set.
  Status start(const std::string& path, bool marks_cycles);
  void stop();

 private:
  Status open(const std::string& path, bool marks_cycles);
  void close();

  const World& world_;
  const Config& config_;
  ObserverRegistry& observers_;
  std::mutex mutex_;
  std::string path_;  // the path of the file, as the program wrote it
  std::unique_ptr<Timeline> timeline_;
};

}  // namespace hvd::runtime
