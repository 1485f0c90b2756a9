// What a callback on completion (on_done, on_end) may call, on each thread that it may run on. Every function of
// horovod.h is called in one.
#include "api/callbacks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/patience.hpp"
#include "horovod.hpp"
#include "multiprocess/allreduce_of.hpp"

namespace {

using hvd::api::InCallback;
using hvd::testing::patience_ms;

std::string header() {
  std::ifstream file(HVD_SOURCE_DIR "/src/api/horovod.h");
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the names of functions in a text, such as hvd_init.
std::vector<std::string> functions_in(std::string_view text) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz_0123456789";
  std::vector<std::string> names;
  for (std::size_t at = 0; (at = text.find("hvd_", at)) != text.npos;) {
    names.emplace_back(text.substr(at, text.find_first_not_of(letters, at) - at));
    at += names.back().size();
  }
  return names;
}

hvd_op* prepare(hvd_runtime* runtime, const char* name, hvd_verb verb) {
  const std::int64_t shape = 1;
  hvd_op_description description = hvd::testing::allreduce_of(name, shape, HVD_FLOAT32, HVD_SUM);
  description.verb = verb;
  hvd_op* op = nullptr;
  horovod::check(hvd_prepare(runtime, &description, &op));
  return op;
}

// Runs `action` in the first callback of two operations of one handle, and waits until it has returned. So the handle,
// which the action gets, is not done meanwhile.
void in_callback(hvd_runtime* runtime, std::function<void(hvd_handle)> action,
                 hvd_callback_thread thread = HVD_ENGINE_THREAD) {
  struct Context {
    std::function<void(hvd_handle)> action;
    hvd_handle handle = 0;
  };
  float data[] = {1, 1};
  Context both{std::move(action), 0};
  hvd_start_arguments uses[2];
  for (int i = 0; i < 2; ++i) {
    hvd_op* op = prepare(runtime, i == 0 ? "with a callback" : "with another one", HVD_ALLREDUCE);
    uses[i] = hvd_use_of(op, &data[i], &data[i]);
    uses[i].callback_thread = thread;
    uses[i].context = &both;
    uses[i].on_done = [](void* context, hvd_status, const char*) {
      auto& it = *static_cast<Context*>(context);
      if (const auto once = std::exchange(it.action, nullptr)) once(it.handle);
    };
  }
  horovod::check(hvd_start(runtime, uses, 2, &both.handle));
  ASSERT_EQ(hvd_wait(runtime, both.handle, patience_ms), HVD_OK) << hvd_last_error();
  hvd_release(runtime, both.handle);
  for (const hvd_start_arguments& use : uses) hvd_op_release(runtime, use.op);
}

// What the calls need. `done` and `started` are handles of one allgather and of one that the callback has started,
// `waiting` is the handle of the operation of the callback.
struct Stage {
  explicit Stage(hvd_runtime* its_runtime) : runtime(its_runtime) {
    gather = prepare(runtime, "gathered", HVD_ALLGATHER);
    horovod::check(hvd_shared_allocate(runtime, 100, &memory));
    done = start();
    horovod::check(hvd_wait(runtime, done, patience_ms));
  }
  hvd_handle start() {
    hvd_start_arguments use = hvd_use_of(gather, &data, nullptr);
    use.first_dimension = 1;
    hvd_handle handle = 0;
    EXPECT_EQ(hvd_start(runtime, &use, 1, &handle), HVD_OK) << hvd_last_error();
    return handle;
  }

