#include "on_device/program.hpp"

#include <atomic>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "devices/device.hpp"

namespace hvd::on_device {

namespace {

using testing::LateDevice;

void require(bool is_right, const std::string& otherwise) {
  if (!is_right) throw std::runtime_error(otherwise);
}
void require(hvd_status status) {
  if (status != HVD_OK) throw std::runtime_error(hvd_last_error());
}
void require_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    require(text.find(word) != std::string::npos, "'" + word + "' is not in: " + text);
}

std::string first_fault_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// What a callback was told. It counts its calls, and the thread that it runs on.
struct Told {
  std::atomic<int> calls{0};
  std::atomic<int> status{-1};
  std::string message;
  std::thread::id thread;

  static void note(void* context, hvd_status status, const char* message) {
    auto& told = *static_cast<Told*>(context);
    told.message = message;
    told.thread = std::this_thread::get_id();
    told.status = status;
    ++told.calls;
  }
};

struct Use {
  const char* name;
  hvd_verb verb = HVD_ALLREDUCE;
  std::vector<std::int64_t> shape = {};
  const void* input = nullptr;
  void* output = nullptr;
  bool has_stream = true;
  std::vector<std::int64_t> splits = {};
  hvd_device device = HVD_CUDA;
  int set = 0;
};

hvd_op* prepare(const Place& place, const Use& use) {
  hvd_op_description description{};
  description.struct_size = sizeof description;
  description.name = use.name;
  description.verb = use.verb;
  description.dtype = HVD_FLOAT32;
  description.reduce_op = HVD_SUM;
  description.dimensions = static_cast<int>(use.shape.size());
  description.shape = use.shape.data();
  description.prescale = description.postscale = 1.0;
  description.device = use.device;
  description.process_set = use.set;
  hvd_op* op = nullptr;
  require(hvd_prepare(place.runtime, &description, &op));
  return op;
}
hvd_start_arguments arguments_of(const Place& place, const Use& use, Told* told) {
  hvd_start_arguments arguments = hvd_use_of(prepare(place, use), use.input, use.output);
  arguments.first_dimension = use.shape.empty() ? 0 : use.shape[0];
  if (!use.splits.empty()) arguments.splits = use.splits.data();
  arguments.split_count = use.splits.size();
  if (use.has_stream) arguments.stream = place.stream;
  if (told != nullptr) arguments.on_done = &Told::note;
  arguments.context = told;
  return arguments;
}
hvd_handle start(const Place& place, const Use& use, Told* told = nullptr) {
  const hvd_start_arguments arguments = arguments_of(place, use, told);
  hvd_handle handle = 0;
  require(hvd_start(place.runtime, &arguments, 1, &handle));
  return handle;
}
void finish(const Place& place, hvd_handle handle) {
  const hvd_status status = hvd_wait(place.runtime, handle, -1);
  hvd_release(place.runtime, handle);
  require(status);
}
// Without a stream, the end of the operation tells the program that its memory is free.
void finish(const Place& place, hvd_handle handle, bool has_stream) {
  finish(place, handle);
  if (!has_stream) place.program->is_told();
}
void run(const Place& place, const Use& use) {
  finish(place, start(place, use), use.has_stream);
}
// Waits for the end of an operation whose callback must be told the same. hvd_last_error() says why it failed.
hvd_status outcome_of(const Place& place, hvd_handle handle, const Told& told) {
  const hvd_status status = hvd_wait(place.runtime, handle, -1);
  require(told.calls == 1 && told.status == status, "callback and handle say different things");
  hvd_release(place.runtime, handle);
  return status;
}
// A rank that ends its program ends the job, so ranks come together before.
void meet(const Place& place) {
  run(place, {"meet", HVD_BARRIER, {}, nullptr, nullptr, false, {}, HVD_HOST});
}

using Floats = std::vector<float>;

devices::Memory upload(const Place& place, const Floats& values) {
  return place.device->upload({place.stream}, values.data(), values.size() * sizeof(float));
}
// Returns what is there when the program's stream has reached this point.
Floats read(const Place& place, const void* address, std::size_t count) {
  const auto bytes = place.device->download({place.stream}, address, count * sizeof(float));
  Floats values(count);
  if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}
void settle(const Place& place) {
  devices::finish(*place.device, {place.stream});
}

// Holds the program's stream until let_go(), or until the act fails.
class HeldStream {
 public:
  explicit HeldStream(const Place& place) : place_(place) { place.device->hold({place.stream}); }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;
  ~HeldStream() { let_go(); }
  void let_go() {
    if (std::exchange(is_held_, false)) place_.device->let_go({place_.stream});
  }

