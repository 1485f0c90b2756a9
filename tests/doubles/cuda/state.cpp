#include "state.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace hvd::testing {

// This double is no part of a test's program: a program that takes no findings ends with a status that tells it.
bool tests_fail_on_findings() {
  return true;
}

}  // namespace hvd::testing

namespace hvd::doubles {
namespace {

std::atomic<bool> is_child{false};

long long number_of(const char* variable, long long otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0' ? std::atoll(text) : otherwise;
}

std::uint64_t number_of_this_thread() {
  static std::atomic<std::uint64_t> last{0};
  thread_local const std::uint64_t number = ++last;
  return number;
}

// Programs call the driver also from handlers of exit(), when the variables of their thread are gone.
thread_local bool are_variables_gone = false;  // readable also then
struct OfThread {
  std::vector<cuda::ContextHandle> contexts;
  std::map<std::string, std::size_t> calls;
  ~OfThread() { are_variables_gone = true; }
};
OfThread& of_this_thread() {
  static auto* const at_the_end = new OfThread;
  thread_local OfThread it;
  return are_variables_gone ? *at_the_end : it;
}

}  // namespace

std::vector<cuda::ContextHandle>& current_contexts() {
  return of_this_thread().contexts;
}

std::map<std::string, std::size_t>& calls_of_this_thread() {
  return of_this_thread().calls;
}

Double& Double::it() {
  static auto* const the_double = new Double;  // programs call the driver while they end
  return *the_double;
}

Double::Double() : version(static_cast<int>(number_of("HVD_DOUBLE_DRIVER", 12080))) {
  find_parts();
  const auto devices = parts.empty() ? std::clamp<long long>(number_of("HVD_DOUBLE_DEVICES", 2), 0, most_devices) : 1;
  contexts_.resize(static_cast<std::size_t>(devices));
  for (std::size_t i = 0; i < contexts_.size(); ++i) contexts_[i].device = static_cast<int>(i);
  most_bytes = static_cast<std::size_t>(number_of("HVD_DOUBLE_MEMORY", static_cast<long long>(most_bytes)));
  char name[64] = "";
  int code = 0, calls_before = 0;
  if (const char* text = std::getenv("HVD_DOUBLE_REFUSE");
      text != nullptr && std::sscanf(text, "%63[^=]=%d@%d", name, &code, &calls_before) >= 2)
    refusals[name] = {static_cast<cuda::Code>(code), calls_before, true};
  ::pthread_atfork(nullptr, nullptr, [] { is_child = true; });
  devices::cuda::memory_of_double = [](const void* address, std::size_t, devices::cuda::Access) -> void* {
    return testing::inner_address(address);
  };
}

// CUDA shows a process one part at most, that of the first UUID.
void Double::find_parts() {
  parts.clear();
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string first = list == nullptr ? "" : std::string(list).substr(0, std::string(list).find(','));
  if (first.starts_with("MIG-")) parts[0] = first;
}

void Double::make_engine() {
  Engine::Options options;
  options.seed = static_cast<std::uint64_t>(number_of("HVD_DOUBLE_SEED", 1));
  options.longest_delay = static_cast<int>(number_of("HVD_DOUBLE_DELAY", 8));
  options.devices = std::max(device_count(), 1);
  engine_ = std::make_unique<Engine>(options);
  running_ = engine_.get();
  streams.clear();
  for (int device = 0; device < device_count(); ++device) streams.push_back(engine_->default_stream(device));
}

Code Double::begin(const char* entry_point, Needs needs) {
  if (is_child) {
    std::fprintf(stderr, "%s was called in a forked child, which the driver does not survive\n", entry_point);
    std::fflush(nullptr);
    ::_exit(testing::status_of_findings);
  }
  std::lock_guard lock(mutex);
  ++calls[entry_point];
  ++calls_of_this_thread()[entry_point];
  if (is_over) return Code::deinitialized;
  if (auto refused = refusals.find(entry_point); refused != refusals.end() && refused->second.calls-- <= 0) {
    const Code code = refused->second.code;
    if (!refused->second.always) refusals.erase(refused);
    return code;
  }
  if (needs == Needs::nothing) return Code::success;
  if (!is_started && std::string(entry_point) != "cuInit") return Code::not_initialized;
  if (engine_ == nullptr) make_engine();
  if (needs != Needs::context) return Code::success;
  return current_contexts().empty() ? Code::invalid_context : failure_.load();
}

Code Double::code_of(const Error& error) const {
  if (failure_ != Code::success) return failure_;
  return error.message.find("captur") != std::string::npos ? Code::stream_capture_unsupported : Code::launch_failed;
}

int Double::current_device() const {
  return current_contexts().empty() ? 0 : current_contexts().back()->device;
}

Engine::Stream Double::stream_of(void* handle) {
  const int device = current_device();
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  if (value <= 1) return engine_->default_stream(device);
  if (value == 2) {
    std::lock_guard lock(mutex);
    auto& stream = streams_of_threads_[{number_of_this_thread(), device}];
    if (stream == nullptr) streams.push_back(stream = engine_->make_stream(device, Engine::Order::with_the_default));
    return stream;
  }
  Engine::Stream stream = engine_->find_stream(handle);
  std::lock_guard lock(mutex);
  if (auto found = streams_by_old_handles.find(handle); found != streams_by_old_handles.end()) stream = found->second;
  if (stream != nullptr && destroyed_streams.contains(handle)) {
    testing::report({testing::Fault::after_free,
                     "a stream is used that was destroyed",
                     {testing::Place::here("the call that uses it")}});
    return nullptr;
  }
  return stream;
}

std::vector<Engine::Stream> Double::streams_of(int device) {
  std::lock_guard lock(mutex);
  std::vector<Engine::Stream> found;
  for (Engine::Stream stream : streams)
    if (engine_->device_of(stream) == device) found.push_back(stream);
  return found;
}

Code Double::wait_for_device(int device) {
  for (Engine::Stream stream : streams_of(device)) {
    if (engine_->is_capturing(stream)) return Code::stream_capture_unsupported;
    auto end = engine_->record(stream);
    if (!end) return code_of(end.error());
    if (auto slept = engine_->sleep_until(*end); !slept) return code_of(slept.error());
  }
  return Code::success;
}

void Double::fail(Code code) {
  Code none = Code::success;
  failure_.compare_exchange_strong(none, code);
  // Work of the engine calls this, too, while another thread may take the double's engine away.
  if (Engine* engine = running_.load()) engine->fail("the device of the double has failed");
}

void Double::reset() {
  std::unique_ptr<Engine> old;
  {
    std::lock_guard lock(mutex);
    running_ = nullptr;
    old = std::move(engine_);
    allocations.clear();
    bytes_of_device.clear();
    streams.clear();
    destroyed_streams.clear();
    streams_by_old_handles.clear();
    uses_handles_again = false;
    streams_of_threads_.clear();
    refusals.clear();
    failing_kernels.clear();
    refused_images.clear();
    modes.clear();
    find_parts();
    arriving.clear();
    calls.clear();
    most_bytes = 0;
    failure_ = Code::success;
    is_over = false;
    version = static_cast<int>(number_of("HVD_DOUBLE_DRIVER", 12080));
  }
  old.reset();
  std::lock_guard lock(mutex);
  make_engine();
}

Code queue(Engine::Stream stream, testing::Work work) {
  Double& it = Double::it();
  auto queued = it.engine().queue(stream, std::move(work));
  return queued ? Code::success : it.code_of(queued.error());
}

}  // namespace hvd::doubles
