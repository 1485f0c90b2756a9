// Entry points: memory, and copies of it.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "native/posix/memory/near_memory.hpp"
#include "state.hpp"

namespace hvd::doubles {
namespace {

constexpr std::size_t most_remembered = std::size_t{4} << 20;  // bytes of a copy that may be a list for a launch

Code allocate(Engine::Where where, std::size_t bytes, Address& address) {
  Double& it = Double::it();
  if (bytes == 0) return Code::invalid_value;
  // A capture of another thread in the mode `global` is broken by allocations, too.
  if (auto looked = it.engine().look({}, nullptr); !looked) return it.code_of(looked.error());
  std::lock_guard lock(it.mutex);
  const int device = it.current_device();
  const bool is_on_host = where == Engine::Where::page_locked;
  std::size_t& used = it.bytes_of_device[is_on_host ? -1 : device];
  if (it.most_bytes > 0 && used + bytes > it.most_bytes) return Code::out_of_memory;
  auto holding = it.engine().allocate(device, where, bytes);
  if (!holding) return Code::out_of_memory;
  used += bytes;
  address = reinterpret_cast<Address>(holding->data());
  it.allocations[address] = {*holding, device, is_on_host};
  return Code::success;
}

// Waits for all work of the device, as the driver does.
Code free(Address address, bool is_on_host) {
  Double& it = Double::it();
  if (address == 0) return Code::success;
  Double::Allocation found;
  {
    std::lock_guard lock(it.mutex);
    auto entry = it.allocations.find(address);
    if (entry == it.allocations.end() || entry->second.is_on_host != is_on_host) return Code::invalid_value;
    found = entry->second;
  }
  if (const Code code = it.wait_for_device(found.device); code != Code::success) return code;
  std::lock_guard lock(it.mutex);
  it.allocations.erase(address);
  it.bytes_of_device[is_on_host ? -1 : found.device] -= found.holding.bytes();
  const auto* begin = found.holding.data();
  it.arriving.erase(it.arriving.lower_bound(begin), it.arriving.lower_bound(begin + found.holding.bytes()));
  found.holding.give_back(nullptr);
  return Code::success;
}

enum class Side : std::uint8_t { device, page_locked, pageable };
Side side_of(const void* address) {
  const testing::Arena* arena = testing::Arena::of(address);
  if (arena == nullptr) return Side::pageable;
  return arena->kind() == testing::Arena::Kind::device ? Side::device : Side::page_locked;
}

testing::Kind kind_of(Side to, Side from) {
  if (to != Side::device) return testing::Kind::to_host;
  return from == Side::device ? testing::Kind::inside : testing::Kind::to_device;
}

Code copy(void* to, const void* from, std::size_t bytes, void* stream_handle) {
  Double& it = Double::it();
  const Engine::Stream stream = it.stream_of(stream_handle);
  if (stream == nullptr) return Code::invalid_handle;
  if (bytes == 0) return Code::success;
  const Side of_to = side_of(to), of_from = side_of(from);
  testing::Work work;
  work.kind = kind_of(of_to, of_from);
  work.bytes = bytes;
  work.writes = {{to, bytes}};
  if (of_from == Side::pageable) {  // the driver takes the bytes before it returns
    const auto* begin = static_cast<const std::byte*>(from);
    work.run = [to, taken = std::vector<std::byte>(begin, begin + bytes)] {
      std::memcpy(testing::inner_address(to), taken.data(), taken.size());
      return testing::Outcome::done;
    };
  } else {
    work.reads = {{from, bytes}};
    work.run = [to, from, bytes] {
      std::memmove(testing::inner_address(to), testing::inner_address(from), bytes);
      return testing::Outcome::done;
    };
  }
  if (of_to == Side::device) remember_arriving(to, from, bytes);
  if (const Code code = queue(stream, std::move(work)); code != Code::success) return code;
  if (of_to != Side::pageable) return Code::success;
  auto end = it.engine().record(stream);  // the driver does not return before the bytes are there
  return end ? it.code_of(it.engine().sleep_until(*end)) : it.code_of(end.error());
}

Code copy_and_wait(void* to, const void* from, std::size_t bytes) {
  if (const Code code = copy(to, from, bytes, nullptr); code != Code::success) return code;
  Double& it = Double::it();
  auto end = it.engine().record(it.stream_of(nullptr));
  return end ? it.code_of(it.engine().sleep_until(*end)) : it.code_of(end.error());
}

void* pointer(hvd::cuda::Address address) {
  return reinterpret_cast<void*>(address);
}

}  // namespace

void remember_arriving(void* to, const void* from, std::size_t bytes) {
  Double& it = Double::it();
  const bool is_known = bytes <= most_remembered && side_of(from) == Side::page_locked;
  const auto* at = static_cast<std::byte*>(to);
  std::lock_guard lock(it.mutex);
  it.arriving.erase(it.arriving.lower_bound(at), it.arriving.lower_bound(at + bytes));
  if (is_known) it.arriving[at] = {bytes, from};
}

std::vector<std::byte> bytes_arriving_at(const void* address, std::size_t bytes) {
  Double& it = Double::it();
  const auto* at = static_cast<const std::byte*>(address);
  std::vector<std::byte> found(bytes);
  std::lock_guard lock(it.mutex);
  auto next = it.arriving.upper_bound(at);
  const void* from = address;
  if (next != it.arriving.begin()) {
    const auto& [begin, arriving] = *std::prev(next);
    if (at + bytes <= begin + arriving.bytes) from = static_cast<const std::byte*>(arriving.from) + (at - begin);
  }
  std::memcpy(found.data(), testing::inner_address(from), bytes);
  return found;
}

}  // namespace hvd::doubles

