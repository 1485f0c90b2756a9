#include "exercise.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/reduce_op.hpp"
#include "naive.hpp"

namespace hvd::testing {

namespace {

// Returns a small number for an element of a rank. The numbers are so small that no type has to round a result.
double value_of(DataType dtype, ReduceOp op, int rank, std::size_t element, int batch) {
  std::uint64_t mixed = (element * 7 + static_cast<std::size_t>(rank) * 13 + static_cast<std::size_t>(batch) * 5 + 3) *
                        0x9E3779B97F4A7C15ull;
  int draw = static_cast<int>(mixed >> 60);  // a number from 0 to 15
  bool is_floating = hvd::is_floating(dtype);
  bool is_signed = is_floating || dtype == DataType::i8 || dtype == DataType::i16 || dtype == DataType::i32 ||
                   dtype == DataType::i64;
  if (dtype == DataType::boolean) return op == ReduceOp::product || op == ReduceOp::min ? draw != 0 : draw == 0;
  if (op == ReduceOp::product) {
    if (is_floating) return draw % 4 == 0 ? 2.0 : draw % 4 == 1 ? 0.5 : draw % 4 == 2 ? -1.0 : 1.0;
    return draw % 3 == 0 ? 2.0 : draw % 3 == 1 && is_signed ? -1.0 : 1.0;
  }
  return is_signed ? draw % 7 - 3 : draw % 4;
}

// Divides `count` elements in one buffer into tensors. Their sizes differ, and some have no elements.
std::vector<Segment> segments_in(std::byte* data, DataType dtype, std::int64_t count, int segments) {
  std::vector<Segment> list;
  std::int64_t begin = 0;
  for (int index = 0; index < segments; ++index) {
    std::int64_t end = index + 1 == segments ? count
                       : index % 3 == 1      ? begin
                                             : std::min(count, begin + count / segments + index);
    std::byte* at = data == nullptr ? nullptr : data + static_cast<std::size_t>(begin) * size_of(dtype);
    list.push_back({TensorView{at, end - begin, dtype}});
    begin = end;
  }
  return list;
}

// Reports a mismatch as one message, which names the first element that differs.
void compare(const Buffer& found, const Buffer& expected, DataType dtype, int rank, const std::string& context) {
  if (found == expected) return;
  ASSERT_EQ(found.size(), expected.size()) << context;
  for (std::size_t at = 0; at < found.size(); at += size_of(dtype))
    if (std::memcmp(found.data() + at, expected.data() + at, size_of(dtype)) != 0) {
      FAIL() << context << ": rank " << rank << ", element " << at / size_of(dtype) << ": expected "
             << load(dtype, expected.data() + at) << ", found " << load(dtype, found.data() + at);
    }
}

// Checks that the whole tensor equals `expected` (doubles) except for rounding errors.
void compare_rounded(const Buffer& found, const Buffer& expected, DataType dtype, int rank,
                     const std::string& context) {
  double distance = 0, length = 0;
  for (std::size_t at = 0; at < expected.size() / sizeof(double); ++at) {
    double wanted = load(DataType::f64, expected.data() + at * sizeof(double));
    double difference = load(dtype, found.data() + at * size_of(dtype)) - wanted;
    distance += difference * difference;
    length += wanted * wanted;
  }
  // The products are added up in double. The error grows with their number.
  double accumulated = epsilon_of(DataType::f64) * std::sqrt(static_cast<double>(expected.size() / sizeof(double)));
  double allowed = (2 * epsilon_of(dtype) + accumulated) * std::sqrt(length);
  EXPECT_LE(std::sqrt(distance), allowed) << context << ": rank " << rank;
}

// The buffers of one exercise, for all ranks.
class Stage {
 public:
  Stage(Verb verb, const Exercise& what, int ranks, int ranks_of_mean, std::vector<std::int64_t> counts)
      : verb_(verb),
        what_(what),
        ranks_(ranks),
        ranks_of_mean_(static_cast<std::size_t>(ranks_of_mean)),
        counts_(std::move(counts)),
        element_bytes_(size_of(what.dtype)) {}