 private:
  const Place& place_;
  bool is_held_ = true;
};

// What rank `rank` gives in this round.
Floats part_of(int rank, std::size_t count, int round) {
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>((rank + 1) * static_cast<int>(i % 13) + round);
  return values;
}
Floats sum_of(const std::vector<int>& ranks, std::size_t count, int round) {
  Floats values(count);
  for (int rank : ranks) {
    const Floats part = part_of(rank, count, round);
    for (std::size_t i = 0; i < count; ++i) values[i] += part[i];
  }
  return values;
}
Floats sum_of_all(const Place& place, std::size_t count, int round) {
  std::vector<int> ranks;
  for (int rank = 0; rank < place.size; ++rank) ranks.push_back(rank);
  return sum_of(ranks, count, round);
}

// Results that the runtime kept are taken over, and freed at the end of the program: after the runtime.
struct Taken {
  void *data = nullptr, *owner = nullptr;
  void (*free_data)(void*) = nullptr;
  hvd_device device = HVD_HOST;
  Taken() = default;
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  ~Taken() {
    if (free_data != nullptr) free_data(owner);
  }
};

// Runs an operation whose result the runtime keeps, and compares the result with what is expected.
void keep(const Place& place, const Use& use, const std::vector<std::int64_t>& shape, const Floats& expected) {
  Told told;
  const hvd_handle handle = start(place, use, &told);
  require(hvd_wait(place.runtime, handle, -1));
  if (!use.has_stream) place.program->is_told();
  require(told.calls == 1 && told.status == HVD_OK, std::string(use.name) + ": the callback comes first, and once");
  require(told.thread != std::this_thread::get_id(), "a callback ran on the thread that started");
  int dimensions = 0;
  std::int64_t of_result[HVD_MAX_DIMENSIONS];
  require(hvd_result_shape(place.runtime, handle, 0, &dimensions, of_result));
  require(std::vector<std::int64_t>(of_result, of_result + dimensions) == shape,
          std::string(use.name) + ": another shape");
  Floats on_host(expected.size());
  require(hvd_result_copy(place.runtime, handle, 0, on_host.data(), on_host.size() * sizeof(float)) == HVD_UNSUPPORTED,
          "the host copied the memory of a device");
  Taken taken;
  require(hvd_result_take(place.runtime, handle, 0, &taken.data, &taken.owner, &taken.free_data, &taken.device));
  hvd_release(place.runtime, handle);
  require(taken.device == HVD_CUDA, std::string(use.name) + ": the result is in another kind of memory");
  require(read(place, taken.data, expected.size()) == expected, std::string(use.name) + ": a wrong result");
}

void run_every_verb(const Place& place, int round, bool has_stream) {
  const auto size = static_cast<std::size_t>(place.size), rank = static_cast<std::size_t>(place.rank);
  const auto each = static_cast<float>(round);
  auto started_with = [&](const Floats& values) {
    devices::Memory memory = upload(place, values);
    if (!has_stream) settle(place);
    return memory;
  };
  for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{300'000}}) {
    const std::string name = "sum " + std::to_string(count);
    devices::Memory in = started_with(part_of(place.rank, count, round)), out = started_with(Floats(count));
    Told told;
    finish(place,
           start(place,
                 {name.c_str(), HVD_ALLREDUCE, {static_cast<std::int64_t>(count)}, in.data(), out.data(), has_stream},
                 &told),
           has_stream);
    require(told.calls == 1 && told.status == HVD_OK, name + ": the callback comes before the handle is done");
    require(read(place, out.data(), count) == sum_of_all(place, count, round), name + ": a wrong sum");
    require(read(place, in.data(), count) == part_of(place.rank, count, round), name + ": the input was changed");
  }
  {
    devices::Memory data = started_with(part_of(place.rank, 500, round));
    run(place, {"root", HVD_BROADCAST, {500}, data.data(), data.data(), has_stream});
    require(read(place, data.data(), 500) == part_of(0, 500, round), "broadcast: not what the root has");
  }
  {  // rank r gives r + 1 rows of two elements
    Floats all;
    for (std::size_t from = 0; from < size; ++from)
      all.insert(all.end(), 2 * (from + 1), each + static_cast<float>(from));
    const devices::Memory in = started_with(Floats(2 * (rank + 1), each + static_cast<float>(rank)));
    keep(place, {"gather", HVD_ALLGATHER, {place.rank + 1, 2}, in.data(), nullptr, has_stream},
         {static_cast<std::int64_t>(all.size() / 2), 2}, all);
  }
  {  // rank r gives s + 1 rows to rank s
    Floats rows, expected;
    std::vector<std::int64_t> splits;
    for (std::size_t to = 0; to < size; ++to) {
      splits.push_back(static_cast<std::int64_t>(to + 1));
      rows.insert(rows.end(), to + 1, each + static_cast<float>(10 * rank + to));
    }
    for (std::size_t from = 0; from < size; ++from)
      expected.insert(expected.end(), rank + 1, each + static_cast<float>(10 * from + rank));
    const devices::Memory in = started_with(rows);
    keep(place,
         {"exchange", HVD_ALLTOALL, {static_cast<std::int64_t>(rows.size())}, in.data(), nullptr, has_stream, splits},
         {static_cast<std::int64_t>(expected.size())}, expected);
  }
  {
    const std::size_t count = 3 * size + 1;  // the first rank gets one more
    const devices::Memory in = started_with(part_of(place.rank, count, round));
    const Floats sum = sum_of_all(place, count, round);
    std::size_t begin = 0;
    for (int before = 0; before < place.rank; ++before)
      begin += static_cast<std::size_t>(hvd_rows_of(static_cast<std::int64_t>(count), before, place.size));
    const std::int64_t mine = hvd_rows_of(static_cast<std::int64_t>(count), place.rank, place.size);
    const auto first = sum.begin() + static_cast<std::ptrdiff_t>(begin);
    keep(place, {"share", HVD_REDUCESCATTER, {static_cast<std::int64_t>(count)}, in.data(), nullptr, has_stream},
         {mine}, Floats(first, first + mine));
  }
}

}  // namespace

