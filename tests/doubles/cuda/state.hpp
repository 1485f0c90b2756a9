#pragma once
// What the entry points share: the engine and the driver's objects over it.
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "devices/kernels/memory.hpp"
#include "fixtures/device_double/engine.hpp"
#include "native/cuda/driver.hpp"

namespace hvd::doubles {

using cuda::Address;
using cuda::Code;
using testing::Engine;

constexpr int most_devices = 16;

}  // namespace hvd::doubles

// The driver's own objects, behind its handles.
namespace hvd::cuda {
struct ContextOfDriver {
  int device = 0;
  int retained = 0;
};
struct EventOfDriver {
  bool is_recorded = false;
  int device = 0;
  testing::Engine::Point point = {};
};
struct ModuleOfDriver {};
struct FunctionOfDriver {
  std::string name = {};
  std::size_t parameter_bytes = 0;
  std::function<void(const void* parameters, std::uint32_t blocks)> run = {};
  // Tells the ranges of a launch, and the word that it writes for the host.
  std::function<void(const void* parameters, std::uint32_t blocks, testing::Work& work)> uses = {};
};
}  // namespace hvd::cuda

namespace hvd::doubles {

struct Refusal {
  Code code = Code::success;
  int calls = 0;
  bool always = false;
};

class Double {
 public:
  static Double& it();

  // What every entry point asks first.
  enum class Needs : std::uint8_t { nothing, start, context };
  Code begin(const char* entry_point, Needs needs);
  // The code for an error of the engine.
  Code code_of(const Error& error) const;
  Code code_of(const Status& status) const { return status ? Code::success : code_of(status.error()); }

  Engine& engine() { return *engine_; }
  int device_count() const { return static_cast<int>(contexts_.size()); }
  cuda::ContextOfDriver& context_of(int device) { return contexts_[static_cast<std::size_t>(device)]; }
  int current_device() const;
  // Null if there is no such stream.
  Engine::Stream stream_of(void* handle);
  // All streams of a device, for calls that wait for the whole device.
  std::vector<Engine::Stream> streams_of(int device);
  Code wait_for_device(int device);

  // Kills the device when the work's turn comes.
  void fail(Code code);
  void reset();

  // Objects. The mutex protects what follows.
  std::mutex mutex;
  struct Allocation {
    Engine::Holding holding;
    int device;
    bool is_on_host;
  };
  std::map<Address, Allocation> allocations;
  std::size_t most_bytes = 0;  // 0: as many as the arena has
  std::map<int, std::size_t> bytes_of_device;
  std::vector<Engine::Stream> streams;
  std::set<void*> destroyed_streams;
  bool uses_handles_again = false;
  std::map<void*, Engine::Stream> streams_by_old_handles;  // those whose handle was an older stream's
  std::set<cuda::EventHandle> events;
  std::map<std::string, std::unique_ptr<cuda::FunctionOfDriver>> functions;
  std::map<int, Code> refused_images;  // by whether they are PTX
  std::map<int, std::pair<int, bool>> modes;
  std::map<int, std::string> parts;  // the UUIDs of devices that are parts of the first GPU
  std::map<std::string, std::size_t> calls;
  std::map<std::string, Refusal> refusals;
  std::vector<std::pair<std::string, Refusal>> failing_kernels;
  // What copies that are queued will have written, where the source is memory of the host: a launch reads its list
  // there, which has not arrived yet.
  struct Arriving {
    std::size_t bytes;
    const void* from;
  };
  std::map<const std::byte*, Arriving> arriving;

  int version;
  std::atomic<bool> is_started{false};  // threads may start it at the same time
  bool is_over = false;

 private:
  Double();
  void make_engine();
  void find_parts();

  std::unique_ptr<Engine> engine_;
  std::atomic<Engine*> running_{nullptr};  // the same
  std::vector<cuda::ContextOfDriver> contexts_;
  std::map<std::pair<std::uint64_t, int>, Engine::Stream> streams_of_threads_;
  std::atomic<Code> failure_{Code::success};
};

// The contexts that are current on this thread, the innermost at the end.
std::vector<cuda::ContextHandle>& current_contexts();

std::map<std::string, std::size_t>& calls_of_this_thread();

// A copy to the device is queued, by the driver or by a kernel. What it brings is known if it comes from page-locked
// memory.
void remember_arriving(void* to, const void* from, std::size_t bytes);
// The bytes of a list at an address of the device, as they will be when a launch that is queued now runs.
std::vector<std::byte> bytes_arriving_at(const void* address, std::size_t bytes);

// Our own kernels (tests/fixtures/cuda_kernels). Null: there is none of that name.
std::unique_ptr<cuda::FunctionOfDriver> own_kernel(const std::string& name);

Code queue(Engine::Stream stream, testing::Work work);

}  // namespace hvd::doubles

#define HVD_EXPORT extern "C" __attribute__((visibility("default")))
// The first line of an entry point.
#define HVD_BEGIN(needs)                                                                     \
  if (const auto code_ = ::hvd::doubles::Double::it().begin(__func__, Double::Needs::needs); \
      code_ != ::hvd::cuda::Code::success)                                                   \
  return code_
