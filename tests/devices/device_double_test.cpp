// The double of a device finds each kind of missing wait in every run. Each program here is played with its wait, and
// nothing must be found, and without it, and the fault must be found: for many seeds of the double's streams.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fixtures/device_double/engine.hpp"
#include "native/posix/processes/thread.hpp"
#include "sanitized.hpp"

namespace hvd::testing {
namespace {

constexpr int seeds = is_sanitized ? 10 : 50;
constexpr std::size_t bytes = 4096;

// Two streams of one device, with memory of both kinds.
struct Bench {
  explicit Bench(int seed) : engine({static_cast<std::uint64_t>(seed), 2, 1, 1 << 20}) {}
  ~Bench() {
    for (Engine::Stream stream : {a, b, blocking, by_default}) sleep(stream);
    for (Engine::Holding* left : {&data, &page})
      if (left->data() != nullptr) left->give_back(nullptr);
    static_cast<void>(take_findings());
  }
  Engine::Point write(Engine::Stream stream) { return queue(stream, {}, {{data.data(), bytes}}); }
  Engine::Point read(Engine::Stream stream) { return queue(stream, {{data.data(), bytes}}, {}); }
  // Copies to and from page-locked memory.
  Engine::Point fetch(Engine::Stream stream) { return queue(stream, {{data.data(), bytes}}, {{page.data(), bytes}}); }
  Engine::Point bring(Engine::Stream stream) { return queue(stream, {{page.data(), bytes}}, {{data.data(), bytes}}); }
  Engine::Point queue(Engine::Stream stream, std::vector<Range> reads, std::vector<Range> writes) {
    Work work;
    work.reads = std::move(reads);
    work.writes = writes;
    work.run = [writes] {
      for (const Range& range : writes) std::memset(inner_address(range.begin), 1, range.bytes);
      return Outcome::done;
    };
    return engine.queue(stream, std::move(work)).value();
  }
  void let_wait(Engine::Stream stream, Engine::Stream other) {
    EXPECT_TRUE(engine.wait(stream, engine.record(other).value()));
  }
  void sleep(Engine::Stream stream) { EXPECT_TRUE(engine.sleep_until(engine.record(stream).value())); }