  std::vector<Part> fill(const Collective& collective, int batch) {
    // Every batch has other numbers, for the same tasks.
    if (batch > 0 && !what_.even_counts) std::ranges::rotate(counts_, counts_.begin() + 1);
    begins_.assign(1, 0);
    for (std::int64_t count : counts_) begins_.push_back(begins_.back() + count);
    inputs_.clear();
    batch_ = batch;
    found_.clear();
    expected_.clear();
    for (int rank = 0; rank < ranks_; ++rank) {
      Buffer input(elements_in(rank) * element_bytes_);
      for (std::size_t element = 0; element < elements_in(rank); ++element) {
        double value = lacks_input(rank) ? 0.0 : value_of(what_.dtype, what_.op, rank, element, batch);
        store(what_.dtype, value, input.data() + element * element_bytes_);
      }
      inputs_.push_back(std::move(input));
    }
    for (int rank = 0; rank < ranks_; ++rank) expected_.push_back(expect(collective, rank));
    std::vector<Part> parts;
    for (int rank = 0; rank < ranks_; ++rank) found_.emplace_back(elements_out(rank) * element_bytes_, std::byte{0x5a});
    for (int rank = 0; rank < ranks_; ++rank) parts.push_back(part_of(rank));
    originals_ = inputs_;
    return parts;
  }

  void check(const Performers& ranks, const std::string& context) {
    const Buffer* first = nullptr;  // adasum: all ranks must have the same bits
    for (int rank = 0; rank < ranks_; ++rank) {
      auto index = static_cast<std::size_t>(rank);
      if (lacks_output(rank) || !ranks.is_here(rank)) continue;
      const bool in_input = is_in_input();
      if (in_input) take_from_input(rank);
      const Buffer& found = found_[index];
      if (verb_ == Verb::adasum) {
        compare_rounded(found, expected_[index], what_.dtype, rank, context);
        if (first == nullptr) first = &found;
        compare(found, *first, what_.dtype, rank, context + ", compared with the first rank");
      }
      if (verb_ != Verb::adasum) compare(found, expected_[index], what_.dtype, rank, context);
      if (!in_input && verb_ != Verb::broadcast) {
        EXPECT_EQ(inputs_[index], originals_[index]) << context << ": the input of rank " << rank << " was changed";
      }
    }
  }

 private:
  std::size_t elements_in(int rank) const {
    if (verb_ == Verb::barrier) return 0;
    if (verb_ == Verb::alltoall) return exchanged_before(rank, ranks_);
    return static_cast<std::size_t>(verb_ == Verb::allgather ? counts_[static_cast<std::size_t>(rank)] : what_.count);
  }
  std::size_t elements_out(int rank) const {
    if (verb_ == Verb::barrier) return 0;
    if (verb_ == Verb::alltoall) {
      std::size_t all = 0;
      for (int from = 0; from < ranks_; ++from) all += exchanged(from, rank);
      return all;
    }
    return static_cast<std::size_t>(verb_ == Verb::reduce_scatter ? counts_[static_cast<std::size_t>(rank)]
                                                                  : what_.count);
  }

  // True if the result replaces the input, or the part of it that has its place in the result of all.
  bool is_in_input() const {
    using enum VerbRow::Outcome;
    const VerbRow::Outcome outcome = row_of(verb_).outcome;
    return what_.in_place && (outcome == as_input || outcome == share);
  }
  std::size_t place_in_input(int rank) const {
    const bool is_share = row_of(verb_).outcome == VerbRow::Outcome::share;
    return is_share ? static_cast<std::size_t>(begins_[static_cast<std::size_t>(rank)]) * element_bytes_ : 0;
  }
  void take_from_input(int rank) {
    auto index = static_cast<std::size_t>(rank);
    if (!found_[index].empty())
      std::memcpy(found_[index].data(), inputs_[index].data() + place_in_input(rank), found_[index].size());
  }

  bool lacks_input(int rank) const { return rank == what_.joined && what_.lacks != Exercise::Lacks::output; }
  bool lacks_output(int rank) const { return rank == what_.joined && what_.lacks != Exercise::Lacks::input; }

  // How many elements rank `from` sends to rank `to`: a different number in every batch, often zero.
  std::size_t exchanged(int from, int to) const {
    if (what_.even_counts) return static_cast<std::size_t>(transport::share_of(what_.count, Seat{to}, ranks_).count());
    int draw = (from * 5 + to * 3 + batch_) % 4;
    return static_cast<std::size_t>(what_.count * draw / (3 * ranks_));
  }
  std::size_t exchanged_before(int from, int to) const {
    std::size_t all = 0;
    for (int before = 0; before < to; ++before) all += exchanged(from, before);
    return all;
  }