testing::LateDevice& device_of_process() {
  static auto* device = new LateDevice(7);  // outlives every runtime and every thread
  return *device;
}

std::string every_verb_gives_its_results(const Place& place) {
  return first_fault_of([&] {
    for (int round = 0; round < 4; ++round) run_every_verb(place, round, round % 2 == 0);
  });
}

// The input is written late, by work that comes before the start on the stream. What comes after the handle reads the
// output, and the memory is freed on the stream at once.
std::string the_stream_keeps_the_order(const Place& place) {
  return first_fault_of([&] {
    constexpr std::size_t count = 5000;
    std::vector<Floats> results(10, Floats(count));
    for (int round = 0; round < 10; ++round) {
      HeldStream held(place);
      devices::Memory data = upload(place, part_of(place.rank, count, round));
      const hvd_handle handle = start(place, {"late", HVD_ALLREDUCE, {count}, data.data(), data.data()});
      held.let_go();
      finish(place, handle);
      Floats& result = results[static_cast<std::size_t>(round)];
      const std::size_t bytes = count * sizeof(float);
      place.device->launch({place.stream}, {{{data.data(), bytes}}, {{result.data(), bytes}}},
                           [&result, from = LateDevice::seen(data.data())] {
                             std::memcpy(result.data(), from, result.size() * sizeof(float));
                           });
    }
    settle(place);
    for (int round = 0; round < 10; ++round)
      require(results[static_cast<std::size_t>(round)] == sum_of_all(place, count, round),
              "round " + std::to_string(round) + ": the stream read too early, or too late");
  });
}

