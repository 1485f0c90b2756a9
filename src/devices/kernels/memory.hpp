#pragma once
// Loads and stores. On the device they name the global memory, because pointers that come out of a struct are generic
// to the compilers. On the host they end the program where the device would fail and the host would not: at an address
// that is no multiple of the size of the access.
#include <cstddef>
#include <cstdint>

#include "devices/kernels/place.hpp"

#if !HVD_ON_DEVICE
#include <cstring>

#include "base/panic.hpp"
#endif

namespace hvd::devices::cuda {

struct alignas(16) Vector {
  std::uint32_t word[4];
};

HVD_DEVICE std::uint64_t address_of(const void* pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}
HVD_DEVICE const void* advanced(const void* pointer, std::uint64_t bytes) {
  return static_cast<const char*>(pointer) + bytes;
}
HVD_DEVICE void* advanced(void* pointer, std::uint64_t bytes) {
  return static_cast<char*>(pointer) + bytes;
}

#if HVD_ON_DEVICE

// What is moved is touched once, so it need not stay in the caches.
HVD_DEVICE Vector load16(const void* from) {
  Vector v;
  asm volatile("{ .reg .u64 a; cvta.to.global.u64 a, %4; ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [a]; }"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(from));
  return v;
}
HVD_DEVICE void store16(void* to, const Vector& v) {
  asm volatile("{ .reg .u64 a; cvta.to.global.u64 a, %0; st.global.cs.v4.u32 [a], {%1, %2, %3, %4}; }" ::"l"(to),
               "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
               : "memory");
}

HVD_DEVICE void load(const void* from, std::uint8_t& value) {
  std::uint16_t wide;
  asm volatile("{ .reg .u64 a; cvta.to.global.u64 a, %1; ld.global.u8 %0, [a]; }" : "=h"(wide) : "l"(from));
  value = static_cast<std::uint8_t>(wide);
}
HVD_DEVICE void store(void* to, std::uint8_t value) {
  const std::uint16_t wide = value;
  asm volatile("{ .reg .u64 a; cvta.to.global.u64 a, %0; st.global.u8 [a], %1; }" ::"l"(to), "h"(wide) : "memory");
}
#define HVD_LOAD_AND_STORE(Type, letter, ptx)                                                                     \
  HVD_DEVICE void load(const void* from, Type& value) {                                                           \
    asm volatile("{ .reg .u64 a; cvta.to.global.u64 a, %1; ld.global." ptx " %0, [a]; }"                          \
                 : "=" letter(value)                                                                              \
                 : "l"(from));                                                                                    \
  }                                                                                                               \
  HVD_DEVICE void store(void* to, Type value) {                                                                   \
    asm volatile("{ .reg .u64 a; cvta.to.global.u64 a, %0; st.global." ptx " [a], %1; }" ::"l"(to), letter(value) \
                 : "memory");                                                                                     \
  }
HVD_LOAD_AND_STORE(std::uint16_t, "h", "u16")
HVD_LOAD_AND_STORE(std::uint32_t, "r", "u32")
HVD_LOAD_AND_STORE(std::uint64_t, "l", "u64")
#undef HVD_LOAD_AND_STORE

// Reads a word that the host may write at any time.
HVD_DEVICE std::uint32_t load_word_of_the_host(const std::uint32_t* from) {
  std::uint32_t word;
  asm volatile("{ .reg .u64 a; cvta.to.global.u64 a, %1; ld.volatile.global.u32 %0, [a]; }" : "=r"(word) : "l"(from));
  return word;
}

#else

// Where a double of a device keeps the bytes of a device's address. It may refuse the access. Null: at that address.
enum class Access : std::uint8_t { read, write };
using MemoryOfDouble = void* (*)(const void* address, std::size_t bytes, Access access);
inline MemoryOfDouble memory_of_double = nullptr;

inline void* memory_at(const void* address, std::size_t bytes, Access access) {
  if (address_of(address) % bytes != 0) panic("a kernel accesses an address that is no multiple of the size");
  return memory_of_double != nullptr ? memory_of_double(address, bytes, access) : const_cast<void*>(address);
}
inline Vector load16(const void* from) {
  Vector v;
  std::memcpy(&v, memory_at(from, sizeof v, Access::read), sizeof v);
  return v;
}
inline void store16(void* to, const Vector& v) {
  std::memcpy(memory_at(to, sizeof v, Access::write), &v, sizeof v);
}
template <typename T>
void load(const void* from, T& value) {
  std::memcpy(&value, memory_at(from, sizeof value, Access::read), sizeof value);
}
template <typename T>
void store(void* to, T value) {
  std::memcpy(memory_at(to, sizeof value, Access::write), &value, sizeof value);
}
inline std::uint32_t load_word_of_the_host(const std::uint32_t* from) {
  return *static_cast<const volatile std::uint32_t*>(memory_at(from, sizeof *from, Access::read));
}

#endif

// The unsigned type of a size.
template <std::size_t bytes>
struct BitsOf;
template <>
struct BitsOf<1> {
  using Type = std::uint8_t;
};
template <>
struct BitsOf<2> {
  using Type = std::uint16_t;
};
template <>
struct BitsOf<4> {
  using Type = std::uint32_t;
};
template <>
struct BitsOf<8> {
  using Type = std::uint64_t;
};
template <typename T>
using Bits = typename BitsOf<sizeof(T)>::Type;

// An element at an address that may or may not be a multiple of its size.
template <typename T, bool is_aligned>
HVD_DEVICE T load_element(const void* from) {
  Bits<T> bits = 0;
  if constexpr (is_aligned) {
    load(from, bits);
  } else {
    HVD_UNROLL
    for (unsigned i = 0; i < sizeof(T); ++i) {
      std::uint8_t byte;
      load(advanced(from, i), byte);
      bits = static_cast<Bits<T>>(bits | static_cast<Bits<T>>(static_cast<Bits<T>>(byte) << 8 * i));
    }
  }
  return __builtin_bit_cast(T, bits);
}
template <bool is_aligned, typename T>
HVD_DEVICE void store_element(void* to, T value) {
  const auto bits = __builtin_bit_cast(Bits<T>, value);
  if constexpr (is_aligned) {
    store(to, bits);
  } else {
    HVD_UNROLL
    for (unsigned i = 0; i < sizeof(T); ++i) store(advanced(to, i), static_cast<std::uint8_t>(bits >> 8 * i));
  }
}

// Element `index` of vectors in registers. `index` must be a constant once loops are unrolled.
template <typename T>
HVD_DEVICE T element_of(const Vector* vectors, unsigned index) {
  const unsigned byte = index * sizeof(T);
  const std::uint32_t word = vectors[byte / 16].word[byte % 16 / 4];
  if constexpr (sizeof(T) == 8) {
    const std::uint64_t high = vectors[byte / 16].word[byte % 16 / 4 + 1];
    return __builtin_bit_cast(T, high << 32 | word);
  } else {
    return __builtin_bit_cast(T, static_cast<Bits<T>>(word >> 8 * (byte % 4)));
  }
}
// Puts an element into vectors that were zero there.
template <typename T>
HVD_DEVICE void put_element(Vector* vectors, unsigned index, T value) {
  const unsigned byte = index * sizeof(T);
  std::uint32_t& word = vectors[byte / 16].word[byte % 16 / 4];
  const auto bits = __builtin_bit_cast(Bits<T>, value);
  if constexpr (sizeof(T) == 8) {
    word = static_cast<std::uint32_t>(bits);
    vectors[byte / 16].word[byte % 16 / 4 + 1] = static_cast<std::uint32_t>(bits >> 32);
  } else {
    word |= static_cast<std::uint32_t>(bits) << 8 * (byte % 4);
  }
}

}  // namespace hvd::devices::cuda