  Buffer expect(const Collective& collective, int rank) const {
    Buffer expected(elements_out(rank) * element_bytes_);
    switch (verb_) {
      case Verb::barrier: break;
      case Verb::broadcast: return inputs_[static_cast<std::size_t>(what_.root)];
      case Verb::allgather: {
        expected.clear();
        for (const Buffer& input : inputs_) expected.insert(expected.end(), input.begin(), input.end());
        break;
      }
      case Verb::alltoall: {
        expected.clear();
        for (int from = 0; from < ranks_; ++from) {
          const std::byte* begin =
              inputs_[static_cast<std::size_t>(from)].data() + exchanged_before(from, rank) * element_bytes_;
          expected.insert(expected.end(), begin, begin + exchanged(from, rank) * element_bytes_);
        }
        break;
      }
      case Verb::adasum: {  // kept unrounded, as doubles
        expected.resize(elements_out(rank) * sizeof(double));
        std::size_t first = 0;
        for (const Segment& tensor : segments_in(nullptr, what_.dtype, what_.count, what_.segments)) {
          auto count = static_cast<std::size_t>(tensor.view.count);
          std::vector<double> values = naive_adasum(collective, inputs_, first, count, ranks_of_mean_);
          std::copy(values.begin(), values.end(), reinterpret_cast<double*>(expected.data()) + first);
          first += count;
        }
        break;
      }
      case Verb::allreduce:
      case Verb::reduce_scatter: {
        std::size_t first =
            verb_ == Verb::reduce_scatter ? static_cast<std::size_t>(begins_[static_cast<std::size_t>(rank)]) : 0;
        for (std::size_t element = 0; element < elements_out(rank); ++element)
          store(what_.dtype, naive_reduction(collective, inputs_, first + element),
                expected.data() + element * element_bytes_);
        break;
      }
      case Verb::join:
      case Verb::add_set:
      case Verb::remove_set: break;
    }
    return expected;
  }

  Part part_of(int rank) {
    auto index = static_cast<std::size_t>(rank);
    auto count = [](std::size_t elements) { return static_cast<std::int64_t>(elements); };
    std::byte *in = inputs_[index].data(), *out = found_[index].data();
    if (lacks_input(rank)) in = nullptr;
    if (lacks_output(rank)) out = nullptr;
    if (is_in_input()) out = in == nullptr ? nullptr : in + place_in_input(rank);
    if (what_.in_place && verb_ == Verb::allgather) {
      in = out + static_cast<std::size_t>(begins_[index]) * element_bytes_;
      if (!inputs_[index].empty()) std::memcpy(in, inputs_[index].data(), inputs_[index].size());
    }
    Part part{segments_in(in, what_.dtype, count(elements_in(rank)), what_.segments),
              segments_in(out, what_.dtype, count(elements_out(rank)), what_.segments),
              {},
              {}};
    for (int other = 0; verb_ == Verb::alltoall && other < ranks_; ++other) {
      part.sent.push_back(count(exchanged(rank, other)));
      part.received.push_back(count(exchanged(other, rank)));
    }
    if (verb_ == Verb::allgather && !what_.even_counts) part.received = counts_;
    if (verb_ == Verb::reduce_scatter && !what_.even_counts) part.sent = counts_;
    if (verb_ == Verb::barrier) part = {};
    if (verb_ == Verb::broadcast && rank != what_.root) part.in.clear();
    return part;
  }

  const Verb verb_;
  const Exercise what_;
  const int ranks_;
  const std::size_t ranks_of_mean_;
  std::vector<std::int64_t> counts_, begins_;
  const std::size_t element_bytes_;
  int batch_ = 0;
  std::vector<Buffer> inputs_, originals_, found_, expected_;
};

class InTurn final : public Performers {
 public:
  explicit InTurn(RanksInTurn& ranks) : ranks_(ranks) {}
  int size() const override { return ranks_.size(); }
  bool is_here(int) const override { return true; }
  collectives::Team& team() override { return ranks_.team(0); }
  Tasks plan(const collectives::Algorithm& algorithm, const Collective& collective) override {
    return ranks_.plan(algorithm, collective);
  }
  Progress run(Tasks& tasks, const std::vector<Part>& parts) override { return ranks_.run(tasks, parts); }
  void abort() override { ranks_.abort(); }

 private:
  RanksInTurn& ranks_;
};

}  // namespace

std::string Exercise::describe() const {
  return std::string(name_of(dtype)) + " " + name_of(op) + ", " + std::to_string(count) + " elements in " +
         std::to_string(segments) + " tensors, " + (in_place ? "in place" : "out of place") + ", scales " +
         std::to_string(prescale) + " " + std::to_string(postscale) + ", root " + std::to_string(root) + ", joined " +
         std::to_string(joined) +
         (lacks == Lacks::both    ? ""
          : lacks == Lacks::input ? " (input)"
                                  : " (output)") +
         (even_counts ? ", even counts" : "");
}

std::vector<DataType> every_data_type() {
  std::vector<DataType> list;
  for (int type = 0; type < data_type_count; ++type) list.push_back(static_cast<DataType>(type));
  return list;
}

std::vector<std::int64_t> uneven_counts(std::int64_t total, int seats) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(seats), 0);
  std::int64_t left = total;
  for (int seat = 0; seat < seats; ++seat) {
    std::int64_t count = seat + 1 == seats ? left
                         : seat % 3 == 2   ? 0
                                           : std::min(left, total * (seat + 1) / (seats * seats) + 1);
    counts[static_cast<std::size_t>(seat)] = count;
    left -= count;
  }
  return counts;
}