// Each callback lets the stream wait for its own operation and starts the next one, on what the one before has reduced.
// To wait for that one is refused there.
std::string callbacks_start_what_comes_next(const Place& place) {
  return first_fault_of([&] {
    constexpr int links = 5;
    struct Chain {
      const Place& place;
      hvd_start_arguments arguments{};
      std::atomic<int> done{0};
      std::atomic<hvd_handle> last{0};
      hvd_handle current = 0;
      hvd_op* other = nullptr;
      int started = 0;
      std::string fault{};

      void start_next(bool in_callback) {
        const bool is_last = ++started == links;  // before the start: a callback may come at once
        if (hvd_start(place.runtime, &arguments, 1, &current) != HVD_OK) return end(hvd_last_error());
        if (!in_callback) return;  // the next callback may have come already
        if (hvd_poll(place.runtime, current) == 0 && hvd_wait(place.runtime, current, 0) != HVD_INVALID_ARGUMENT)
          return end("a callback was allowed to wait");
        if (is_last) last = current;
      }
      void end(const std::string& why) {
        fault = why;
        done = links;
        done.notify_all();
      }
      static void go_on(void* context, hvd_status status, const char* message) {
        auto& chain = *static_cast<Chain*>(context);
        if (status != HVD_OK) return chain.end(message);
        const hvd_handle mine = chain.current;
        if (hvd_wait(chain.place.runtime, mine, -1) != HVD_OK) return chain.end(hvd_last_error());
        // The name of this operation is free again only when its handle is done: another name, in turn.
        if (chain.done + 1 < links) {
          std::swap(chain.arguments.op, chain.other);
          chain.start_next(true);
        }
        ++chain.done;
        chain.done.notify_all();
      }
    };
    devices::Memory data = upload(place, Floats(100, 1.0f));
    Chain chain{place};
    chain.arguments = arguments_of(place, {"chain a", HVD_ALLREDUCE, {100}, data.data(), data.data()}, nullptr);
    chain.other = prepare(place, {"chain b", HVD_ALLREDUCE, {100}, data.data(), data.data()});
    chain.arguments.on_done = &Chain::go_on;
    chain.arguments.context = &chain;
    chain.start_next(false);
    for (int done = chain.done; done < links; done = chain.done) chain.done.wait(done);
    require(chain.fault.empty(), chain.fault);
    finish(place, chain.last);
    float expected = 1;
    for (int i = 0; i < links; ++i) expected *= static_cast<float>(place.size);
    require(read(place, data.data(), 100) == Floats(100, expected), "a link of the chain read too early");
  });
}

std::string a_set_of_ranks_has_lanes_of_its_own(const Place& place) {
  return first_fault_of([&] {
    if (place.size < 2) return;
    const std::vector<int> members{0, place.size - 1};
    int set = 0;
    const hvd_status added = hvd_add_process_set(place.runtime, members.data(), members.size(), &set);
    require(added == HVD_OK || place.size == 2,
            hvd_last_error());  // there is a set of all ranks already: the global one
    const bool is_member = place.rank == members[0] || place.rank == members[1];
    for (int round = 0; round < 3; ++round) {
      devices::Memory all = upload(place, part_of(place.rank, 2000, round)),
                      some = upload(place, part_of(place.rank, 3000, round));
      const Use of_all{"in all", HVD_ALLREDUCE, {2000}, all.data(), all.data()};
      Use of_some{"in some", HVD_ALLREDUCE, {3000}, some.data(), some.data()};
      of_some.set = set;
      std::vector<hvd_handle> handles;
      if (is_member && place.rank == 0) handles.push_back(start(place, of_some));  // ranks have orders of their own
      handles.push_back(start(place, of_all));
      if (is_member && place.rank != 0) handles.push_back(start(place, of_some));
      for (hvd_handle handle : handles) finish(place, handle);
      require(read(place, all.data(), 2000) == sum_of_all(place, 2000, round), "all: a wrong sum");
      if (is_member) require(read(place, some.data(), 3000) == sum_of(members, 3000, round), "some: a wrong sum");
    }
    meet(place);
    if (set != 0) require(hvd_remove_process_set(place.runtime, set));
  });
}

