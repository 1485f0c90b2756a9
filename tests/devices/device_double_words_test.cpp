// Looks of the host at words in page-locked memory, which teach what belongs to the value, and other bytes of a page
// that is closed: whatever instruction the host uses, and whatever other threads do at the same time.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "fixtures/device_double/engine.hpp"
#include "fixtures/device_double/instruction.hpp"
#include "sanitized.hpp"

namespace hvd::testing {
namespace {

using Look = std::uint32_t (*)(std::uint32_t* word);

// For each thread two streams, a word for each of them in one page, and memory.
struct WordsBench {
  explicit WordsBench(int seed) : engine({static_cast<std::uint64_t>(seed), 1, 1, 1 << 20}) {}
  ~WordsBench() {
    page.give_back(nullptr);
    for (Engine::Holding& memory : data) memory.give_back(nullptr);
  }
  std::uint32_t* word(std::size_t thread, std::uint32_t number) {
    return reinterpret_cast<std::uint32_t*>(page.data() + 64 * (2 * thread + number % 2));
  }
  void write(std::size_t thread, std::uint32_t number) {
    const Engine::Stream stream = streams[2 * thread + number % 2];
    Work work;
    work.writes = {{data[thread].data(), bytes}};
    EXPECT_TRUE(engine.queue(stream, std::move(work)));
    Work signal;
    signal.kind = Kind::word;
    signal.word = {word(thread, number), number};
    EXPECT_TRUE(engine.queue(stream, std::move(signal)));
  }

