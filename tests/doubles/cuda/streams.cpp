// Entry points: streams, events and captures.
#include <algorithm>

#include "state.hpp"

using namespace hvd::cuda;
using hvd::doubles::current_contexts;
using hvd::doubles::Double;
using hvd::doubles::Engine;

namespace {

thread_local CaptureMode mode_of_thread = CaptureMode::global;

bool is_event(EventHandle event) {
  std::lock_guard lock(Double::it().mutex);
  return Double::it().events.contains(event);
}

// What an event stands for now.
Engine::Point point_of(EventHandle event) {
  std::lock_guard lock(Double::it().mutex);
  return event->is_recorded ? event->point : Engine::Point{};
}

Code sleep_until_end_of(Engine::Stream stream) {
  Double& it = Double::it();
  auto end = it.engine().record(stream);
  return end ? it.code_of(it.engine().sleep_until(*end)) : it.code_of(end.error());
}

}  // namespace

HVD_EXPORT Code cuStreamCreateWithPriority(StreamHandle* stream, unsigned flags, int) {
  HVD_BEGIN(context);
  Double& it = Double::it();
  const auto order = flags == stream_non_blocking ? Engine::Order::free : Engine::Order::with_the_default;
  const Engine::Stream made = it.engine().make_stream(it.current_device(), order);
  std::lock_guard lock(it.mutex);
  it.streams.push_back(made);
  void* handle = made;
  if (it.uses_handles_again && !it.destroyed_streams.empty()) {
    handle = it.destroyed_streams.extract(it.destroyed_streams.begin()).value();
    it.streams_by_old_handles[handle] = made;
  }
  *stream = static_cast<StreamHandle>(handle);
  return Code::success;
}
HVD_EXPORT Code cuStreamCreate(StreamHandle* stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}
// What is queued on the stream is still done.
HVD_EXPORT Code cuStreamDestroy_v2(StreamHandle stream) {
  HVD_BEGIN(context);
  if (Double::it().stream_of(stream) == nullptr) return Code::invalid_handle;
  std::lock_guard lock(Double::it().mutex);
  Double::it().destroyed_streams.insert(stream);
  return Code::success;
}
HVD_EXPORT Code cuStreamSynchronize(StreamHandle stream) {
  HVD_BEGIN(context);
  const Engine::Stream found = Double::it().stream_of(stream);
  return found != nullptr ? sleep_until_end_of(found) : Code::invalid_handle;
}
HVD_EXPORT Code cuStreamQuery(StreamHandle stream) {
  HVD_BEGIN(context);
  Double& it = Double::it();
  const Engine::Stream found = it.stream_of(stream);
  if (found == nullptr) return Code::invalid_handle;
  auto end = it.engine().record(found);
  if (!end) return it.code_of(end.error());
  auto is_there = it.engine().look(*end, nullptr);
  return !is_there ? it.code_of(is_there.error()) : *is_there ? Code::success : Code::not_ready;
}
HVD_EXPORT Code cuStreamWaitEvent(StreamHandle stream, EventHandle event, unsigned) {
  HVD_BEGIN(context);
  const Engine::Stream found = Double::it().stream_of(stream);
  if (found == nullptr || !is_event(event)) return Code::invalid_handle;
  const Engine::Point point = point_of(event);
  return point.stream == nullptr ? Code::success : Double::it().code_of(Double::it().engine().wait(found, point));
}
HVD_EXPORT Code cuStreamWriteValue32_v2(StreamHandle stream, Address word, std::uint32_t value, unsigned) {
  HVD_BEGIN(context);
  const Engine::Stream found = Double::it().stream_of(stream);
  if (found == nullptr) return Code::invalid_handle;
  if (word % 4 != 0) return Code::invalid_value;
  hvd::testing::Work work;
  work.kind = hvd::testing::Kind::word;
  work.word = {reinterpret_cast<void*>(word), value};
  return hvd::doubles::queue(found, std::move(work));
}