std::string wrong_uses_are_refused(const Place& place) {
  return first_fault_of([&] {
    devices::Memory data = upload(place, Floats(10, 1.0f));
    Floats host(10, 1.0f);
    const Use on_device{"a", HVD_ALLREDUCE, {10}, data.data(), data.data()};
    const Use on_host{"b", HVD_ALLREDUCE, {10}, host.data(), host.data(), false, {}, HVD_HOST};
    hvd_handle handle = 0;
    auto refused = [&](const std::vector<hvd_start_arguments>& uses, const std::vector<std::string>& words,
                       hvd_status status = HVD_INVALID_ARGUMENT) {
      require(hvd_start(place.runtime, uses.data(), uses.size(), &handle) == status,
              "what is wrong was accepted, or refused as something else: " + words.front());
      require_words(hvd_last_error(), words);
    };
    refused({arguments_of(place, on_device, nullptr), arguments_of(place, on_host, nullptr)},
            {"'a'", "'b'", "host", "cuda"}, HVD_UNSUPPORTED);
    hvd_start_arguments with_stream = arguments_of(place, on_host, nullptr);
    with_stream.stream = place.stream;
    refused({with_stream}, {"stream", "host memory"});
    hvd_start_arguments overlapping = arguments_of(place, on_device, nullptr);
    overlapping.output = data.data() + sizeof(float);
    refused({overlapping}, {"'a'", "overlap"});

    hvd_op_description elsewhere{};
    elsewhere.struct_size = sizeof elsewhere;
    elsewhere.name = "elsewhere";
    elsewhere.dtype = HVD_FLOAT32;
    elsewhere.reduce_op = HVD_SUM;
    elsewhere.prescale = elsewhere.postscale = 1.0;
    elsewhere.device = HVD_CUDA;
    elsewhere.device_ordinal = 1;
    hvd_op* op = nullptr;
    require(hvd_prepare(place.runtime, &elsewhere, &op) == HVD_INVALID_ARGUMENT, "a foreign device was accepted");
    require_words(hvd_last_error(), {"'elsewhere'", "device 1"});

    elsewhere.name = "apart";
    elsewhere.device_ordinal = 0;
    elsewhere.has_output_device = 1;
    elsewhere.output_device = HVD_CUDA;
    elsewhere.output_device_ordinal = 1;
    require(hvd_prepare(place.runtime, &elsewhere, &op) == HVD_INVALID_ARGUMENT, "two devices of a use were accepted");
    require_words(hvd_last_error(), {"'apart'", "cuda device 0", "cuda device 1"});
    elsewhere.output_device = HVD_HOST;
    elsewhere.output_device_ordinal = 0;
    require(hvd_prepare(place.runtime, &elsewhere, &op) == HVD_INVALID_ARGUMENT, "an output elsewhere was accepted");
    require_words(hvd_last_error(), {"'apart'", "cuda device 0", "the host"});

    testing::LateDevice other;
    const auto stream_of_other = other.stream().value();
    hvd_start_arguments on_other = arguments_of(place, on_device, nullptr);
    on_other.stream = stream_of_other.get();
    refused({on_other}, {"'a'", "no stream of cuda device 0"});
    const auto captured = place.device->stream().value();
    testing::Engine& engine = place.device->engine();
    const auto line = engine.find_stream(captured.get());
    require(bool(engine.begin_capture(line, testing::Engine::Capture::relaxed)), "the test cannot capture");
    hvd_start_arguments in_capture = arguments_of(place, on_device, nullptr);
    in_capture.stream = captured.get();
    refused({in_capture}, {"'a'", "is being captured"});
    const hvd_handle waits = start(place, on_device);
    require(hvd_wait_on(place.runtime, waits, captured.get(), -1) == HVD_INVALID_ARGUMENT, "a capture may wait");
    require_words(hvd_last_error(), {"is being captured"});
    finish(place, waits);
    const auto in_graph = engine.end_capture(line);
    require(in_graph && *in_graph == 0, "the capture was broken, or something of ours is in it");
    for (float& value : host) value *= static_cast<float>(place.size);

    // All goes on.
    run(place, on_device);
    run(place, on_host);
    require(read(place, data.data(), 10) == host, "the refused starts have left something");
  });
}