  static constexpr std::size_t threads = 3, bytes = 64;
  Engine engine;
  Engine::Holding page = engine.allocate(0, Engine::Where::page_locked, 4096).value();
  std::vector<Engine::Holding> data = [this] {
    std::vector<Engine::Holding> all;
    for (std::size_t i = 0; i < threads; ++i) all.push_back(engine.allocate(0, Engine::Where::device, bytes).value());
    return all;
  }();
  std::vector<Engine::Stream> streams = [this] {
    std::vector<Engine::Stream> all;
    for (std::size_t i = 0; i < 2 * threads; ++i) all.push_back(engine.make_stream(0, Engine::Order::free));
    return all;
  }();
};

std::uint32_t load(std::uint32_t* word) {
  return std::atomic_ref(*word).load(std::memory_order_acquire);
}

// Passes the thread's memory from one of its streams to the other, as soon as the word tells that the first is done.
void pass_on(WordsBench& bench, std::size_t thread, std::uint32_t rounds, Look look, std::uint32_t overlooked = 0) {
  for (std::uint32_t round = 0; round < 2; ++round) std::atomic_ref(*bench.word(thread, round)).store(0);
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    bench.write(thread, round);
    while (round != overlooked && look(bench.word(thread, round)) != round) std::this_thread::yield();
  }
}

TEST(LooksAtWords, of_several_threads_at_one_page_are_all_noticed) {
  if (!HostPages::sees_looks) GTEST_SKIP() << "on this processor looks go unnoticed";
  constexpr std::uint32_t rounds = is_sanitized ? 30 : 80;
  for (int seed = 1; seed <= 2; ++seed) {
    WordsBench bench(seed);
    std::vector<std::thread> all;
    for (std::size_t i = 0; i < WordsBench::threads; ++i) all.emplace_back([&, i] { pass_on(bench, i, rounds, load); });
    for (std::thread& thread : all) thread.join();
    const auto found = take_findings();
    ASSERT_TRUE(found.empty()) << found.size() << ", first: " << found.front().text();
  }
}

TEST(LooksAtWords, that_a_thread_lacks_are_found_while_others_look) {
  if (!HostPages::sees_looks) GTEST_SKIP() << "on this processor looks go unnoticed";
  for (int seed = 1; seed <= (is_sanitized ? 3 : 10); ++seed) {
    WordsBench bench(seed);
    std::atomic<bool> is_over{false};
    std::vector<std::thread> all;
    for (std::size_t i = 1; i < WordsBench::threads; ++i)
      all.emplace_back([&, i] {
        std::atomic_ref(*bench.word(i, 1)).store(0);
        bench.write(i, 1);
        while (load(bench.word(i, 1)) != 1 || !is_over) std::this_thread::yield();
      });
    pass_on(bench, 0, 10, load, 5);
    is_over = true;
    for (std::thread& thread : all) thread.join();
    const auto found = take_findings();
    ASSERT_EQ(found.size(), 1u) << "seed " << seed;
    EXPECT_EQ(found.front().fault, Fault::race);
  }
}

#if defined(__x86_64__)

const std::vector<Look>& looks() {
  static const std::vector<Look> all = {
      [](std::uint32_t* word) {  // into the register that had the address
        auto value = reinterpret_cast<std::uint64_t>(word);
        asm volatile("mov (%0), %k0" : "+r"(value)::"memory");
        return static_cast<std::uint32_t>(value);
      },
      [](std::uint32_t* word) {  // with an index and a distance, and high registers
        std::uint64_t value = 0;
        asm volatile("lea -800(%1), %%r13; mov $100, %%r12; mov (%%r13, %%r12, 8), %k0"
                     : "=r"(value)
                     : "r"(word)
                     : "r12", "r13", "memory");
        return static_cast<std::uint32_t>(value);
      },
      [](std::uint32_t* word) {
        std::uint64_t value = 0;
        asm volatile("lea 4096(%1), %%r8; mov -4096(%%r8), %%r9d; mov %%r9, %0"
                     : "=r"(value)
                     : "r"(word)
                     : "r8", "r9", "memory");
        return static_cast<std::uint32_t>(value);
      },
      [](std::uint32_t* word) {
        std::uint64_t value = 0;
        asm volatile("mov (%1), %0" : "=r"(value) : "r"(word) : "memory");
        return static_cast<std::uint32_t>(value);
      },
      [](std::uint32_t* word) {
        std::uint32_t value = 0;
        asm volatile("movzwl (%1), %0" : "=r"(value) : "r"(word) : "memory");
        return value;
      },
      [](std::uint32_t* word) {
        std::uint32_t value = 0;
        asm volatile("movd (%1), %%xmm3; movd %%xmm3, %0" : "=r"(value) : "r"(word) : "xmm3", "memory");
        return value;
      },
      [](std::uint32_t* word) {
        std::uint32_t value = 0;
        asm volatile("lock xadd %0, (%1)" : "+r"(value) : "r"(word) : "memory");
        return value;
      },
      [](std::uint32_t* word) {
        for (std::uint32_t value = 0;; ++value) {
          bool is_equal = false;
          asm volatile("cmp %1, (%2)" : "=@cce"(is_equal) : "r"(value), "r"(word) : "memory");
          if (is_equal) return value;
        }
      },
  };
  return all;
}

TEST(LooksAtWords, teach_whatever_instruction_makes_them) {
  for (std::size_t i = 0; i < looks().size(); ++i) {
    WordsBench bench(1);
    pass_on(bench, 0, 20, looks()[i]);
    const auto found = take_findings();
    EXPECT_TRUE(found.empty()) << "look no. " << i << ": " << found.front().text();
  }
}

// A page whose second half work writes, and that therefore has no rights.
TEST(ClosedPages, let_the_host_use_their_other_bytes_by_any_instruction) {
  Engine engine({1, 1, 1, 1 << 20});
  auto page = engine.allocate(0, Engine::Where::page_locked, 4096).value();
  Engine::Stream stream = engine.make_stream(0, Engine::Order::free);
  engine.hold(stream);
  std::memset(page.data(), 7, 4096);
  Work work;
  work.writes = {{page.data() + 2048, 2048}};
  ASSERT_TRUE(engine.queue(stream, std::move(work)));

  std::byte* const bytes = page.data();
  void *to = bytes + 256, *from = bytes;
  std::size_t count = 8;
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count)::"memory");  // both operands are in the page
  EXPECT_EQ(to, bytes + 264);
  EXPECT_EQ(from, bytes + 8);
  EXPECT_EQ(count, 0u);
  to = bytes + 512, count = 3;
  asm volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(9) : "memory");
  EXPECT_EQ(to, bytes + 515);
  asm volatile("movups (%0), %%xmm0; movups %%xmm0, 1024(%0)" ::"r"(bytes) : "xmm0", "memory");
  asm volatile("movb $3, %%ah; movb %%ah, 100(%%rcx)" ::"c"(bytes) : "rax", "memory");
  asm volatile("addw $1, 102(%0)" ::"r"(bytes) : "memory");
  asm volatile("mov %%rax, (%%rax)" ::"a"(bytes + 1032) : "memory");  // known to nobody: opens the page

  EXPECT_EQ(bytes[256], std::byte{7});
  EXPECT_EQ(bytes[514], std::byte{9});
  EXPECT_EQ(bytes[515], std::byte{7});
  EXPECT_EQ(bytes[1031], std::byte{7});
  EXPECT_EQ(bytes[100], std::byte{3});
  EXPECT_EQ(bytes[102], std::byte{8});
  std::byte* itself = nullptr;
  std::memcpy(&itself, bytes + 1032, sizeof itself);
  EXPECT_EQ(itself, bytes + 1032);
  EXPECT_TRUE(take_findings().empty());
  engine.let_go(stream);
  EXPECT_TRUE(engine.sleep_until(engine.record(stream).value()));
  page.give_back(nullptr);
}