using namespace hvd::cuda;
using hvd::doubles::Double;
using hvd::doubles::Engine;
using hvd::doubles::pointer;

HVD_EXPORT Code cuMemAlloc_v2(Address* address, std::size_t bytes) {
  HVD_BEGIN(context);
  return hvd::doubles::allocate(Engine::Where::device, bytes, *address);
}
HVD_EXPORT Code cuMemFree_v2(Address address) {
  HVD_BEGIN(context);
  return hvd::doubles::free(address, false);
}
HVD_EXPORT Code cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  HVD_BEGIN(context);
  Double& it = Double::it();
  std::lock_guard lock(it.mutex);
  *total = it.most_bytes > 0 ? it.most_bytes : std::size_t{1} << 30;
  *free = *total - std::min(*total, it.bytes_of_device[it.current_device()]);
  return Code::success;
}
namespace {
std::atomic<int> memory_node{-1};
}
HVD_EXPORT int hvd_double_memory_node() {
  return memory_node;
}
HVD_EXPORT Code cuMemHostAlloc(void** address, std::size_t bytes, unsigned) {
  HVD_BEGIN(context);
  memory_node = hvd::posix::preferred_memory_node();
  Address found = 0;
  const Code code = hvd::doubles::allocate(Engine::Where::page_locked, bytes, found);
  *address = pointer(found);
  return code;
}
HVD_EXPORT Code cuMemFreeHost(void* address) {
  HVD_BEGIN(context);
  return hvd::doubles::free(reinterpret_cast<Address>(address), true);
}
HVD_EXPORT Code cuMemHostGetDevicePointer_v2(Address* device, void* host, unsigned) {
  HVD_BEGIN(context);
  *device = reinterpret_cast<Address>(host);
  return hvd::doubles::side_of(host) == hvd::doubles::Side::page_locked ? Code::success : Code::invalid_value;
}

HVD_EXPORT Code cuMemcpyAsync(Address to, Address from, std::size_t bytes, StreamHandle stream) {
  HVD_BEGIN(context);
  return hvd::doubles::copy(pointer(to), pointer(from), bytes, stream);
}
HVD_EXPORT Code cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, StreamHandle stream) {
  HVD_BEGIN(context);
  return hvd::doubles::copy(pointer(to), from, bytes, stream);
}
HVD_EXPORT Code cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, StreamHandle stream) {
  HVD_BEGIN(context);
  return hvd::doubles::copy(to, pointer(from), bytes, stream);
}
HVD_EXPORT Code cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes, StreamHandle stream) {
  HVD_BEGIN(context);
  return hvd::doubles::copy(pointer(to), pointer(from), bytes, stream);
}
HVD_EXPORT Code cuMemcpyHtoD_v2(Address to, const void* from, std::size_t bytes) {
  HVD_BEGIN(context);
  return hvd::doubles::copy_and_wait(pointer(to), from, bytes);
}
HVD_EXPORT Code cuMemcpyDtoH_v2(void* to, Address from, std::size_t bytes) {
  HVD_BEGIN(context);
  return hvd::doubles::copy_and_wait(to, pointer(from), bytes);
}
HVD_EXPORT Code cuMemsetD8Async(Address to, unsigned char value, std::size_t bytes, StreamHandle stream) {
  HVD_BEGIN(context);
  const Engine::Stream queue = Double::it().stream_of(stream);
  if (queue == nullptr) return Code::invalid_handle;
  hvd::testing::Work work;
  work.kind = hvd::testing::Kind::inside;
  work.label = "fill";
  work.bytes = bytes;
  work.writes = {{pointer(to), bytes}};
  work.run = [to, value, bytes] {
    std::memset(hvd::testing::inner_address(pointer(to)), value, bytes);
    return hvd::testing::Outcome::done;
  };
  return hvd::doubles::queue(queue, std::move(work));
}