std::string results_are_known_by_kind_and_ordinal(const Place& place) {
  return first_fault_of([&] {
    devices::Memory data = upload(place, Floats(10, 1.0f));
    const Use gathered{"gathered", HVD_ALLGATHER, {10}, data.data()};
    const hvd_handle handle = start(place, gathered);
    require(hvd_wait(place.runtime, handle, -1));
    hvd_device device = HVD_HOST;
    int ordinal = -1;
    require(hvd_result_device(place.runtime, handle, 0, &device, &ordinal));
    require(device == HVD_CUDA && ordinal == 0, "the result is said to be elsewhere");
    require(hvd_result_device(place.runtime, handle, 0, &device, nullptr) == HVD_INVALID_ARGUMENT, "null was accepted");
    hvd_release(place.runtime, handle);
    settle(place);
  });
}

std::string disagreement_fails_everybody_and_harms_nothing(const Place& place) {
  return first_fault_of([&] {
    if (place.size < 2) return;
    devices::Memory data = upload(place, Floats(10, 1.0f));
    Floats host(10, 1.0f);
    const Use there{"disputed", HVD_ALLREDUCE, {10}, data.data(), data.data()};
    const Use here{"disputed", HVD_ALLREDUCE, {10}, host.data(), host.data(), false, {}, HVD_HOST};
    Told told;
    const hvd_handle handle = start(place, place.rank == 0 ? here : there, &told);
    require(outcome_of(place, handle, told) == HVD_MISMATCH, "ranks disagree, and nobody reports it");
    require_words(hvd_last_error(), {"disputed", "host", "cuda"});
    require_words(told.message, {"disputed", "host", "cuda"});
    require(read(place, data.data(), 10) == Floats(10, 1.0f) && host == Floats(10, 1.0f),
            "it was written nevertheless");
    run(place, there);
    require(read(place, data.data(), 10) == Floats(10, static_cast<float>(place.size)), "a wrong sum afterwards");
  });
}

std::string a_failed_copy_fails_everybody(const Place& place) {
  return first_fault_of([&] {
    constexpr std::size_t count = 400'000;
    devices::Memory data = upload(place, part_of(place.rank, count, 0));
    settle(place);
    const Use use{"fails", HVD_ALLREDUCE, {count}, data.data(), data.data(), false};
    run(place, use);
    if (place.rank == place.size - 1) place.device->fail_move_after(1);
    // A batch that was issued already may succeed. A later one reports.
    for (int i = 0; i < 1000; ++i) {
      Told told;
      const hvd_start_arguments arguments = arguments_of(place, use, &told);
      hvd_handle handle = 0;
      std::string why;
      if (hvd_start(place.runtime, &arguments, 1, &handle) != HVD_OK) {
        why = hvd_last_error();
      } else {
        const hvd_status outcome = outcome_of(place, handle, told);
        place.program->is_told();
        if (outcome != HVD_OK) {
          why = hvd_last_error();
          require_words(told.message, {"failed on the device"});
        }
      }
      if (why.empty()) continue;
      require_words(why, {"failed on the device", "rank " + std::to_string(place.size - 1)});
      require(hvd_is_running(place.runtime) == 0, "the runtime goes on without a device");
      return;
    }
    throw std::runtime_error("a copy failed, and nobody reports it");
  });
}

// Rank 0 does not submit, so nothing is agreed. The others wait for rank 0, and their streams do not reach the input.
std::string a_stop_ends_what_waits_for_its_input(const Place& place) {
  return first_fault_of([&] {
    if (place.size < 2) return;
    devices::Memory out = upload(place, Floats(1000, 3.0f));
    settle(place);
    meet(place);
    if (place.rank == 0) return void(hvd_stop(place.runtime));
    HeldStream held(place);
    devices::Memory data = upload(place, part_of(place.rank, 1000, 0));
    Told told;
    const Use use{"never", HVD_ALLREDUCE, {1000}, data.data(), out.data()};
    const hvd_start_arguments arguments = arguments_of(place, use, &told);
    hvd_handle handle = 0;
    hvd_status status = hvd_start(place.runtime, &arguments, 1, &handle);  // it may come after the end
    hvd_stop(place.runtime);
    if (status == HVD_OK) status = outcome_of(place, handle, told);
    require(status == HVD_SHUT_DOWN, "it ended with status " + std::to_string(status) + ": " + hvd_last_error());
    held.let_go();
    require(read(place, out.data(), 1000) == Floats(1000, 3.0f), "written after the end");
  });
}

}  // namespace hvd::on_device