HVD_EXPORT Code cuEventCreate(EventHandle* event, unsigned) {
  HVD_BEGIN(context);
  auto* made = new EventOfDriver;
  made->device = Double::it().current_device();
  std::lock_guard lock(Double::it().mutex);
  Double::it().events.insert(made);
  *event = made;
  return Code::success;
}
HVD_EXPORT Code cuEventDestroy_v2(EventHandle event) {
  HVD_BEGIN(context);
  std::lock_guard lock(Double::it().mutex);
  if (Double::it().events.erase(event) == 0) return Code::invalid_handle;
  delete event;
  return Code::success;
}
HVD_EXPORT Code cuEventRecord(EventHandle event, StreamHandle stream) {
  HVD_BEGIN(context);
  Double& it = Double::it();
  const Engine::Stream found = it.stream_of(stream);
  if (found == nullptr || !is_event(event) || event->device != it.engine().device_of(found))
    return Code::invalid_handle;
  auto point = it.engine().record(found);
  if (!point) return it.code_of(point.error());
  std::lock_guard lock(it.mutex);
  event->point = *point;
  event->is_recorded = true;
  return Code::success;
}
HVD_EXPORT Code cuEventQuery(EventHandle event) {
  HVD_BEGIN(context);
  if (!is_event(event)) return Code::invalid_handle;
  auto is_there = Double::it().engine().look(point_of(event), nullptr);
  return !is_there ? Double::it().code_of(is_there.error()) : *is_there ? Code::success : Code::not_ready;
}
HVD_EXPORT Code cuEventSynchronize(EventHandle event) {
  HVD_BEGIN(context);
  if (!is_event(event)) return Code::invalid_handle;
  return Double::it().code_of(Double::it().engine().sleep_until(point_of(event)));
}

HVD_EXPORT Code cuStreamBeginCapture_v2(StreamHandle stream, CaptureMode mode) {
  HVD_BEGIN(context);
  const Engine::Stream found = Double::it().stream_of(stream);
  if (found == nullptr) return Code::invalid_handle;
  const auto capture = mode == CaptureMode::global ? Engine::Capture::global : Engine::Capture::relaxed;
  return Double::it().code_of(Double::it().engine().begin_capture(found, capture));
}
// The double keeps no graph: it only tells whether the capture went well.
HVD_EXPORT Code cuStreamEndCapture(StreamHandle stream, void** graph) {
  HVD_BEGIN(context);
  const Engine::Stream found = Double::it().stream_of(stream);
  if (found == nullptr) return Code::invalid_handle;
  *graph = nullptr;
  return Double::it().engine().end_capture(found) ? Code::success : Code::stream_capture_invalidated;
}
HVD_EXPORT Code cuStreamIsCapturing(StreamHandle stream, CaptureStatus* status) {
  HVD_BEGIN(context);
  const Engine::Stream found = Double::it().stream_of(stream);
  if (found == nullptr) return Code::invalid_handle;
  *status = Double::it().engine().is_capturing(found) ? CaptureStatus::active : CaptureStatus::none;
  return Code::success;
}
HVD_EXPORT Code cuStreamGetCtx(StreamHandle stream, ContextHandle* context) {
  HVD_BEGIN(context);
  const Engine::Stream found = Double::it().stream_of(stream);
  if (found == nullptr) return Code::invalid_handle;
  *context = &Double::it().context_of(Double::it().engine().device_of(found));
  return Code::success;
}
HVD_EXPORT Code cuStreamGetId(StreamHandle stream, unsigned long long* id) {
  HVD_BEGIN(context);
  const Engine::Stream found = Double::it().stream_of(stream);
  if (found == nullptr) return Code::invalid_handle;
  *id = static_cast<unsigned long long>(Double::it().engine().number_of(found));
  return Code::success;
}
HVD_EXPORT Code cuThreadExchangeStreamCaptureMode(CaptureMode* mode) {
  HVD_BEGIN(start);
  std::swap(*mode, mode_of_thread);
  Engine::relax_captures(mode_of_thread == CaptureMode::relaxed);
  return Code::success;
}