  Engine engine;
  Engine::Stream a = engine.make_stream(0, Engine::Order::free), b = engine.make_stream(0, Engine::Order::free);
  Engine::Stream blocking = engine.make_stream(0, Engine::Order::with_the_default);
  Engine::Stream by_default = engine.default_stream(0);
  Engine::Holding data = engine.allocate(0, Engine::Where::device, bytes).value();
  Engine::Holding page = engine.allocate(0, Engine::Where::page_locked, bytes).value();
};

char touch(const Engine::Holding& holding, std::size_t at = 0) {
  return static_cast<char>(*(static_cast<volatile std::byte*>(holding.data()) + at));
}

struct Program {
  const char* name;
  Fault fault;  // without the wait
  std::function<void(Bench&, bool waits)> play;
  friend void PrintTo(const Program& program, std::ostream* out) { *out << program.name; }
};

std::vector<Program> programs_of_streams() {
  return {
      {"a_read_after_a_write_of_another_stream", Fault::race,
       [](Bench& it, bool waits) {
         it.write(it.a);
         if (waits) it.let_wait(it.b, it.a);
         it.read(it.b);
       }},
      {"a_write_after_a_read_of_another_stream", Fault::race,
       [](Bench& it, bool waits) {
         it.read(it.a);
         if (waits) it.let_wait(it.b, it.a);
         it.write(it.b);
       }},
      {"a_write_after_reads_of_which_one_is_known", Fault::race,
       [](Bench& it, bool waits) {
         it.read(it.a);
         it.read(it.b);
         it.let_wait(it.blocking, it.b);
         if (waits) it.let_wait(it.blocking, it.a);
         it.write(it.blocking);
       }},
      {"an_event_that_was_recorded_too_early", Fault::race,
       [](Bench& it, bool waits) {
         auto early = it.engine.record(it.a).value();
         it.write(it.a);
         auto late = it.engine.record(it.a).value();
         EXPECT_TRUE(it.engine.wait(it.b, waits ? late : early));
         it.read(it.b);
       }},
      {"a_wait_that_comes_after_the_work", Fault::race,
       [](Bench& it, bool waits) {
         it.write(it.a);
         if (waits) it.let_wait(it.b, it.a);
         it.read(it.b);
         it.let_wait(it.b, it.a);
       }},
      {"a_chain_over_a_third_stream", Fault::race,
       [](Bench& it, bool waits) {
         it.write(it.a);
         if (waits) it.let_wait(it.blocking, it.a);
         it.let_wait(it.b, it.blocking);
         it.read(it.b);
       }},
      {"the_host_waits_in_place_of_a_stream", Fault::race,
       [](Bench& it, bool waits) {
         it.write(it.a);
         if (waits) it.sleep(it.a);
         it.read(it.b);
       }},
      {"the_default_stream_waits_only_for_blocking_streams", Fault::race,
       [](Bench& it, bool waits) {
         it.write(waits ? it.blocking : it.a);
         it.read(it.by_default);
       }},
      {"only_blocking_streams_wait_for_the_default_stream", Fault::race,
       [](Bench& it, bool waits) {
         it.write(it.by_default);
         it.read(waits ? it.blocking : it.a);
       }},
      {"one_byte_in_common", Fault::race,
       [](Bench& it, bool waits) {
         it.queue(it.a, {}, {{it.data.data(), 100}});
         it.queue(it.b, {}, {{it.data.data() + (waits ? 100 : 99), 100}});
       }},
      {"memory_of_the_host_that_is_not_page_locked", Fault::race,
       [](Bench& it, bool waits) {
         static std::vector<char> anywhere(100);
         it.queue(it.a, {}, {{anywhere.data(), 100}});
         if (waits) it.let_wait(it.b, it.a);
         it.queue(it.b, {{anywhere.data(), 100}}, {});
       }},
      {"another_thread_has_looked_and_told_nobody", Fault::race,
       [](Bench& it, bool waits) {
         const Engine::Point end = it.write(it.a);
         Engine::Separate program(it.engine);
         std::thread([&] { EXPECT_TRUE(it.engine.sleep_until(end)); }).join();
         if (waits) program.is_told();
         it.read(it.b);
       }},
  };
}

std::vector<Program> programs_of_the_host() {
  return {
      {"the_host_reads_what_is_copied_to_it", Fault::host_race,
       [](Bench& it, bool waits) {
         it.fetch(it.a);
         if (waits) it.sleep(it.a);
         touch(it.page);
       }},
      {"the_host_waits_for_an_earlier_event", Fault::host_race,
       [](Bench& it, bool waits) {
         auto early = it.engine.record(it.a).value();
         auto end = it.fetch(it.a);
         EXPECT_TRUE(it.engine.sleep_until(waits ? end : early));
         touch(it.page);
       }},
      {"the_host_writes_what_is_copied_from_it", Fault::host_race,
       [](Bench& it, bool waits) {
         *it.page.data() = std::byte{1};
         it.bring(it.a);
         touch(it.page);  // both may read
         if (waits) it.sleep(it.a);
         *it.page.data() = std::byte{2};
       }},
      {"other_bytes_of_a_page_are_free_and_hide_nothing", Fault::host_race,
       [](Bench& it, bool waits) {
         it.queue(it.a, {}, {{it.page.data() + 64, 64}});
         *it.page.data() = std::byte{1};
         it.page.data()[200] = std::byte{1};
         if (waits) it.sleep(it.a);
         touch(it.page, 64);
       }},
      {"a_word_that_the_host_may_watch", Fault::host_race,
       [](Bench& it, bool waits) {
         if (waits) it.engine.declare_words(it.page.data(), 4);
         it.queue(it.a, {}, {{it.page.data(), 4}});
         touch(it.page);
       }},
      {"memory_given_back_on_a_stream", Fault::race,
       [](Bench& it, bool waits) {
         it.read(it.a);
         if (waits) it.let_wait(it.b, it.a);
         std::exchange(it.data, {}).give_back(it.b);
       }},
      {"memory_given_back_at_once", Fault::host_race,
       [](Bench& it, bool waits) {
         it.read(it.a);
         if (waits) it.sleep(it.a);
         std::exchange(it.data, {}).give_back(nullptr);
       }},
      {"memory_used_after_it_was_given_back", Fault::after_free,
       [](Bench& it, bool waits) {
         if (waits) it.read(it.a);
         const Engine::Holding gone = std::exchange(it.data, {});
         Engine::Holding(gone).give_back(it.a);
         if (!waits) it.queue(it.a, {{gone.data(), bytes}}, {});
       }},
      {"memory_behind_an_allocation", Fault::stray,
       [](Bench& it, bool waits) {
         it.queue(it.a, {{it.data.data() + 1, waits ? bytes - 1 : bytes}}, {});
       }},
  };
}

class DoubleOfADevice : public ::testing::TestWithParam<Program> {
 protected:
  // Plays the program for a seed, and tells what was found while the streams were late.
  static std::vector<Finding> found(int seed, bool waits) {
    Bench bench(seed);
    GetParam().play(bench, waits);
    return take_findings();
  }
};

TEST_P(DoubleOfADevice, finds_nothing_if_the_program_waits_and_the_fault_in_every_run_if_not) {
  for (int seed = 1; seed <= seeds; ++seed) {
    const auto clean = found(seed, true);
    EXPECT_TRUE(clean.empty()) << clean.front().text();
    const auto faults = found(seed, false);
    ASSERT_EQ(faults.size(), 1u) << "seed " << seed;
    EXPECT_EQ(faults.front().fault, GetParam().fault) << faults.front().what;
    EXPECT_EQ(faults.front().places.size(), GetParam().fault == Fault::stray ? 1u : 2u);
    EXPECT_NE(faults.front().places.back().what.find(" of stream "), std::string::npos);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Streams, DoubleOfADevice, ::testing::ValuesIn(programs_of_streams()),
                         [](const auto& program) { return std::string(program.param.name); });
INSTANTIATE_TEST_SUITE_P(Host, DoubleOfADevice, ::testing::ValuesIn(programs_of_the_host()),
                         [](const auto& program) { return std::string(program.param.name); });

TEST(FindingsOfTheDouble, name_both_places_and_the_functions_that_lead_there) {
  Bench bench(1);
  bench.write(bench.a);
  bench.read(bench.b);
  const auto found = take_findings();
  ASSERT_EQ(found.size(), 1u);
  const std::string text = found.front().text();
  EXPECT_NE(text.find("no. 1 of stream 1 of device 0"), std::string::npos) << text;
  EXPECT_NE(text.find("no. 1 of stream 2 of device 0"), std::string::npos) << text;
}

TEST(FindingsOfTheDouble, are_made_on_threads_of_the_runtime_too) {
  Bench bench(1);
  bench.fetch(bench.a);
  posix::start_thread("hvd-test", [&] { touch(bench.page); })->join();
  const auto found = take_findings();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.front().fault, Fault::host_race);
}

TEST(FindingsOfTheDoubleDeathTest, end_a_process_with_a_status_if_no_test_has_seen_them) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        report({Fault::stray, "somebody", {}});
        std::exit(0);
      },
      ::testing::ExitedWithCode(status_of_findings), "findings that no test has seen");
}

TEST(FindingsOfTheDoubleDeathTest, fail_the_test_in_which_they_are_found) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  // Another run of this program runs the test below alone.
  const std::string program = ::testing::internal::GetArgvs().front();
  const std::string command =
      "HVD_LEAVE_A_FINDING=1 '" + program + "' --gtest_filter=FindingsOfTheDouble.are_left_if_told_so 2>&1";
  FILE* run = ::popen(command.c_str(), "r");
  ASSERT_NE(run, nullptr);
  std::string text(1 << 16, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), run));
  EXPECT_NE(::pclose(run), 0);
  EXPECT_NE(text.find("a finding that is left"), std::string::npos) << text;
  EXPECT_NE(text.find("[  FAILED  ] FindingsOfTheDouble.are_left_if_told_so"), std::string::npos) << text;
}
TEST(FindingsOfTheDouble, are_left_if_told_so) {
  if (std::getenv("HVD_LEAVE_A_FINDING") != nullptr) report({Fault::stray, "a finding that is left", {}});
}

}  // namespace
}  // namespace hvd::testing
