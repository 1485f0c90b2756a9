// The C functions about the end of a job, and the StopWatch of this process that they start.
#include "api/stops.hpp"

#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "api/answer.hpp"
#include "api/callbacks.hpp"
#include "api/horovod.h"
#include "api/job_around.hpp"
#include "api/runtime_of_c.hpp"
#include "base/log.hpp"
#include "base/settings/config.hpp"
#include "base/text/comma_list.hpp"
#include "base/text/cut_text.hpp"
#include "native/posix/files/settings_files.hpp"
#include "native/posix/processes/process.hpp"
#include "native/posix/processes/signal_catcher.hpp"
#include "native/posix/processes/signals.hpp"
#include "runtime/ending/stop_watch.hpp"

namespace hvd::api {
namespace {

using runtime::StopCause;
using runtime::StopWatch;

// Made with the first runtime. Never destroyed, because its thread runs until the process ends.
std::atomic<StopWatch*> watch{nullptr};

Result<std::vector<int>> signals_in(const std::string& list) {
  std::vector<int> signals;
  if (list == "none") return signals;
  for (const std::string& name : items_of(list)) {
    auto signal = posix::signal_of_name(name);
    if (!signal)
      return Error(ErrorCode::invalid_argument, "HOROVOD_STOP_SIGNALS=" + list + ": '" + name +
                                                    "' is no signal; expected names like USR1,USR2,TERM, or none");
    signals.push_back(*signal);
  }
  return signals;
}

hvd_status start_watch() {
  std::vector<int> left;
  if (auto started = watch.load()->start(left); !started) return fail(started.error());
  for (int signal : left)
    log::info(
        posix::name_of_signal(signal) +
        " does not stop the ranks, because the program handles or ignores it; its handler can call hvd_request_stop()");
  return HVD_OK;
}

}  // namespace

Status listen_for_stops(runtime::Runtime& runtime, const Environment& environment) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (watch.load() == nullptr) {
    auto signals = signals_in(runtime.config().stop_signals);
    if (!signals) return signals.error();
    StopWatch::Settings settings;
    settings.signals = std::move(*signals);
    settings.margin = milliseconds_of(runtime.config().stop_margin_s);
    settings.time_left = [environment](bool anew) { return time_left_of_job(environment, anew); };
    watch.store(new StopWatch(std::move(settings)));
  }
  watch.load()->add(
      &runtime, runtime.world().rank == Rank{0},
      [raw = &runtime](StopCause cause, const std::string& reason) { raw->request_stop_point(cause, reason); });
  if (posix::environment_with_files().get("HOROVOD_STOP_SIGNALS").value_or("").empty()) return {};
  return start_watch() == HVD_OK ? Status() : Status(Error(ErrorCode::system, last_error().text));
}

void forget_stops(const runtime::Runtime& runtime) {
  if (StopWatch* it = watch.load()) it->remove(&runtime);
}

void note_write(Clock::duration time) {
  if (StopWatch* it = watch.load()) it->lead().wrote_for(time);
}

}  // namespace hvd::api

using hvd::api::fail;

int hvd_should_stop(hvd_runtime* runtime, int process_set) {
  if (!hvd::api::usable(runtime)) return (void)hvd::api::why_unusable(runtime), -1;
  if (hvd::api::refuse_in_callback("hvd_should_stop")) return -1;
  static std::atomic<bool> has_started{false};
  hvd::runtime::StopWatch* watch = hvd::api::watch.load(std::memory_order_acquire);
  if (!has_started.load(std::memory_order_relaxed) && watch != nullptr) {
    if (hvd::api::start_watch() != HVD_OK) return -1;
    has_started.store(true);
  }
  if (watch != nullptr && runtime->runtime->world().rank == hvd::Rank{0}) watch->lead().asked(hvd::Clock::now());
  auto stops = runtime->runtime->should_stop(process_set);
  return stops ? static_cast<int>(*stops) : ((void)fail(stops.error()), -1);
}

hvd_status hvd_shelter_child(int parent) {
  // The environment does not tell of a rank that is alone, but each rank has these threads.
  if (!hvd::posix::has_thread(parent, "hvd-engine") && !hvd::posix::has_thread(parent, "hvd-stop")) return HVD_OK;
  std::vector<std::string> warnings;
  auto config = hvd::Config::from(hvd::posix::environment_with_files(), warnings);
  if (!config) return fail(config.error());
  auto signals = hvd::api::signals_in(config->stop_signals);
  if (!signals) return fail(signals.error());
  hvd::posix::SignalCatcher::shelter_child(*signals, parent);
  return HVD_OK;
}

hvd_status hvd_request_stop(hvd_runtime* runtime, const char* reason) {
  if (!hvd::api::usable(runtime)) return hvd::api::why_unusable(runtime);
  constexpr std::size_t most_bytes = 1000;  // the reason travels as one request, whose size is limited
  std::string text = reason == nullptr ? "the program asked for it" : reason;
  text.resize(hvd::cut_text(text, most_bytes).size());
  runtime->runtime->request_stop_point(hvd::runtime::StopCause::program, std::move(text));
  return HVD_OK;
}

const char* hvd_stop_reason(hvd_runtime* runtime, hvd_stop_cause* cause) {
  if (!hvd::api::usable(runtime)) return nullptr;
  const hvd::runtime::StopPoint* point = runtime->runtime->stop_point();
  if (point == nullptr) return nullptr;
  if (cause != nullptr) *cause = static_cast<hvd_stop_cause>(point->cause);
  return point->reason.c_str();
}