  hvd_runtime* runtime;
  hvd_op* gather = nullptr;
  void* memory = nullptr;
  float data = 1;
  hvd_handle done = 0, started = 0, waiting = 0;
};

// A call of every function. Those that return a status return it; the others return HVD_INVALID_ARGUMENT.
using Call = std::function<hvd_status(Stage&)>;
template <typename Function>
Call with(Function function) {
  return [function](Stage& stage) {
    if constexpr (std::is_same_v<decltype(function(stage)), hvd_status>) return function(stage);
    else return static_cast<void>(function(stage)), HVD_INVALID_ARGUMENT;
  };
}
std::map<std::string, Call> calls() {
  return {
      {"hvd_last_error", with([](Stage&) { return hvd_last_error(); })},
      {"hvd_last_error_id", with([](Stage&) { return hvd_last_error_id(); })},
      {"hvd_version", with([](Stage&) { return hvd_version(); })},
      {"hvd_init", with([](Stage&) {
         hvd_runtime* runtime = nullptr;
         return hvd_init(&runtime);
       })},
      {"hvd_init_with", with([](Stage&) {
         hvd_runtime* runtime = nullptr;
         hvd_init_options options{};
         options.struct_size = sizeof options;
         return hvd_init_with(&runtime, &options);
       })},
      {"hvd_shutdown", with([](Stage& it) { hvd_shutdown(it.runtime); })},
      {"hvd_stop", with([](Stage& it) { hvd_stop(it.runtime); })},
      {"hvd_get_world", with([](Stage& it) {
         hvd_world world{};
         world.struct_size = sizeof world;
         return hvd_get_world(it.runtime, &world);
       })},
      {"hvd_enter", with([](Stage&) {
         hvd_runtime* runtime = nullptr;
         const hvd_status status = hvd_enter(&runtime, nullptr);
         hvd_leave(runtime);
         return status;
       })},
      {"hvd_leave", with([](Stage&) { hvd_leave(nullptr); })},
      {"hvd_mpi_built", with([](Stage&) { return hvd_mpi_built(); })},
      {"hvd_mpi_thread_level", with([](Stage& it) { return hvd_mpi_thread_level(it.runtime); })},
      {"hvd_local_device", with([](Stage& it) { return hvd_local_device(it.runtime); })},
      {"hvd_get_device_facts", with([](Stage&) {
         hvd_device_facts facts{};
         facts.struct_size = sizeof facts;
         return hvd_get_device_facts(HVD_CUDA, &facts);
       })},
      {"hvd_device_built", with([](Stage&) { return hvd_device_built(HVD_CUDA); })},
      {"hvd_nccl_built", with([](Stage&) { return hvd_nccl_built(); })},
      {"hvd_has_device", with([](Stage& it) { return hvd_has_device(it.runtime, HVD_CUDA, 0); })},
      {"hvd_is_running", with([](Stage& it) { return hvd_is_running(it.runtime); })},
      {"hvd_add_process_set", with([](Stage& it) {
         int id = 0;
         const int rank = 0;
         return hvd_add_process_set(it.runtime, &rank, 1, &id);
       })},
      {"hvd_remove_process_set", with([](Stage& it) { return hvd_remove_process_set(it.runtime, 1); })},
      {"hvd_process_set_ids", with([](Stage& it) { return hvd_process_set_ids(it.runtime, nullptr, 0); })},
      {"hvd_process_set", with([](Stage& it) { return hvd_process_set(it.runtime, 0, nullptr, nullptr, nullptr, 0); })},
      {"hvd_rows_of", with([](Stage&) { return hvd_rows_of(7, 0, 2); })},
      {"hvd_prepare", with([](Stage& it) { prepare(it.runtime, "gathered", HVD_ALLGATHER); })},
      {"hvd_op_release", with([](Stage& it) { hvd_op_release(it.runtime, it.gather); })},
      {"hvd_start", with([](Stage& it) { it.started = it.start(); })},
      {"hvd_poll", with([](Stage& it) { return hvd_poll(it.runtime, it.started); })},
      {"hvd_wait", with([](Stage& it) { return hvd_wait(it.runtime, it.waiting, patience_ms); })},
      {"hvd_wait_on", with([](Stage& it) { return hvd_wait_on(it.runtime, it.waiting, &it, patience_ms); })},
      {"hvd_release", with([](Stage& it) { hvd_release(it.runtime, it.started); })},
      {"hvd_result_shape", with([](Stage& it) {
         int dimensions = 0;
         std::int64_t shape[HVD_MAX_DIMENSIONS];
         return hvd_result_shape(it.runtime, it.done, 0, &dimensions, shape);
       })},
      {"hvd_result_splits", with([](Stage& it) {
         std::int64_t rows = 0;
         return hvd_result_splits(it.runtime, it.done, 0, &rows, 1);
       })},
      {"hvd_result_device", with([](Stage& it) {
         hvd_device device = HVD_CUDA;
         int ordinal = -1;
         return hvd_result_device(it.runtime, it.done, 0, &device, &ordinal);
       })},
      {"hvd_result_copy", with([](Stage& it) {
         float result = 0;
         return hvd_result_copy(it.runtime, it.done, 0, &result, sizeof result);
       })},
      {"hvd_result_take", with([](Stage& it) {
         void *data = nullptr, *owner = nullptr;
         void (*free_data)(void*) = nullptr;
         const hvd_status status = hvd_result_take(it.runtime, it.done, 0, &data, &owner, &free_data, nullptr);
         if (status == HVD_OK) free_data(owner);
         return status;
       })},
      {"hvd_shared_allocate", with([](Stage& it) {
         void* more = nullptr;
         return hvd_shared_allocate(it.runtime, 100, &more);
       })},
      {"hvd_shared_free", with([](Stage& it) { hvd_shared_free(it.runtime, it.memory); })},
      {"hvd_shared_hold", with([](Stage& it) { hvd_shared_drop(hvd_shared_hold(it.runtime, it.memory)); })},
      {"hvd_shared_drop", with([](Stage&) { hvd_shared_drop(nullptr); })},
      {"hvd_should_stop", with([](Stage& it) { EXPECT_EQ(hvd_should_stop(it.runtime, 0), -1); })},
      {"hvd_shelter_child", with([](Stage&) { return hvd_shelter_child(0); })},
      {"hvd_request_stop", with([](Stage& it) { return hvd_request_stop(it.runtime, "a callback"); })},
      {"hvd_stop_reason", with([](Stage& it) { return hvd_stop_reason(it.runtime, nullptr); })},
      {"hvd_get_elastic_facts", with([](Stage&) {
         hvd_elastic_facts facts{sizeof facts, 0, 0, 0};
         return hvd_get_elastic_facts(&facts);
       })},
      {"hvd_take_hosts_updated", with([](Stage&) { EXPECT_EQ(hvd_take_hosts_updated(nullptr), 0); })},
      {"hvd_timeline_start", with([](Stage& it) { return hvd_timeline_start(it.runtime, "nowhere/at/all", 0); })},
      {"hvd_timeline_stop", with([](Stage& it) { return hvd_timeline_stop(it.runtime); })},
      {"hvd_checkpoint_save",
       with([](Stage& it) { return hvd_checkpoint_save(it.runtime, "nowhere/at/all", nullptr, 0, nullptr); })},
      {"hvd_checkpoint_copy", with([](Stage&) {
         std::size_t bytes = 0;
         return hvd_checkpoint_copy(nullptr, 0, nullptr, &bytes);
       })},
      {"hvd_checkpoint_open", with([](Stage& it) {
         hvd_checkpoint* opened = nullptr;
         return hvd_checkpoint_open(it.runtime, "nowhere/at/all", &opened);
       })},
      {"hvd_checkpoint_open_before", with([](Stage& it) {
         hvd_checkpoint* opened = nullptr;
         return hvd_checkpoint_open_before(it.runtime, "nowhere/at/all", 1, &opened);
       })},
      {"hvd_checkpoint_close", with([](Stage&) { hvd_checkpoint_close(nullptr); })},
      {"hvd_checkpoint_get_info", with([](Stage&) { return hvd_checkpoint_get_info(nullptr, nullptr); })},
      {"hvd_checkpoint_get_entry", with([](Stage&) { return hvd_checkpoint_get_entry(nullptr, 0, nullptr); })},
      {"hvd_checkpoint_read", with([](Stage&) { return hvd_checkpoint_read(nullptr, nullptr, 0); })},
      {"hvd_checkpoint_claim", with([](Stage&) { return hvd_checkpoint_claim("nowhere/at/all"); })},
      {"hvd_checkpoint_release", with([](Stage&) { hvd_checkpoint_release("nowhere/at/all"); })},
      {"hvd_checkpoint_library", with([](Stage&) { return hvd_checkpoint_library(nullptr); })},
      {"hvd_meeting_open", with([](Stage&) { return hvd_meeting_open(nullptr, nullptr); })},
      {"hvd_meeting_enter", with([](Stage&) { return hvd_meeting_enter("", "", "", 0, nullptr); })},
      {"hvd_meeting_variables", with([](Stage&) { return hvd_meeting_variables(nullptr, 0, nullptr, nullptr); })},
      {"hvd_meeting_rank_ended", with([](Stage&) { return hvd_meeting_rank_ended(nullptr, 0, nullptr); })},
      {"hvd_meeting_put", with([](Stage&) { return hvd_meeting_put(nullptr, "key", nullptr, 0); })},
      {"hvd_meeting_wait", with([](Stage&) { return hvd_meeting_wait(nullptr, "key", 0, nullptr); })},
      {"hvd_meeting_get", with([](Stage&) { return hvd_meeting_get(nullptr, "key", nullptr, 0, 0); })},
      {"hvd_meeting_close", with([](Stage&) { hvd_meeting_close(nullptr); })},
      {"hvd_counter", with([](Stage& it) { return hvd_counter(it.runtime, "batches"); })},
      {"hvd_visit_knobs", with([](Stage&) {
         hvd_visit_knobs([](void*, const char*, const char*, const char*, const char*) {}, nullptr);
       })},
      {"hvd_visit_settings",
       with([](Stage&) { return hvd_visit_settings([](void*, const char*, const char*, const char*) {}, nullptr); })},
  };
}

TEST(Callbacks, have_a_rule_for_every_function_of_the_header) {
  std::vector<std::string> declared, known;
  const std::string text = header();
  for (std::size_t at = 0; (at = text.find("\nHVD_API ", at)) != text.npos; ++at)
    declared.push_back(functions_in(text.substr(at, text.find('(', at) - at)).back());
  for (const hvd::api::FunctionRow& row : hvd::api::functions) known.emplace_back(row.name);
  std::ranges::sort(declared);
  std::ranges::sort(known);
  EXPECT_EQ(known, declared);
}

TEST(Callbacks, read_in_the_header_which_functions_are_refused) {
  const std::string text = header();
  const std::size_t begin = text.find("Functions that wait are refused there");
  ASSERT_NE(begin, text.npos);
  std::vector<std::string> refused;
  for (const hvd::api::FunctionRow& row : hvd::api::functions)
    if (row.in_callback != InCallback::allowed) refused.emplace_back(row.name);
  EXPECT_EQ(functions_in(text.substr(begin, text.find("*/", begin) - begin)), refused) << "in the order of the table";
}

class CallbacksOn : public ::testing::TestWithParam<hvd_callback_thread> {};
INSTANTIATE_TEST_SUITE_P(Both, CallbacksOn, ::testing::Values(HVD_ENGINE_THREAD, HVD_CALLBACK_THREAD),
                         [](const auto& thread) {
                           return thread.param == HVD_ENGINE_THREAD ? "the_engines_thread" : "a_thread_of_their_own";
                         });

TEST_P(CallbacksOn, refuse_what_waits_allow_all_else_and_the_job_goes_on) {
  hvd_runtime* runtime = nullptr;
  horovod::check(hvd_init(&runtime));
  Stage stage(runtime);
  const std::map<std::string, Call> all = calls();
  const auto call_all = [&](hvd_handle waiting) {
    stage.waiting = waiting;
    for (const hvd::api::FunctionRow& row : hvd::api::functions) {
      const auto call = all.find(std::string(row.name));
      if (call == all.end()) {
        ADD_FAILURE() << row.name << " is not called";
        continue;
      }
      SCOPED_TRACE(row.name);
      (void)hvd_wait(runtime, 0, 0);  // an error of another function
      const hvd_status status = call->second(stage);
      const bool is_refused = std::string(hvd_last_error()).starts_with(call->first + " was called in a callback");
      EXPECT_EQ(is_refused, row.in_callback != InCallback::allowed) << hvd_last_error();
      if (is_refused) {
        EXPECT_EQ(status, HVD_INVALID_ARGUMENT);
        EXPECT_STREQ(hvd_last_error_id(), "HVD2106");
      }
    }
    EXPECT_EQ(hvd_wait(runtime, stage.done, patience_ms), HVD_OK) << "the handle is done";
  };
  in_callback(runtime, call_all, GetParam());
  EXPECT_EQ(hvd_is_running(runtime), 1);
  hvd_shared_free(runtime, stage.memory);
  hvd_shutdown(runtime);
}

TEST(Callbacks, hold_shared_memory_while_another_thread_waits_for_more) {
  hvd_runtime* runtime = nullptr;
  horovod::check(hvd_init(&runtime));
  void* memory = nullptr;
  horovod::check(hvd_shared_allocate(runtime, 100, &memory));
  std::jthread allocates;
  in_callback(runtime, [&](hvd_handle) {
    const std::int64_t before = hvd_counter(runtime, "operations");
    allocates = std::jthread([&] {
      void* more = nullptr;
      EXPECT_EQ(hvd_shared_allocate(runtime, 100, &more), HVD_OK) << hvd_last_error();
    });
    while (hvd_counter(runtime, "operations") == before) std::this_thread::yield();  // it now waits for this thread
    hvd_shared_hold_t* hold = hvd_shared_hold(runtime, memory);
    EXPECT_NE(hold, nullptr);
    hvd_shared_drop(hold);
  });
  allocates.join();
  hvd_shutdown(runtime);
}

}  // namespace
