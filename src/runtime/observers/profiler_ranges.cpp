#include "runtime/observers/profiler_ranges.hpp"

#include "base/log.hpp"

namespace hvd::runtime {

std::unique_ptr<ProfilerRanges> ProfilerRanges::for_profiler(const Environment& environment) {
  auto profiler = nvtx::profiler(environment);
  if (!profiler)
    log::warning("the profiler gets no ranges of operations: " + profiler.error().message +
                 " (HOROVOD_DISABLE_NVTX_RANGES=1 ends this notice)");
  if (!profiler || *profiler == nullptr) return nullptr;
  return std::unique_ptr<ProfilerRanges>(new ProfilerRanges(**profiler));
}

ProfilerRanges::~ProfilerRanges() {
  for (const Ranges* ranges : {&operations_, &batches_})
    for (const auto& [key, range] : *ranges) profiler_.range_end(domain_, range);
}

void ProfilerRanges::submitted(const Operation& operation) {
  const Signature& signature = operation.signature;
  const bool has_rows = signature.row().agreed == VerbRow::Agreed::all_but_first;
  const std::int64_t bytes = signature.bytes(has_rows ? operation.submission.first_dimension : 1).value_or(0);
  begin(operations_, operation.number, operation.entry->name.c_str(), static_cast<std::uint64_t>(bytes));
}

void ProfilerRanges::issued(Sequence batch, std::string_view device, std::string_view name) {
  text_.assign(device).append(": ").append(name);
  begin(batches_, batch.value, text_.c_str(), batch.value);
}

void ProfilerRanges::ended(Sequence batch) {
  end(batches_, batch.value);
}

void ProfilerRanges::finished(const Operation& operation, Sequence) {
  end(operations_, operation.number);
}

void ProfilerRanges::failed(const Operation& operation, const Error&) {
  end(operations_, operation.number);
}

void ProfilerRanges::begin(Ranges& ranges, std::uint64_t key, const char* text, std::uint64_t number) {
  end(ranges, key);
  nvtx::Attributes attributes;
  attributes.message = text;
  attributes.payload = number;
  ranges.emplace(key, profiler_.range_start(domain_, &attributes));
}

void ProfilerRanges::end(Ranges& ranges, std::uint64_t key) {
  const auto found = ranges.find(key);
  if (found == ranges.end()) return;
  profiler_.range_end(domain_, found->second);
  ranges.erase(found);
}

}  // namespace hvd::runtime