struct Form {
  const char* text;
  std::vector<std::uint8_t> code;
  int address_register, loaded_register = -1;
  std::size_t bytes = 0;
};

TEST(InstructionsOfX86, are_decoded_as_far_as_the_double_needs_them) {
  const Form forms[] = {
      {"mov (%rdi), %eax", {0x8b, 0x07}, 7, 0, 2},
      {"mov (%rax), %eax", {0x8b, 0x00}, 0, 0, 2},
      {"mov 0x40(%rbp), %r9d", {0x44, 0x8b, 0x4d, 0x40}, 5, 9, 4},
      {"mov 0x1000(%r12), %ecx", {0x41, 0x8b, 0x8c, 0x24, 0x00, 0x10, 0x00, 0x00}, 12, 1, 8},
      {"mov (%r13,%rax,4), %edx", {0x41, 0x8b, 0x54, 0x85, 0x00}, 13, 2, 5},
      {"mov 0x10(,%rax,4), %edx", {0x8b, 0x14, 0x85, 0x10, 0x00, 0x00, 0x00}, -1, 2, 7},
      {"mov 0x10(%rip), %eax", {0x8b, 0x05, 0x10, 0x00, 0x00, 0x00}, -1, 0, 6},
      {"mov (%rsp), %eax", {0x8b, 0x04, 0x24}, -1, 0, 3},
      {"mov (%rax,%rax,1), %eax", {0x8b, 0x04, 0x00}, -1, 0, 3},
      {"mov (%rdi), %rax", {0x48, 0x8b, 0x07}, 7},
      {"mov (%rdi), %ax", {0x66, 0x8b, 0x07}, 7},
      {"mov (%rdi), %di", {0x66, 0x8b, 0x3f}, -1},
      {"mov %rax, (%rax)", {0x48, 0x89, 0x00}, -1},
      {"mov %ah, (%rsp)", {0x88, 0x24, 0x24}, -1},
      {"mov %ah, (%rax)", {0x88, 0x20}, -1},
      {"mov %ah, (%rcx)", {0x88, 0x21}, 1},
      {"cmp (%rdi), %eax", {0x3b, 0x07}, 7},
      {"cmpl $0x5, (%rdi)", {0x83, 0x3f, 0x05}, 7},
      {"movl $0x5, (%rax)", {0xc7, 0x00, 0x05, 0x00, 0x00, 0x00}, 0},
      {"movzbl (%rax), %eax", {0x0f, 0xb6, 0x00}, 0},
      {"movzbw (%rax), %ax", {0x66, 0x0f, 0xb6, 0x00}, -1},
      {"lock xadd %eax, (%r10)", {0xf0, 0x41, 0x0f, 0xc1, 0x02}, 10},
      {"lock cmpxchg %ecx, (%rcx)", {0xf0, 0x0f, 0xb1, 0x09}, -1},
      {"movups (%rax), %xmm0", {0x0f, 0x10, 0x00}, 0},
      {"pshufb (%rdi), %xmm0", {0x66, 0x0f, 0x38, 0x00, 0x07}, 7},
      {"vmovups (%rsi), %ymm0", {0xc5, 0xfc, 0x10, 0x06}, 6},
      {"vmovups (%r14), %ymm0", {0xc4, 0xc1, 0x7c, 0x10, 0x06}, 14},
      {"vmovups (%r8), %zmm0", {0x62, 0xd1, 0x7c, 0x48, 0x10, 0x00}, 8},
      {"movsb", {0xf3, 0xa4}, 6},
      {"lodsb", {0xac}, 6},
      {"cmpsb", {0xa6}, -1},
      {"movabs 0x1122334455667788, %al", {0xa0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}, -1},
  };
  for (Form form : forms) {
    form.code.resize(16, 0x90);
    const Instruction found = decode(form.code.data(), false);
    EXPECT_EQ(found.address_register, form.address_register) << form.text;
    EXPECT_EQ(found.loaded_register, form.loaded_register) << form.text;
    EXPECT_EQ(found.bytes, form.bytes) << form.text;
  }
}

#endif

}  // namespace
}  // namespace hvd::testing
