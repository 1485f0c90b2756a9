#pragma once
// Shows the operations to NVIDIA's profilers (nsys profile), each as a range from its submission to its end, and each
// batch on a device from its issue to its end there. Without a profiler there is no such observer.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/settings/environment.hpp"
#include "native/nvtx/profiler.hpp"
#include "runtime/observers/observer.hpp"

namespace hvd::runtime {

class ProfilerRanges final : public Observer {
 public:
  // Returns null if no profiler wants ranges. If its library cannot be used, a warning says why.
  static std::unique_ptr<ProfilerRanges> for_profiler(const Environment& environment);
  // Ends the ranges that are left.
  ~ProfilerRanges() override;

  void submitted(const Operation& operation) override;
  void issued(Sequence batch, std::string_view device, std::string_view name) override;
  void ended(Sequence batch) override;
  void finished(const Operation& operation, Sequence batch) override;
  void failed(const Operation& operation, const Error& error) override;

 private:
  using Ranges = std::unordered_map<std::uint64_t, nvtx::RangeId>;
  explicit ProfilerRanges(const nvtx::Profiler& profiler)
      : profiler_(profiler), domain_(profiler.domain_create("Horovod")) {}
  void begin(Ranges& ranges, std::uint64_t key, const char* text, std::uint64_t number);
  void end(Ranges& ranges, std::uint64_t key);

  const nvtx::Profiler& profiler_;
  const nvtx::DomainHandle domain_;
  Ranges operations_, batches_;  // the open ones, by the operation's number and the batch's
  std::string text_;
};

}  // namespace hvd::runtime
