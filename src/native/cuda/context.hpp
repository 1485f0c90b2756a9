#pragma once
// The primary context of a GPU, which all libraries of a process share: torch's tensors are in it, too.
#include <memory>
#include <string>

#include "native/cuda/driver.hpp"
#include "native/cuda/errors.hpp"

namespace hvd::cuda {

struct DeviceFacts {
  std::string name, bus_id, uuid;  // bus id in lower case, "GPU-…", "MIG-…" of a part
  int multiprocessors = 1;
  int capability = 0;  // 90 for 9.0
};

class Context {
 public:
  // Makes the context if the process has none on this GPU yet, which takes memory of the GPU and up to a second.
  static Result<std::shared_ptr<const Context>> open(const Driver& driver, int ordinal);
  // What a context would know, without one.
  static Result<DeviceFacts> facts_of(const Driver& driver, int ordinal);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const noexcept { return driver_; }
  int ordinal() const noexcept { return ordinal_; }
  const DeviceFacts& facts() const noexcept { return facts_; }
  ContextHandle handle() const noexcept { return handle_; }
  Error error(Code code, const std::string& what, std::source_location origin = std::source_location::current()) const;

  // While it lives, the context is current on the calling thread, and what the thread calls breaks no capture of a
  // graph, neither its own nor that of others. Every call of an entry point that needs a context is under one.
  class Use {
   public:
    explicit Use(const Context& context) noexcept;
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    const Driver& driver_;
    bool is_pushed_ = false;
    CaptureMode mode_ = CaptureMode::relaxed;
  };

 private:
  Context(const Driver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}
  Status find();
  Status retain();
  Status learn_facts();

  const Driver& driver_;
  const int ordinal_;
  DeviceNumber number_ = 0;
  ContextHandle handle_ = nullptr;
  DeviceFacts facts_;
};

// True if a call that gives something back needs no report: it has succeeded, or the driver has ended before us, as it
// may at the process's end.
constexpr bool may_be_ignored(Code code) noexcept {
  return code == Code::success || code == Code::deinitialized;
}

}  // namespace hvd::cuda
