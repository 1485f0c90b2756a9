#include "control.h"

#include <algorithm>
#include <memory>

#include "state.hpp"

using hvd::cuda::Code;
using hvd::doubles::Double;
using hvd::doubles::Engine;
using hvd::testing::Outcome;
using hvd::testing::Range;
using hvd::testing::Work;

#define HVD_CONTROL extern "C" __attribute__((visibility("default")))

namespace {

std::vector<Range> ranges_of(const hvd_double_range* ranges, size_t count) {
  std::vector<Range> list;
  for (size_t i = 0; i < count; ++i) list.push_back({ranges[i].begin, ranges[i].bytes});
  return list;
}

Outcome outcome_of(int outcome) {
  switch (outcome) {
    case HVD_DOUBLE_AGAIN: return Outcome::again;
    case HVD_DOUBLE_ABORTED: return Outcome::aborted;
    case HVD_DOUBLE_FAILED: Double::it().fail(Code::launch_failed); return Outcome::failed;
    default: return Outcome::done;
  }
}

thread_local std::unique_ptr<Engine::Separate> separate;

std::shared_ptr<hvd::testing::Graph> graph;
std::size_t first_of_record = 0;  // what was queued before takes no time

const char* name_of(hvd::testing::Kind kind) {
  using hvd::testing::Kind;
  switch (kind) {
    case Kind::kernel: return "kernel";
    case Kind::to_host: return "to host";
    case Kind::to_device: return "to device";
    case Kind::inside: return "inside";
    case Kind::host_wait: return "host wait";
    case Kind::host_function:
    case Kind::word:
    case Kind::gives_back:
    case Kind::record:
    case Kind::wait:
    case Kind::host_stage: break;
  }
  return "other";
}

hvd_double_piece piece_of(const hvd::testing::Node& node) {
  return {node.label.c_str(), name_of(node.kind), node.stream, node.bytes};
}

}  // namespace

HVD_CONTROL size_t hvd_double_take_findings(void (*each)(void*, const char*), void* context) {
  const auto findings = hvd::testing::take_findings();
  for (const auto& finding : findings)
    if (each != nullptr) each(context, finding.text().c_str());
  return findings.size();
}
HVD_CONTROL size_t hvd_double_allocations(void) {
  std::lock_guard lock(Double::it().mutex);
  return Double::it().allocations.size();
}
HVD_CONTROL size_t hvd_double_calls(const char* entry_point) {
  std::lock_guard lock(Double::it().mutex);
  return Double::it().calls[entry_point];
}
HVD_CONTROL size_t hvd_double_calls_of_thread(const char* entry_point) {
  auto& calls = hvd::doubles::calls_of_this_thread();
  if (entry_point != nullptr) return calls[entry_point];
  size_t all = 0;
  for (const auto& [name, count] : calls) all += count;
  return all;
}
HVD_CONTROL void hvd_double_reset(void) {
  separate.reset();
  Double::it().reset();
}

HVD_CONTROL int hvd_double_submit(void* stream, const char* label, const char* meeting, const hvd_double_range* reads,
                                  size_t read_count, const hvd_double_range* writes, size_t write_count,
                                  int (*run)(void*), void (*forget)(void*), void* context) {
  const Engine::Stream queue = Double::it().stream_of(stream);
  if (queue == nullptr) return static_cast<int>(Code::invalid_handle);
  Work work;
  work.label = label != nullptr ? label : "";
  work.meeting = meeting != nullptr ? meeting : "";
  work.reads = ranges_of(reads, read_count);
  work.writes = ranges_of(writes, write_count);
  work.failure = "work of a program has failed";
  for (const Range& range : work.writes) work.bytes += range.bytes;
  const std::shared_ptr<void> kept(context, [forget](void* it) {
    if (forget != nullptr) forget(it);
  });
  work.run = [run, kept] { return outcome_of(run(kept.get())); };
  return static_cast<int>(hvd::doubles::queue(queue, std::move(work)));
}
HVD_CONTROL int hvd_double_launch(void* stream, const char* label, const hvd_double_range* reads, size_t read_count,
                                  const hvd_double_range* writes, size_t write_count, void (*run)(void*),
                                  void* context) {
  struct Job {
    void (*run)(void*);
    void* context;
  };
  auto* job = new Job{run, context};
  return hvd_double_submit(
      stream, label, nullptr, reads, read_count, writes, write_count,
      [](void* it) {
        const auto& mine = *static_cast<Job*>(it);
        mine.run(mine.context);
        return static_cast<int>(HVD_DOUBLE_DONE);
      },
      [](void* it) { delete static_cast<Job*>(it); }, job);
}
HVD_CONTROL void hvd_double_has_news(void) {
  Double::it().engine().has_news();
}
HVD_CONTROL void* hvd_double_inner(const void* address) {
  return hvd::testing::inner_address(address);
}
HVD_CONTROL void hvd_double_add_kernel(const char* name, size_t parameter_bytes,
                                       void (*uses)(const void*, unsigned, hvd_double_add_range, void*),
                                       void (*run)(const void*, unsigned)) {
  auto function = std::make_unique<hvd::cuda::FunctionOfDriver>();
  function->name = name;
  function->parameter_bytes = parameter_bytes;
  function->uses = [uses](const void* parameters, std::uint32_t blocks, Work& work) {
    const auto add = [](void* list, const void* begin, size_t bytes, int writes) {
      auto& mine = *static_cast<Work*>(list);
      (writes != 0 ? mine.writes : mine.reads).push_back({begin, bytes});
    };
    uses(parameters, blocks, add, &work);
  };
  function->run = run;
  std::lock_guard lock(Double::it().mutex);
  Double::it().functions[name] = std::move(function);
}

