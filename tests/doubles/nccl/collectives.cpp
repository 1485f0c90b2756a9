// Entry points: collectives and messages.
#include <cstring>
#include <memory>

#include "devices/host/host_kernels.hpp"
#include "doubles/cuda/control.h"
#include "group.hpp"

using namespace hvd::doubles::nccl;
using hvd::DataType;
using hvd::ReduceOp;

namespace {

std::size_t size_of(Type type) {
  constexpr std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[static_cast<std::size_t>(type)];
}
DataType ours(Type type) {
  constexpr DataType types[] = {DataType::i8,  DataType::u8,  DataType::i32, DataType::u32, DataType::i64,
                                DataType::u64, DataType::f16, DataType::f32, DataType::f64, DataType::bf16};
  return types[static_cast<std::size_t>(type)];
}
ReduceOp ours(Operation operation) {
  constexpr ReduceOp operations[] = {ReduceOp::sum, ReduceOp::product, ReduceOp::max, ReduceOp::min};
  return operations[static_cast<std::size_t>(operation)];
}
std::byte* device(const void* address) {
  return static_cast<std::byte*>(const_cast<void*>(address));
}
std::byte* inner(const void* address) {
  return static_cast<std::byte*>(hvd_double_inner(address));
}
std::string text(const char* verb, std::size_t count, Type type, int operation, int root) {
  return std::string(verb) + " of " + std::to_string(count) + " elements of type " +
         std::to_string(static_cast<int>(type)) + ", operation " + std::to_string(operation) + ", root " +
         std::to_string(root);
}

// What the ranks have contributed to a reduction, by rank.
using Inputs = std::vector<std::vector<std::byte>>;

// The rank's part of its own input is at `part`. Rank `to` (all with -1) gets the sums of the parts for it: with
// `has_shares`, each rank's part follows the other in `from`.
Code reduction(const char* verb, Communicator* communicator, const void* from, void* to, std::size_t count, Type type,
               Operation operation, int root, bool has_shares, void* stream) {
  const std::size_t bytes = count * size_of(type);
  if (bytes == 0) return add_to_group(communicator, {}, stream);
  const int me = communicator->rank, size = communicator->size;
  const bool receives = root < 0 || root == me;
  auto inputs = std::make_shared<Inputs>(static_cast<std::size_t>(size));
  auto part = [=](int rank) { return device(from) + (has_shares ? static_cast<std::size_t>(rank) * bytes : 0); };
  Call call{text(verb, count, type, static_cast<int>(operation), root)};
  for (int rank = 0; rank < size; ++rank) {
    auto& input = (*inputs)[static_cast<std::size_t>(rank)];
    if (receives) input.resize(bytes);
    if (rank == me) continue;
    if (root < 0 || root == rank) call.messages.push_back({true, rank, part(rank), bytes, true});
    if (receives) call.messages.push_back({false, rank, input.data(), bytes, false});
  }
  call.reads.push_back({from, has_shares ? bytes * static_cast<std::size_t>(size) : bytes});
  if (receives) {
    call.writes.push_back({to, bytes});
    call.before = [=] { std::memcpy((*inputs)[static_cast<std::size_t>(me)].data(), inner(part(me)), bytes); };
    call.after = [=] {
      std::vector<const void*> sources;
      for (const auto& input : *inputs) sources.push_back(input.data());
      void* sum = inner(to);
      hvd::devices::reduce_kernel(ours(type), ours(operation))(sources.data(), size, &sum, 1,
                                                               static_cast<std::int64_t>(count), {1.0, 1.0});
    };
  }
  return add_to_group(communicator, std::move(call), stream);
}

}  // namespace

HVD_EXPORT Code ncclAllReduce(const void* from, void* to, std::size_t count, Type type, Operation operation,
                              Communicator* communicator, void* stream) {
  HVD_BEGIN();
  return reduction("allreduce", communicator, from, to, count, type, operation, -1, false, stream);
}
HVD_EXPORT Code ncclReduce(const void* from, void* to, std::size_t count, Type type, Operation operation, int root,
                           Communicator* communicator, void* stream) {
  HVD_BEGIN();
  return reduction("reduce", communicator, from, to, count, type, operation, root, false, stream);
}
HVD_EXPORT Code ncclReduceScatter(const void* from, void* to, std::size_t count, Type type, Operation operation,
                                  Communicator* communicator, void* stream) {
  HVD_BEGIN();
  return reduction("reduce-scatter", communicator, from, to, count, type, operation, -1, true, stream);
}
HVD_EXPORT Code ncclBroadcast(const void* from, void* to, std::size_t count, Type type, int root,
                              Communicator* communicator, void* stream) {
  HVD_BEGIN();
  const std::size_t bytes = count * size_of(type);
  if (bytes == 0) return add_to_group(communicator, {}, stream);
  const int me = communicator->rank;
  Call call{text("broadcast", count, type, 0, root)};
  if (me == root) {
    call.reads.push_back({from, bytes});
    for (int rank = 0; rank < communicator->size; ++rank)
      if (rank != me) call.messages.push_back({true, rank, device(from), bytes, true});
    if (from != to) {
      call.writes.push_back({to, bytes});
      call.before = [=] { std::memmove(inner(to), inner(from), bytes); };
    }
  } else {
    call.writes.push_back({to, bytes});
    call.messages.push_back({false, root, device(to), bytes, true});
  }
  return add_to_group(communicator, std::move(call), stream);
}
HVD_EXPORT Code ncclBcast(void* data, std::size_t count, Type type, int root, Communicator* communicator,
                          void* stream) {
  return ncclBroadcast(data, data, count, type, root, communicator, stream);
}
HVD_EXPORT Code ncclAllGather(const void* from, void* to, std::size_t count, Type type, Communicator* communicator,
                              void* stream) {
  HVD_BEGIN();
  const std::size_t bytes = count * size_of(type);
  if (bytes == 0) return add_to_group(communicator, {}, stream);
  const int me = communicator->rank;
  std::byte* const mine = device(to) + static_cast<std::size_t>(me) * bytes;
  Call call{text("allgather", count, type, 0, -1)};
  call.reads.push_back({from, bytes});
  call.writes.push_back({to, bytes * static_cast<std::size_t>(communicator->size)});
  call.before = [=] { std::memmove(inner(mine), inner(from), bytes); };
  for (int rank = 0; rank < communicator->size; ++rank) {
    if (rank == me) continue;
    call.messages.push_back({true, rank, mine, bytes, true});
    call.messages.push_back({false, rank, device(to) + static_cast<std::size_t>(rank) * bytes, bytes, true});
  }
  return add_to_group(communicator, std::move(call), stream);
}
HVD_EXPORT Code ncclSend(const void* from, std::size_t count, Type type, int peer, Communicator* communicator,
                         void* stream) {
  HVD_BEGIN();
  const std::size_t bytes = count * size_of(type);
  if (bytes == 0) return add_to_group(communicator, {}, stream);
  Call call{"messages"};
  call.reads.push_back({from, bytes});
  call.messages.push_back({true, peer, device(from), bytes, true});
  return add_to_group(communicator, std::move(call), stream);
}
HVD_EXPORT Code ncclRecv(void* to, std::size_t count, Type type, int peer, Communicator* communicator, void* stream) {
  HVD_BEGIN();
  const std::size_t bytes = count * size_of(type);
  if (bytes == 0) return add_to_group(communicator, {}, stream);
  Call call{"messages"};
  call.writes.push_back({to, bytes});
  call.messages.push_back({false, peer, device(to), bytes, true});
  return add_to_group(communicator, std::move(call), stream);
}
