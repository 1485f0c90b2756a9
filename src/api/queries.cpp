// The C functions that return facts about the rank, the library, its settings and counters, and the last error.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "api/answer.hpp"
#include "api/runtime_of_c.hpp"
#include "base/gpu_makes.hpp"
#include "base/settings/config.hpp"
#include "native/mpi/process.hpp"
#include "native/posix/files/settings_files.hpp"
#include "native/posix/plugins/plugin.hpp"
#include "runtime/operations/counters.hpp"
#include "runtime/session.hpp"

using hvd::api::fail;
using hvd::api::last_error;
using hvd::api::missing_struct;
using hvd::api::usable;
using hvd::api::why_unusable;
using hvd::api::wrong_struct;

namespace {

bool is_device(hvd_device device) {
  return device >= HVD_HOST && static_cast<int>(device) < hvd::device_kind_count;
}

void take_position(const hvd::runtime::Position& position, hvd_world& world) {
  world.rank = position.rank;
  world.size = position.size;
  world.local_rank = position.local_rank;
  world.local_size = position.local_size;
  world.cross_rank = position.cross_rank;
  world.cross_size = position.cross_size;
  world.is_homogeneous = position.homogeneous;
}

}  // namespace

extern "C" {

const char* hvd_last_error(void) {
  return last_error().text.c_str();
}
const char* hvd_last_error_id(void) {
  return last_error().id.c_str();
}
const char* hvd_version(void) {
  return HVD_VERSION;
}

hvd_status hvd_get_world(hvd_runtime* runtime, hvd_world* world) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (world == nullptr) return missing_struct("hvd_world");
  if (world->struct_size < sizeof(hvd_world)) return wrong_struct("hvd_world", sizeof(hvd_world), world->struct_size);
  take_position(runtime->runtime->position(), *world);
  return HVD_OK;
}

int hvd_mpi_built(void) {
  hvd::Environment environment = hvd::posix::environment_with_files();
  for (const char* abi : hvd::mpi::abis())
    if (hvd::mpi::has_plugin(abi, environment)) return 1;
  return 0;
}

hvd_status hvd_get_device_facts(hvd_device device, hvd_device_facts* facts) {
  if (facts == nullptr) return missing_struct("hvd_device_facts");
  if (facts->struct_size < sizeof(hvd_device_facts))
    return wrong_struct("hvd_device_facts", sizeof(hvd_device_facts), facts->struct_size);
  if (!is_device(device))
    return fail(hvd::ErrorCode::invalid_argument, "there is no hvd_device " + std::to_string(device));
  const auto kind = static_cast<hvd::DeviceKind>(device);
  const hvd::GpuMake* make = hvd::gpu_make_of(kind);
  facts->name = hvd::name_of(kind);
  facts->dlpack_type = make == nullptr ? hvd::dlpack_host : make->dlpack_type;
  facts->default_stream = make == nullptr ? nullptr : reinterpret_cast<void*>(make->default_stream);
  return HVD_OK;
}

int hvd_device_built(hvd_device device) {
  if (!is_device(device)) return 0;
  if (device == HVD_HOST) return 1;
  const hvd::GpuMake* make = hvd::gpu_make_of(static_cast<hvd::DeviceKind>(device));
  return make != nullptr && !hvd::posix::plugin_path(make->plugin, hvd::posix::environment_with_files()).empty();
}

int hvd_nccl_built(void) {
  return !hvd::posix::plugin_path("nccl", hvd::posix::environment_with_files()).empty();
}

int hvd_has_device(hvd_runtime* runtime, hvd_device device, int process_set) {
  if (!usable(runtime) || !is_device(device)) {
    (void)hvd::api::fail(hvd::ErrorCode::invalid_argument, "hvd_has_device needs a runtime and an hvd_device");
    return -1;
  }
  auto has = runtime->runtime->has_device(static_cast<hvd::DeviceKind>(device), process_set);
  if (!has) (void)hvd::api::fail(has.error());
  return !has ? -1 : *has;
}

int hvd_mpi_thread_level(hvd_runtime* runtime) {
  return usable(runtime) ? runtime->runtime->mpi_thread_level() : -1;
}

int hvd_local_device(hvd_runtime* runtime) {
  return usable(runtime) ? runtime->runtime->local_device() : -1;
}

int hvd_is_running(hvd_runtime* runtime) {
  return usable(runtime) && runtime->runtime->ended() == nullptr;
}

int64_t hvd_counter(hvd_runtime* runtime, const char* name) {
  if (!usable(runtime) || name == nullptr) return -1;
  const hvd::runtime::Counters& counters = runtime->runtime->counters();
  const std::pair<const char*, const hvd::runtime::Counter&> table[] = {
      {"submissions", counters.submissions},
      {"requests_sent", counters.requests_sent},
      {"log_records", counters.log_records},
      {"log_bytes", counters.log_bytes},
      {"batches", counters.batches},
      {"plans", counters.plans},
      {"links", counters.links},
      {"engine_sleeps", counters.engine_sleeps},
      {"frames_sent", counters.frames_sent},
      {"frames_received", counters.frames_received},
      {"frame_bytes_sent", counters.frame_bytes_sent},
      {"frame_bytes_received", counters.frame_bytes_received},
  };
  for (const auto& [known, counter] : table)
    if (std::strcmp(known, name) == 0) return counter.get();
  if (std::strcmp("operations", name) == 0) return static_cast<int64_t>(runtime->runtime->operations());
  return -1;
}

hvd_status hvd_visit_settings(void (*visit)(void*, const char*, const char*, const char*), void* context) {
  auto settings = hvd::runtime::settings_of_this_process();
  if (!settings) return fail(settings.error());
  for (hvd::Setting& setting : *settings) {
    if (hvd::knob_of(setting.name)->kind == std::string_view("flag"))
      for (const char* word : {"0", "1"})
        if (hvd::means_the_same(setting.name, setting.value, word)) setting.value = word;
    visit(context, setting.name.c_str(), setting.value.c_str(), setting.origin().c_str());
  }
  return HVD_OK;
}
void hvd_visit_knobs(void (*visit)(void*, const char*, const char*, const char*, const char*), void* context) {
  for (const hvd::KnobRow& row : hvd::knobs()) visit(context, row.name, row.kind, row.default_value, row.meaning);
}

}  // extern "C"
