// The timeline; the test itself reports the events to it.
#include "runtime/observers/timeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "in_own_folder.hpp"
#include "json.hpp"

namespace hvd::runtime {
namespace {

using testing::check_spans;
using testing::Json;
using testing::JsonReader;

class ATimeline : public testing::InOwnFolder {
 protected:
  std::unique_ptr<Timeline> open(std::size_t queue_records = 1 << 12, bool marks_batches = false) {
    Timeline::Settings settings;
    settings.path = path_;
    settings.header.host = "n1";
    settings.marks_batches = marks_batches;
    settings.queue_records = queue_records;
    auto timeline = Timeline::open(std::move(settings));
    if (!timeline) panic(timeline.error().message);
    return std::move(*timeline);
  }
  Operation& operation(const std::string& name, Verb verb = Verb::allreduce, std::vector<std::int64_t> shape = {3},
                       ProcessSetId set = global_process_set) {
    Signature signature;
    signature.verb = verb;
    signature.shape = std::move(shape);
    return *operations_.prepare({set, name}, std::move(signature));
  }
  static void submit(Timeline& timeline, Operation& operation) {
    operation.since = Clock::now();
    timeline.submitted(operation);
  }
  // Reports all events of a batch.
  void run(Timeline& timeline, const std::vector<Operation*>& batch) {
    Sequence sequence{next_batch_++};
    for (Operation* it : batch) submit(timeline, *it);
    for (Operation* it : batch) timeline.agreed(*it, sequence);
    timeline.started(sequence, "shm", "native");
    for (Operation* it : batch) timeline.finished(*it, sequence);
  }
  Json trace() {
    auto trace = JsonReader::read_file(path_);
    EXPECT_TRUE(trace) << "no JSON";
    return trace ? *trace : Json();
  }
  // Returns the events in the row of this name: "B NEGOTIATE_ALLREDUCE", "E", …
  static std::vector<std::string> life_of(const Json& trace, const std::string& name) {
    std::map<int, std::string> names;
    std::vector<std::string> life;
    for (const Json& event : trace.items) {
      int row = static_cast<int>(event["pid"].number);
      if (event["name"].text == "process_name") names[row] = event["args"]["name"].text;
      if (event["ph"].text == "M" || names[row] != name) continue;
      life.push_back(event["ph"].text + (event.has("name") ? " " + event["name"].text : ""));
    }
    return life;
  }

  static void end_stage(Timeline& timeline, const StageOnDevice& stage, Clock::time_point now) {
    timeline.stage_ended(Sequence{7}, stage, now, now);
  }