bool exercise(RanksInTurn& ranks, const collectives::Algorithm& algorithm, Verb verb, const Exercise& what,
              int batches) {
  InTurn performers(ranks);
  return exercise(performers, algorithm, verb, what, batches);
}

bool exercise(Performers& ranks, const collectives::Algorithm& algorithm, Verb verb, const Exercise& what,
              int batches) {
  std::vector<std::int64_t> counts = uneven_counts(what.count, ranks.size());
  if (what.even_counts)
    for (int seat = 0; seat < ranks.size(); ++seat)
      counts[static_cast<std::size_t>(seat)] = transport::share_of(what.count, Seat{seat}, ranks.size()).count();
  Collective collective;
  collective.verb = verb;
  collective.dtype = what.dtype;
  collective.op = what.op;
  collective.prescale = what.prescale;
  collective.postscale = what.postscale;
  collective.root = Seat{what.root};
  collective.count = what.count;
  collective.device = ranks.device();

  std::string context = std::string(algorithm.name()) + " " + name_of(verb) + " of " + std::to_string(ranks.size()) +
                        " ranks, " + what.describe();
  SCOPED_TRACE(context);
  if (reduces(verb) && !takes(what.op, what.dtype)) return false;
  if (!algorithm.cost(collective, ranks.team()).possible()) return false;
  Performers::Tasks tasks = ranks.plan(algorithm, collective);
  Stage stage(verb, what, ranks.size(), ranks.ranks_of_mean(), counts);
  for (int batch = 0; batch < batches; ++batch) {
    std::vector<Part> parts = stage.fill(collective, batch);
    if (ranks.run(tasks, parts) != Progress::done) {
      std::string reasons;
      for (auto& task : tasks)
        if (task && task->step() == Progress::failed) reasons += "\n" + task->failure().message;
      ranks.abort();  // links are aborted before the tasks are destroyed
      ADD_FAILURE() << context << " failed" << reasons;
      return true;
    }
    stage.check(ranks, context + ", batch " + std::to_string(batch));
    if (::testing::Test::HasFailure()) return true;
  }
  return true;
}

void exchange_giants(Performers& ranks, const collectives::Algorithm& algorithm) {
  constexpr std::int64_t block = 32 << 20, blocks = 64, end = 1003;
  auto numbers = [](std::int64_t count, int rank) {
    Buffer buffer(static_cast<std::size_t>(count));
    for (std::size_t at = 0; at < buffer.size(); ++at)
      buffer[at] = static_cast<std::byte>(at * 31 / 7 + static_cast<std::size_t>(rank) * 100);
    return buffer;
  };
  auto add = [](std::vector<Segment>& list, Buffer& buffer) {
    list.push_back({TensorView{buffer.data(), static_cast<std::int64_t>(buffer.size()), DataType::u8}});
  };
  std::vector<Buffer> sent, sent_ends, received(2, Buffer(block)), received_ends(2, Buffer(end));
  std::vector<Part> parts(2);
  for (int rank = 0; rank < 2; ++rank) {
    sent.push_back(numbers(block, rank));
    sent_ends.push_back(numbers(end, rank + 2));
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < blocks; ++i) {
      add(parts[rank].in, sent[rank]);
      add(parts[rank].out, received[rank]);
    }
    add(parts[rank].in, sent_ends[rank]);
    add(parts[rank].out, received_ends[rank]);
    parts[rank].sent.assign(2, 0);
    parts[rank].sent[1 - rank] = block * blocks + end;
    parts[rank].received = parts[rank].sent;
  }
  Collective collective;
  collective.verb = Verb::alltoall;
  collective.dtype = DataType::u8;
  ASSERT_TRUE(algorithm.cost(collective, ranks.team()).possible());
  Performers::Tasks tasks = ranks.plan(algorithm, collective);
  ASSERT_EQ(ranks.run(tasks, parts), Progress::done);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    if (!ranks.is_here(static_cast<int>(rank))) continue;
    EXPECT_TRUE(received[rank] == sent[1 - rank]) << "rank " << rank;
    EXPECT_TRUE(received_ends[rank] == sent_ends[1 - rank]) << "rank " << rank;
  }
}

void exchange_giants(RanksInTurn& ranks, const collectives::Algorithm& algorithm) {
  InTurn performers(ranks);
  exchange_giants(performers, algorithm);
}

}  // namespace hvd::testing
