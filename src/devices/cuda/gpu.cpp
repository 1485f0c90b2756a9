#include "devices/cuda/gpu.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "base/settings/config.hpp"
#include "native/cuda/memory_node.hpp"
#include "native/posix/processes/thread.hpp"

namespace hvd::devices::cuda {

using hvd::cuda::Address;
using hvd::cuda::Code;
using hvd::cuda::Context;
using hvd::cuda::StreamHandle;

namespace {

// Few tensors are copied by the driver. So are large ones between the host and the GPU, where the copy engines are as
// fast and leave the multiprocessors to the program; on the GPU itself each of their copies would take 4 us (H200).
constexpr std::size_t few_moves = 2, large_bytes = 512 << 10;

// So many fit into a piece of descriptors.
constexpr std::size_t most_moves_of_a_launch = 1536;
static_assert(most_moves_of_a_launch * sizeof(MoveEntry) + (most_blocks_of_a_launch + 1) * 4 <=
              DescriptorRing::piece_bytes);

Address address_of(const void* pointer) {
  return reinterpret_cast<Address>(pointer);
}

bool are_only_copied(const Treatment& treatment) {
  return treatment.from == treatment.to && (treatment.scale == 1.0 || treatment.from == DataType::boolean);
}
// Whether the moves are only there to become NaN after an abort.
bool are_only_looked_after(std::span<const Move> moves, const Treatment& treatment) {
  return treatment.aborted != nullptr && are_only_copied(treatment) &&
         std::ranges::all_of(moves, [](const Move& move) { return move.from == move.to; });
}

}  // namespace

Gpu::Parts::Parts(std::shared_ptr<const Context> of_gpu)
    : context(std::move(of_gpu)),
      health(std::make_shared<Health>()),
      kernels(context),
      events(context, kernels, *health) {}

Result<std::unique_ptr<Device>> Gpu::open(int ordinal, const Environment& environment) {
  auto driver = hvd::cuda::open_driver(environment);
  if (!driver) return driver.error();
  auto context = Context::open(**driver, ordinal);
  if (!context) return context.error();
  auto parts = std::make_shared<Parts>(*context);
  HVD_RETURN_IF_ERROR(parts->events.start());
  if (const std::string& lack = parts->kernels.lack(); !lack.empty())
    log::warning(lack + ": tensors are copied one by one, and cannot be scaled or converted on the GPU");
  const auto copies_batches = is_on(environment, "HOROVOD_BATCH_D2D_MEMCOPIES");
  if (!copies_batches) return copies_batches.error();
  const auto seconds = number_of(environment, "HOROVOD_PEER_TIMEOUT");
  if (!seconds) return seconds.error();
  const std::chrono::duration<double> patience(*seconds);
  const std::string root = environment.get("HOROVOD_GPU_ROOT").value_or("");
  const int memory_node = hvd::cuda::memory_node_of((*context)->facts().bus_id, root);
  log::debug("page-locked memory of cuda device " + std::to_string(ordinal) + " comes from " +
             (memory_node < 0 ? "the NUMA node of the thread" : "NUMA node " + std::to_string(memory_node)));
  return std::unique_ptr<Device>(new Gpu(std::move(parts), !*copies_batches, patience, memory_node));
}

Gpu::Gpu(std::shared_ptr<Parts> parts, bool copies_one_by_one, std::chrono::duration<double> patience, int memory_node)
    : Device(DeviceKind::cuda, parts->context->ordinal()),
      parts_(std::move(parts)),
      watcher_(std::make_shared<Watcher>(
          Watcher::Watched{parts_->context, parts_->health, std::shared_ptr<Events>(parts_, &parts_->events)})),
      pool_(std::make_shared<Pool>(parts_->context, parts_->health, std::shared_ptr<Events>(parts_, &parts_->events),
                                   watcher_, memory_node)),
      copies_one_by_one_(copies_one_by_one),
      patience_(patience),
      chip_{static_cast<std::uint32_t>(parts_->context->facts().multiprocessors)} {}

// Before the driver takes memory back, it waits for all that is queued on the GPU, also by the program. Some of it may
// never end: after a loss, collectives of another library. So a thread gives the memory back.
Gpu::~Gpu() {
  if (hvd::cuda::is_forked()) return;
  struct Rest {
    std::shared_ptr<Parts> parts;
    std::shared_ptr<Watcher> watcher;
    std::shared_ptr<Pool> pool;
    std::shared_ptr<DescriptorRing> descriptors;  // ends first
  };
  struct Work {
    std::mutex mutex;
    std::condition_variable news;
    bool has_ended = false;
  };
  const int ordinal = parts_->context->ordinal();
  auto rest = std::make_shared<Rest>(std::move(parts_), std::move(watcher_), std::move(pool_), std::move(descriptors_));
  const auto work = std::make_shared<Work>();
  auto thread = posix::start_thread("hvd-cuda", [work, rest = std::move(rest)]() mutable {
    if (!rest->parts->health->has_failed()) (void)hvd::cuda::make_device_memory(rest->parts->context, 1);
    {
      std::lock_guard lock(work->mutex);
      work->has_ended = true;
    }
    work->news.notify_all();
    rest.reset();
  });
  if (!thread) return;
  std::unique_lock lock(work->mutex);
  if (work->news.wait_for(lock, patience_, [&] { return work->has_ended; })) {
    lock.unlock();
    thread->join();
    return;
  }
  thread->detach();
  log::warning("work of the program on cuda device " + std::to_string(ordinal) +
               " has not ended in time (HOROVOD_PEER_TIMEOUT); what Horovod has there is given back after it");
}

Result<Memory> Gpu::allocate(std::size_t bytes, Where where, Stream user) {
  return pool_->allocate(bytes, where, user);
}

Result<std::shared_ptr<void>> Gpu::stream() {
  if (parts_->health->has_failed()) return parts_->health->failure();
  auto handle = parts_->events.make_stream();
  if (!handle) return handle.error();
  return std::shared_ptr<void>(
      *handle, [parts = parts_](void* stream) { parts->events.end_stream(static_cast<StreamHandle>(stream)); });
}

// ---- moves

Status Gpu::move(Stream stream, std::span<const Move> moves, const Treatment& treatment) {
  if (moves.empty()) return {};
  if (parts_->health->has_failed()) return parts_->health->failure();
  const Context::Use use(*parts_->context);
  const bool has_kernels = parts_->kernels.lack().empty();
  if (are_only_looked_after(moves, treatment) && (!has_kernels || !is_floating(treatment.to))) return {};
  if (are_only_copied(treatment) && is_for_copies(moves, size_of(treatment.to)) &&
      (treatment.aborted == nullptr || !has_kernels))
    return copy(stream, moves, size_of(treatment.to));
  if (const std::string& lack = parts_->kernels.lack(); !lack.empty())
    return Error(ErrorCode::unsupported, "tensors cannot be scaled or converted on a GPU: " + lack);
  for (; !moves.empty(); moves = moves.subspan(std::min(moves.size(), most_moves_of_a_launch)))
    HVD_RETURN_IF_ERROR(launch(stream, moves.first(std::min(moves.size(), most_moves_of_a_launch)), treatment));
  return {};
}

bool Gpu::is_for_copies(std::span<const Move> moves, std::size_t element_bytes) const {
  if (copies_one_by_one_ || !parts_->kernels.lack().empty() || moves.size() <= few_moves) return true;
  if (!pool_->is_on_host(moves[0])) return false;
  std::size_t bytes = 0;
  for (const Move& move : moves) bytes += static_cast<std::size_t>(move.count) * element_bytes;
  return bytes / moves.size() >= large_bytes;
}

Status Gpu::copy(Stream stream, std::span<const Move> moves, std::size_t element_bytes) {
  const hvd::cuda::Driver& driver = parts_->context->driver();
  const auto handle = static_cast<StreamHandle>(stream.handle);
  for (const Move& move : moves) {
    const std::size_t bytes = static_cast<std::size_t>(move.count) * element_bytes;
    if (bytes == 0 || move.from == move.to) continue;
    const Code code = move.from == nullptr ? driver.fill_bytes(address_of(move.to), 0, bytes, handle)
                                           : driver.copy(address_of(move.to), address_of(move.from), bytes, handle);
    HVD_RETURN_IF_ERROR(parts_->health->check(*parts_->context, code, "a copy of a tensor"));
  }
  return {};
}

// By a kernel, because from a copy of the driver to a kernel the GPU changes engines, which takes as long as moving
// 64 MB.
Status Gpu::copy_descriptors(StreamHandle stream, const DescriptorRing::Piece& piece, std::size_t bytes) {
  const Move move{piece.host, piece.device, static_cast<std::int64_t>(bytes)};
  MoveList list;
  auto planned = launch_moves({&move, 1}, {DataType::u8, DataType::u8, 1.0}, chip_, {}, nullptr, list);
  if (!planned) return planned.error();
  return parts_->kernels.launch(planned->kernel, planned->blocks, stream, &list, *parts_->health);
}

Result<Launch> Gpu::plan_launch(std::span<const Move> moves, const Treatment& treatment, const Descriptors& descriptors,
                                MoveList& list) const {
  if (are_only_looked_after(moves, treatment))
    return launch_poison(moves, treatment.to, chip_, descriptors, treatment.aborted, list);
  return launch_moves(moves, treatment, chip_, descriptors, treatment.aborted, list);
}

Status Gpu::launch(const Launch& planned, StreamHandle stream, MoveList& list) {
  for (const Launch& one : {planned, poison_after(planned, list)})
    if (one.blocks > 0)
      HVD_RETURN_IF_ERROR(parts_->kernels.launch(one.kernel, one.blocks, stream, &list, *parts_->health));
  return {};
}

Status Gpu::launch(Stream stream, std::span<const Move> moves, const Treatment& treatment) {
  const auto handle = static_cast<StreamHandle>(stream.handle);
  MoveList list;
  if (descriptors_of_moves(moves.size(), chip_) == 0) {
    auto planned = plan_launch(moves, treatment, {}, list);
    if (!planned) return planned.error();
    return launch(*planned, handle, list);
  }
  auto piece = descriptors_->take(*pool_, parts_->events);
  if (!piece) return piece.error();
  const auto queue = [&]() -> Status {
    auto planned = plan_launch(moves, treatment, {piece->host, piece->device, DescriptorRing::piece_bytes}, list);
    if (!planned) return planned.error();
    if (planned->blocks == 0) return {};
    HVD_RETURN_IF_ERROR(copy_descriptors(handle, *piece, planned->descriptor_bytes));
    return launch(*planned, handle, list);
  };
  const Status queued = queue();
  auto end = parts_->events.record_for_host(stream);
  if (end) {
    piece->free_at = *end;
    descriptors_->give_back(*piece);
  }  // else nobody knows when it is free
  return !queued ? queued : end ? Status{} : Status(end.error());
}

// ---- events

Result<Event> Gpu::record(Stream stream) {
  return parts_->events.record(stream);
}

Status Gpu::wait(Stream stream, Event event) {
  return parts_->events.wait(stream, event);
}

Result<bool> Gpu::query(Event event, posix::WaitWord* wake) {
  if (parts_->events.has_come(event)) {
    watcher_->forget(event);
    return true;
  }
  if (parts_->health->has_failed()) return parts_->health->failure();
  HVD_RETURN_IF_ERROR(watcher_->watch(event, wake));
  return false;
}

}  // namespace hvd::devices::cuda