  std::string path_ = folder_ + "/timeline";
  OperationTable operations_;
  std::uint64_t next_batch_ = 0;
};

TEST_F(ATimeline, shows_negotiation_and_activities_of_every_tensor) {
  {
    auto timeline = open();
    run(*timeline, {&operation("allreduce.a"), &operation("allreduce.b")});
    run(*timeline, {&operation("broadcast.c", Verb::broadcast)});
  }
  Json all = trace();
  EXPECT_EQ(check_spans(all), 0);
  std::vector<std::string> expected{"B NEGOTIATE_ALLREDUCE", "X 0", "E", "B ALLREDUCE", "B QUEUE", "E",
                                    "B SHM_ALLREDUCE",       "E",   "E"};
  EXPECT_EQ(life_of(all, "allreduce.a"), expected);
  EXPECT_EQ(life_of(all, "allreduce.b"), expected);
  std::vector<std::string> of_c = life_of(all, "broadcast.c");
  EXPECT_EQ(of_c[3], "B BROADCAST");
  EXPECT_EQ(of_c[6], "B SHM_BCAST");
  EXPECT_EQ(all.items.back()["args"]["dtype"].text, "float32");
  EXPECT_EQ(all.items.back()["args"]["shape"].text, "[3]");
  EXPECT_EQ(all.items.back()["args"]["batch"].number, 1);
}

TEST_F(ATimeline, shows_batches_on_a_device_from_their_issue_to_their_end) {
  {
    auto timeline = open();
    timeline->ended(Sequence{6});  // issued before
    timeline->issued(Sequence{7}, "cuda device 1", "first");
    timeline->issued(Sequence{8}, "cuda device 1", "second \"quoted\"");
    timeline->ended(Sequence{7});
  }
  const Json all = trace();
  EXPECT_EQ(life_of(all, "cuda device 1"),
            (std::vector<std::string>{"b first", R"(b second \"quoted\")", "e first", R"(e second \"quoted\")"}))
      << "what has not ended ends with the file";
  EXPECT_EQ(all.items.back()["id2"]["local"].text, "8");
  EXPECT_EQ(all.items.back()["cat"].text, "device");
}

TEST_F(ATimeline, shows_the_stages_of_a_batch_on_a_device_by_the_names_that_users_know) {
  using What = StageOnDevice::What;
  {
    auto timeline = open();
    Operation& a = operation("allreduce.a");
    submit(*timeline, a);
    timeline->agreed(a, Sequence{7});
    timeline->connecting(Sequence{7}, "nccl");
    timeline->started(Sequence{7}, "nccl", "native");
    timeline->issued(Sequence{7}, "cuda device 1", "allreduce.a");
    timeline->finished(a, Sequence{7});
    for (What what : {What::waits, What::packs, What::travels, What::unpacks})
      end_stage(*timeline, {.what = what, .transport = "nccl"}, Clock::now());
    timeline->ended(Sequence{7});
    end_stage(*timeline, {.what = What::unpacks}, Clock::now());  // too late
  }
  const Json all = trace();
  EXPECT_EQ(life_of(all, "allreduce.a"),
            (std::vector<std::string>{"B NEGOTIATE_ALLREDUCE", "X 0", "E", "B ALLREDUCE", "B QUEUE", "E", "B INIT_NCCL",
                                      "E", "B NCCL_ALLREDUCE", "E", "E"}));
  EXPECT_EQ(
      life_of(all, "cuda device 1"),
      (std::vector<std::string>{"b allreduce.a", "b WAIT_FOR_DATA", "e WAIT_FOR_DATA", "b MEMCPY_IN_FUSION_BUFFER",
                                "e MEMCPY_IN_FUSION_BUFFER", "b NCCL_ALLREDUCE", "e NCCL_ALLREDUCE",
                                "b MEMCPY_OUT_FUSION_BUFFER", "e MEMCPY_OUT_FUSION_BUFFER", "e allreduce.a"}));
}

TEST_F(ATimeline, shows_the_parts_of_a_batch_that_goes_through_the_host_beside_each_other) {
  using What = StageOnDevice::What;
  constexpr std::uint8_t first = 0, second = 1;
  {
    auto timeline = open();
    const auto start = Clock::now();
    const auto stage = [&](const StageOnDevice& what, int begin, int end) {
      timeline->stage_ended(Sequence{7}, what, start + std::chrono::milliseconds(begin),
                            start + std::chrono::milliseconds(end));
    };
    timeline->stages_began(Sequence{7}, "cuda device 1", "a", start);
    stage({.what = What::packs, .part = first}, 0, 1);
    stage({.what = What::travels, .part = first, .verb = Verb::reduce_scatter, .transport = "nccl"}, 1, 2);
    stage({.what = What::packs, .part = second}, 1, 3);
    stage({.what = What::to_host, .part = first}, 2, 4);
    stage({.what = What::travels, .part = first, .verb = Verb::adasum, .transport = "mpi"}, 4, 6);
    stage({.what = What::travels, .part = second, .verb = Verb::broadcast, .transport = "tcp"}, 3, 7);
    timeline->issued(Sequence{7}, "cuda device 1", "a");  // the same batch
    stage({.what = What::from_host, .part = first}, 6, 8);
    timeline->ended(Sequence{7});
  }
  const Json all = trace();
  std::map<std::string, std::vector<std::string>> lives;  // by the number of the span
  std::map<std::string, double> last;
  for (const Json& event : all.items) {
    if (!event.has("id2")) continue;
    const std::string& number = event["id2"]["local"].text;
    lives[number].push_back(event["ph"].text + " " + event["name"].text);
    EXPECT_GE(event["ts"].number, last[number]);
    last[number] = event["ts"].number;
  }
  using Life = std::vector<std::string>;
  EXPECT_EQ(lives["7"], (Life{"b a", "b MEMCPY_IN_FUSION_BUFFER", "e MEMCPY_IN_FUSION_BUFFER", "b NCCL_REDUCESCATTER",
                              "e NCCL_REDUCESCATTER", "b MEMCPY_IN_HOST_BUFFER", "e MEMCPY_IN_HOST_BUFFER",
                              "b MPI_ADASUM_ALLREDUCE", "e MPI_ADASUM_ALLREDUCE", "b MEMCPY_OUT_HOST_BUFFER",
                              "e MEMCPY_OUT_HOST_BUFFER", "e a"}));
  EXPECT_EQ(lives["7.1"], (Life{"b a, part 2", "b MEMCPY_IN_FUSION_BUFFER", "e MEMCPY_IN_FUSION_BUFFER", "b TCP_BCAST",
                                "e TCP_BCAST", "e a, part 2"}));
  EXPECT_EQ(lives.size(), 2u);
}

TEST_F(ATimeline, gives_the_numbers_from_1_on_to_tensors_alone) {
  {
    auto timeline = open();
    run(*timeline, {&operation("a")});
    timeline->issued(Sequence{7}, "cuda device 1", "a");
    run(*timeline, {&operation("b")});
  }
  std::map<std::string, double> numbers;
  for (const Json& event : trace().items)
    if (event["name"].text == "process_name") numbers[event["args"]["name"].text] = event["pid"].number;
  EXPECT_EQ(numbers["a"], 1);
  EXPECT_EQ(numbers["b"], 2);
  EXPECT_GT(numbers["cuda device 1"], 1000);
}

TEST_F(ATimeline, begins_with_the_time_of_its_start) {
  open();
  Json all = trace();
  ASSERT_EQ(all.items.size(), 3u);
  EXPECT_EQ(all.items[0]["name"].text, "process_name");
  EXPECT_EQ(all.items[0]["ph"].text, "M");
  EXPECT_GT(all.items[0]["args"]["start_time_since_epoch_in_micros"].number, 1.7e15);
  EXPECT_EQ(all.items[1]["name"].text, "process_sort_index");
  EXPECT_EQ(all.items[2]["args"]["host"].text, "n1");
}

TEST_F(ATimeline, shows_ranks_in_the_order_in_which_they_were_ready) {
  {
    auto timeline = open();
    Operation& a = operation("a");
    timeline->ready(global_process_set, "a", Rank{2});
    submit(*timeline, a);
    timeline->ready(global_process_set, "a", Rank{0});  // this rank's own vote, already shown
    timeline->ready(global_process_set, "a", Rank{1});
    timeline->ready(ProcessSetId{1}, "a", Rank{7});  // an operation in another process set is another operation
    timeline->agreed(a, Sequence{0});
    timeline->finished(a, Sequence{0});
  }
  Json all = trace();
  EXPECT_EQ(check_spans(all), 0);
  std::vector<std::string> expected{"B NEGOTIATE_ALLREDUCE", "X 2",     "X 0", "X 1", "E",
                                    "B ALLREDUCE",           "B QUEUE", "E",   "E"};
  EXPECT_EQ(life_of(all, "a"), expected);
}

TEST_F(ATimeline, has_a_row_for_each_name_and_process_set) {
  {
    auto timeline = open();
    run(*timeline, {&operation("a"), &operation("a", Verb::allreduce, {3}, ProcessSetId{2})});
    run(*timeline, {&operation("a", Verb::allreduce, {4, 5})});  // another shape, but the same row
  }
  Json all = trace();
  EXPECT_EQ(check_spans(all), 0);
  EXPECT_EQ(life_of(all, "a").size(), 18u);
  EXPECT_EQ(life_of(all, "a (process set 2)").size(), 9u);
  EXPECT_EQ(all.items.back()["args"]["shape"].text, "[4, 5]");
}

TEST_F(ATimeline, shows_the_rows_of_each_call_and_the_exchange_of_sizes) {
  {
    auto timeline = open();
    Operation& gather = operation("g", Verb::allgather, {1, 5});
    gather.submission.first_dimension = 7;
    submit(*timeline, gather);
    timeline->agreed(gather, Sequence{0});
    timeline->stage(Sequence{0}, "EXCHANGE_SIZES");
    timeline->started(Sequence{0}, "tcp", "ring");
    timeline->finished(gather, Sequence{0});
  }
  Json all = trace();
  EXPECT_EQ(check_spans(all), 0);
  std::vector<std::string> expected{
      "B NEGOTIATE_ALLGATHER", "X 0", "E", "B ALLGATHER", "B QUEUE", "E", "B EXCHANGE_SIZES", "E",
      "B TCP_ALLGATHER",       "E",   "E"};
  EXPECT_EQ(life_of(all, "g"), expected);
  EXPECT_EQ(all.items.back()["args"]["shape"].text, "[7, 5]");
}

TEST_F(ATimeline, marks_every_batch_if_asked) {
  for (bool marks : {false, true}) {
    {
      auto timeline = open(1 << 12, marks);
      run(*timeline, {&operation("a"), &operation("b")});
      run(*timeline, {&operation("a"), &operation("b")});
    }
    Json all = trace();
    auto is_mark = [](const Json& event) { return event["name"].text == "CYCLE_START" && event["s"].text == "g"; };
    EXPECT_EQ(std::count_if(all.items.begin(), all.items.end(), is_mark), marks ? 2 : 0);
  }
}

TEST_F(ATimeline, ends_what_failed_with_the_error) {
  Error error(ErrorCode::mismatch, "Mismatched \"shapes\"\n of a\xff");
  {
    auto timeline = open();
    Operation &early = operation("early"), &late = operation("late");
    submit(*timeline, early);
    submit(*timeline, late);
    timeline->failed(early, error);
    timeline->agreed(late, Sequence{0});
    timeline->started(Sequence{0}, "shm", "native");
    timeline->failed(late, error);
  }
  Json all = trace();
  EXPECT_EQ(check_spans(all), 0);
  EXPECT_EQ(life_of(all, "early").size(), 3u);
  EXPECT_EQ(life_of(all, "late").size(), 9u);
  EXPECT_EQ(all.items.back()["args"]["error"].text, "Mismatched \\\"shapes\\\"\\u000a of a\\ufffd");
}

TEST_F(ATimeline, ends_open_spans_when_it_is_closed) {
  {
    auto timeline = open();
    Operation &waits = operation("waits"), &runs = operation("runs"), &unseen = operation("unseen");
    submit(*timeline, waits);
    submit(*timeline, runs);
    timeline->agreed(runs, Sequence{0});
    timeline->agreed(unseen, Sequence{0});  // submitted before the timeline began
    timeline->started(Sequence{0}, "shm", "native");
    timeline->finished(unseen, Sequence{0});
  }
  Json all = trace();
  EXPECT_EQ(check_spans(all), 0);
  EXPECT_EQ(life_of(all, "waits").size(), 3u);
  EXPECT_EQ(life_of(all, "runs").size(), 9u);
  EXPECT_TRUE(life_of(all, "unseen").empty());
}

// Every operation under way has reserved its room in the queue. Therefore a small queue takes a few at a time, however
// fast its reader is.
TEST_F(ATimeline, leaves_out_whole_operations_when_there_is_no_room_and_says_how_many) {
  constexpr int count = 100, rounds = 20;
  {
    auto timeline = open(64);
    std::vector<Operation*> batch;
    for (int i = 0; i < count; ++i) batch.push_back(&operation("tensor" + std::to_string(i)));
    for (int round = 0; round < rounds; ++round) run(*timeline, batch);
  }
  Json all = trace();
  EXPECT_EQ(check_spans(all), 0);
  int dropped = 0, shown = 0;
  for (const Json& event : all.items) {
    if (event["name"].text == "DROPPED") dropped += static_cast<int>(event["args"]["operations"].number);
    if (event["name"].text == "NEGOTIATE_ALLREDUCE") ++shown;
  }
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(dropped + shown, count * rounds);
}

TEST_F(ATimeline, survives_long_and_strange_names) {
  std::string longest(5'000, '\x01');
  {
    auto timeline = open();
    run(*timeline, {&operation(longest), &operation("\"\\/\t\xc3\xa4\xed\xa0\x80\xf5"), &operation("ä")});
  }
  Json all = trace();
  EXPECT_EQ(check_spans(all), 0);
  EXPECT_EQ(life_of(all, "ä").size(), 9u);
}

TEST_F(ATimeline, shows_many_operations_that_share_places) {
  {
    auto timeline = open(1 << 17);
    for (int i = 0; i < 70'000; ++i) {
      Operation& passing = operation("passing." + std::to_string(i));
      if (i % 10'000 == 0) run(*timeline, {&passing});
      operations_.release(passing);
    }
  }
  Json all = trace();
  EXPECT_EQ(check_spans(all), 0);
  EXPECT_EQ(life_of(all, "passing.0").size(), 9u);
  EXPECT_EQ(life_of(all, "passing.60000").size(), 9u);
}

}  // namespace
}  // namespace hvd::runtime