HVD_CONTROL int hvd_double_number_of_stream(void* stream) {
  return Double::it().engine().number_of(Double::it().stream_of(stream));
}
HVD_CONTROL void hvd_double_record(void) {
  if (graph == nullptr) {
    graph = std::make_shared<hvd::testing::Graph>();
    Double::it().engine().record_into(graph);
  }
  first_of_record = graph->nodes().size();
}
HVD_CONTROL void hvd_double_timetable(double (*duration)(void*, const hvd_double_piece*),
                                      void (*each)(void*, const hvd_double_piece*, double, double), void* context) {
  std::vector<hvd::testing::Node> nodes = graph->nodes();
  constexpr const char* earlier = "earlier";
  for (std::size_t i = 0; i < first_of_record; ++i) nodes[i].label = earlier;
  const hvd::testing::Costs costs{[=](const hvd::testing::Node& node) {
    const hvd_double_piece piece = piece_of(node);
    return hvd::testing::Cost{node.label == earlier ? 0.0 : duration(context, &piece)};
  }};
  const hvd::testing::Timetable table(nodes, costs);
  for (std::size_t i = first_of_record; i < nodes.size(); ++i) {
    const hvd_double_piece piece = piece_of(nodes[i]);
    each(context, &piece, table.begin(static_cast<int>(i)), table.end(static_cast<int>(i)));
  }
}

HVD_CONTROL void hvd_double_hold(void* stream) {
  Double::it().engine().hold(Double::it().stream_of(stream));
}
HVD_CONTROL void hvd_double_let_go(void* stream) {
  Double::it().engine().let_go(Double::it().stream_of(stream));
}
HVD_CONTROL void hvd_double_use_handles_again(int uses) {
  std::lock_guard lock(Double::it().mutex);
  Double::it().uses_handles_again = uses != 0;
}
HVD_CONTROL void hvd_double_hang(int is_hanging) {
  if (is_hanging != 0) Double::it().engine().hang(Engine::Call::look);
  else Double::it().engine().let_return(Engine::Call::look);
}

HVD_CONTROL void hvd_double_refuse(const char* entry_point, int code, int calls, int always) {
  std::lock_guard lock(Double::it().mutex);
  Double::it().refusals[entry_point] = {static_cast<Code>(code), calls, always != 0};
}
HVD_CONTROL void hvd_double_fail_kernel(const char* name, int code, int launches) {
  std::lock_guard lock(Double::it().mutex);
  Double::it().failing_kernels.push_back({name != nullptr ? name : "", {static_cast<Code>(code), launches, false}});
}
HVD_CONTROL void hvd_double_fail(int code) {
  Double::it().fail(static_cast<Code>(code));
}
HVD_CONTROL void hvd_double_refuse_image(int is_ptx, int code) {
  std::lock_guard lock(Double::it().mutex);
  Double::it().refused_images[is_ptx] = static_cast<Code>(code);
}
HVD_CONTROL void hvd_double_set_memory(size_t bytes) {
  std::lock_guard lock(Double::it().mutex);
  Double::it().most_bytes = bytes;
}
HVD_CONTROL void hvd_double_set_mode(int device, int mode, int is_taken) {
  std::lock_guard lock(Double::it().mutex);
  Double::it().modes[device] = {mode, is_taken != 0};
}
HVD_CONTROL void hvd_double_make_part(int device, const char* uuid) {
  std::lock_guard lock(Double::it().mutex);
  Double::it().parts[device] = uuid;
}
HVD_CONTROL void hvd_double_set_version(int version) {
  Double::it().version = version;
}
HVD_CONTROL void hvd_double_end(void) {
  std::lock_guard lock(Double::it().mutex);
  Double::it().is_over = true;
}

HVD_CONTROL void hvd_double_separate(int is_separate) {
  separate.reset();
  if (is_separate != 0) separate = std::make_unique<Engine::Separate>(Double::it().engine());
}
HVD_CONTROL void hvd_double_is_told(void) {
  if (separate != nullptr) separate->is_told();
}
