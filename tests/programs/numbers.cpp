#include "programs/numbers.hpp"

#include <algorithm>
#include <cmath>

#include "conformance/naive.hpp"

namespace hvd::programs {

namespace {

DataType type_of(hvd_dtype dtype) {
  return static_cast<DataType>(dtype);
}
bool is_unsigned(hvd_dtype dtype) {
  return dtype == HVD_BOOL || dtype == HVD_UINT8 || dtype == HVD_UINT16 || dtype == HVD_UINT32 || dtype == HVD_UINT64;
}

// A number so small that no result needs more digits than its type has.
double value_of(const Occasion& it, int rank, std::int64_t element) {
  const Kind& kind = it.kind();
  std::uint64_t mixed = (static_cast<std::uint64_t>(element) * 31 + static_cast<std::uint64_t>(rank) * 17 +
                         static_cast<std::uint64_t>(it.step) * 7 + static_cast<std::uint64_t>(it.use) * 3 +
                         static_cast<std::uint64_t>(it.phase)) *
                        0x9E3779B97F4A7C15ull;
  int drawn = static_cast<int>(mixed >> 59);  // a number from 0 to 31
  if (kind.dtype == HVD_BOOL) return kind.op == HVD_MIN || kind.op == HVD_PRODUCT ? drawn != 0 : drawn % 8 == 0;
  if (kind.op == HVD_PRODUCT && kind.verb == HVD_ALLREDUCE)
    return drawn % 4 == 0 ? 2 : drawn % 4 == 1 && !is_unsigned(kind.dtype) ? -1 : 1;
  return is_unsigned(kind.dtype) ? drawn % 6 : drawn % 13 - 6;
}

double scaled(hvd_dtype dtype, double value, double factor) {
  if (factor == 1) return value;
  return is_floating(type_of(dtype)) ? value * factor : std::trunc(value * factor);
}

// The expected result for one element of a reduction. Ranks that have joined contribute zeros.
double reduced(const Occasion& it, std::int64_t element, double* magnitude) {
  const Kind& kind = it.kind();
  double total = 0;
  bool is_first = true;
  for (int rank : it.members()) {
    double value = it.takes_part(rank) ? scaled(kind.dtype, value_of(it, rank, element), kind.prescale) : 0;
    *magnitude += std::fabs(value);
    switch (kind.op) {
      case HVD_MIN: total = is_first ? value : std::min(total, value); break;
      case HVD_MAX: total = is_first ? value : std::max(total, value); break;
      case HVD_PRODUCT: total = is_first ? value : total * value; break;
      default: total += value;
    }
    is_first = false;
  }
  if (kind.dtype == HVD_BOOL) total = total != 0 ? 1 : 0;
  double post = kind.postscale;
  if (kind.op == HVD_AVERAGE) post *= 1.0 / static_cast<double>(it.members().size());
  *magnitude = std::max(*magnitude, std::fabs(total)) * std::fabs(post);
  return scaled(kind.dtype, total, post);
}

// The origin of an element that a rank gets: a rank, and the index in that rank's input.
struct Source {
  int rank;
  std::int64_t element;
};
Source source_of(const Occasion& it, int rank, std::int64_t element) {
  const Kind& kind = it.kind();
  if (kind.verb == HVD_BROADCAST) return {kind.root, element};
  const std::int64_t per_row = kind.count();
  std::vector<std::int64_t> rows = rows_from(it, rank);
  for (std::size_t place = 0; place < rows.size(); ++place) {
    if (element >= rows[place] * per_row) {
      element -= rows[place] * per_row;
      continue;
    }
    int from = it.members()[place];
    if (kind.verb == HVD_ALLTOALL)
      for (int other : it.members())
        if (other < rank) element += rows_between(*it.program, it.phase, it.use, it.step, from, other) * per_row;
    return {from, element};
  }
  return {rank, element};
}

std::optional<std::string> find_fault_of_adasum(const Occasion& it, int rank, const std::byte* found) {
  const Kind& kind = it.kind();
  Collective collective;
  collective.dtype = type_of(kind.dtype);
  collective.prescale = kind.prescale;
  collective.postscale = kind.postscale;
  const auto count = static_cast<std::size_t>(kind.count());
  std::vector<Buffer> inputs;
  for (int member : it.members()) {
    inputs.emplace_back(count * bytes_of(kind.dtype));
    if (it.takes_part(member)) fill_input(it, member, inputs.back().data());
  }
  std::vector<double> wanted = testing::naive_adasum(collective, inputs, 0, count);
  double distance = 0, length = 0;
  for (std::size_t at = 0; at < count; ++at) {
    double difference = testing::load(collective.dtype, found + at * bytes_of(kind.dtype)) - wanted[at];
    distance += difference * difference;
    length += wanted[at] * wanted[at];
  }
  // Every stage rounds its vectors, in proportion to their length. They may be longer than the result, because vectors
  // of different directions partly cancel each other. So more is allowed than the rounding of the result itself.
  double allowed = 8 * testing::epsilon_of(collective.dtype) * (std::sqrt(length) + 1);
  if (std::sqrt(distance) <= allowed) return std::nullopt;
  return "rank " + std::to_string(rank) + " is " + std::to_string(std::sqrt(distance)) +
         " away from a vector of length " + std::to_string(std::sqrt(length));
}

}  // namespace

int Occasion::place_of(int rank) const {
  auto found = std::ranges::lower_bound(members(), rank);
  return found == members().end() || *found != rank ? -1 : static_cast<int>(found - members().begin());
}

bool Occasion::takes_part(int rank) const {
  const Phase& its_phase = program->phases[static_cast<std::size_t>(phase)];
  return what().set != 0 || its_phase.join_after.empty() || step < its_phase.join_after[static_cast<std::size_t>(rank)];
}

std::size_t bytes_of(hvd_dtype dtype) {
  return size_of(type_of(dtype));
}

std::int64_t count_in(const Occasion& it, int rank) {
  const Kind& kind = it.kind();
  if (kind.verb == HVD_BARRIER) return 0;
  if (kind.verb == HVD_ALLGATHER) return rows_of(*it.program, it.phase, it.use, it.step, rank) * kind.count();
  if (kind.verb != HVD_ALLTOALL) return kind.count();
  std::int64_t rows = 0;
  for (int to : it.members()) rows += rows_between(*it.program, it.phase, it.use, it.step, rank, to);
  return rows * kind.count();
}

std::vector<std::int64_t> rows_from(const Occasion& it, int rank) {
  std::vector<std::int64_t> rows;
  for (int from : it.members())
    rows.push_back(it.kind().verb == HVD_ALLGATHER ? rows_of(*it.program, it.phase, it.use, it.step, from)
                                                   : rows_between(*it.program, it.phase, it.use, it.step, from, rank));
  return rows;
}

std::int64_t count_out(const Occasion& it, int rank) {
  const Kind& kind = it.kind();
  const auto size = static_cast<int>(it.members().size());
  if (kind.verb == HVD_BARRIER) return 0;
  if (kind.verb == HVD_REDUCESCATTER && kind.shape[0] > 0)
    return kind.count() / kind.shape[0] * hvd_rows_of(kind.shape[0], it.place_of(rank), size);
  if (!kind.has_own_rows()) return kind.count();
  std::int64_t rows = 0;
  for (std::int64_t of_one : rows_from(it, rank)) rows += of_one;
  return rows * kind.count();
}

void fill_input(const Occasion& it, int rank, std::byte* data) {
  const Kind& kind = it.kind();
  const std::int64_t count = count_in(it, rank);
  const std::size_t size = bytes_of(kind.dtype);
  for (std::int64_t at = 0; at < count; ++at)
    testing::store(type_of(kind.dtype), value_of(it, rank, at), data + static_cast<std::size_t>(at) * size);
}

std::optional<std::string> find_fault(const Occasion& it, int rank, const std::byte* found) {
  const Kind& kind = it.kind();
  if (kind.op == HVD_ADASUM && kind.verb == HVD_ALLREDUCE) return find_fault_of_adasum(it, rank, found);
  const bool reduces = kind.verb == HVD_ALLREDUCE || kind.verb == HVD_REDUCESCATTER;
  const std::size_t size = bytes_of(kind.dtype);
  const std::int64_t count = count_out(it, rank);
  std::int64_t first = 0;
  if (kind.verb == HVD_REDUCESCATTER && kind.shape[0] > 0)
    for (int place = 0; place < it.place_of(rank); ++place)
      first += kind.count() / kind.shape[0] * hvd_rows_of(kind.shape[0], place, static_cast<int>(it.members().size()));
  // To check all elements of a large tensor would take longer than the rest of the program.
  constexpr std::int64_t few = 6000;
  const std::int64_t stride = count <= few ? 1 : count / few | 1;
  for (std::int64_t at = 0; at < count; at += at < 64 || at + 64 > count ? 1 : std::min(stride, count - 64 - at + 1)) {
    double magnitude = 0;
    Source source = reduces ? Source{} : source_of(it, rank, at);
    double wanted = reduces ? reduced(it, first + at, &magnitude) : value_of(it, source.rank, source.element);
    double got = testing::load(type_of(kind.dtype), found + static_cast<std::size_t>(at) * size);
    double allowed =
        reduces && is_floating(type_of(kind.dtype)) ? 2 * testing::epsilon_of(type_of(kind.dtype)) * magnitude : 0;
    if (!(std::fabs(got - wanted) <= allowed))
      return "rank " + std::to_string(rank) + ", element " + std::to_string(at) + " of " + std::to_string(count) +
             ": expected " + std::to_string(wanted) + ", found " + std::to_string(got);
  }
  return std::nullopt;
}

}  // namespace hvd::programs
