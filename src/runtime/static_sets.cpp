#include "runtime/static_sets.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "base/error_ids.hpp"
#include "bootstrap/mpi/over_communicator.hpp"
#include "runtime/operations/process_sets.hpp"

namespace hvd::runtime {

namespace {

std::string text_of(const std::vector<Rank>& ranks) {
  std::string text;
  for (Rank rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank.value);
  return "[" + text + "]";
}

// Returns the ranks of the communicator's processes in ascending order. Collective over the communicator.
Result<std::vector<Rank>> ranks_of(const void* communicator, std::size_t handle_bytes, const Runtime& runtime,
                                   const Environment& environment) {
  bootstrap::Members members;
  members.mpi_communicator = communicator;
  members.handle_bytes = handle_bytes;
  auto own = bootstrap::communicator_of(members, environment, runtime.config());
  if (!own) return own.error();
  std::vector<Rank> ranks(static_cast<std::size_t>((*own)->size()));
  Rank mine = runtime.world().rank;
  HVD_RETURN_IF_ERROR((*own)->allgather({reinterpret_cast<const std::byte*>(&mine), sizeof mine},
                                        {reinterpret_cast<std::byte*>(ranks.data()), ranks.size() * sizeof mine}));
  (*own)->release();
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// Returns the numbers of all ranks, ordered by rank. Collective over the world.
Result<std::vector<std::int64_t>> gather(Runtime& runtime, const std::vector<std::int64_t>& mine) {
  Signature signature;
  signature.verb = Verb::allgather;
  signature.dtype = DataType::i64;
  signature.shape = {0};
  signature.transient = true;
  auto operation = runtime.prepare("horovod.process_set.communicators", signature);
  if (!operation) return operation.error();
  Start start;
  start.operation = *operation;
  start.input = mine.data();
  start.first_dimension = static_cast<std::int64_t>(mine.size());
  auto ran = runtime.run(start);
  if (!ran) return ran.error();
  HandleCell* cell = *ran;
  Status status = cell->error ? Status(*cell->error) : Status();
  std::vector<std::int64_t> all;
  if (status) {
    const KeptResult& result = cell->results.front();
    all.resize(result.bytes / sizeof(std::int64_t));
    std::memcpy(all.data(), result.data.data(), result.bytes);
  }
  runtime.release(*cell);
  if (!status) return status.error();
  return all;
}

}  // namespace

std::string knob_of(const StaticSets& sets) {
  if (sets.listed.empty()) return "";
  std::string text = "process sets=";
  for (std::vector<Rank> set : sets.listed) {
    std::sort(set.begin(), set.end());
    text += text_of(set);
  }
  return text + "\n";
}

Status check_ranks_of_set(const std::vector<Rank>& ascending, int world_size) {
  const bool is_sound = !ascending.empty() && ascending.front().value >= 0 && ascending.back().value < world_size &&
                        std::adjacent_find(ascending.begin(), ascending.end()) == ascending.end();
  if (is_sound) return {};
  std::string found = ascending.empty() ? "none" : "[" + describe(ascending) + "]";
  if (!ascending.empty() && ascending.back().value >= world_size)
    found += ", of which the highest is " + std::to_string(ascending.back().value);
  return identified(
      Error(ErrorCode::invalid_argument,
            "a process set needs ranks from 0 to " + std::to_string(world_size - 1) + ", each once; got " + found),
      "HVD2111");
}

Result<std::vector<std::vector<Rank>>> distinct_sets(const std::vector<std::vector<Rank>>& listed, int world_size) {
  std::vector<std::vector<Rank>> distinct;
  for (std::vector<Rank> set : listed) {
    std::sort(set.begin(), set.end());
    if (set.empty()) continue;  // an empty list means all ranks
    HVD_RETURN_IF_ERROR(check_ranks_of_set(set, world_size));
    bool is_new = static_cast<int>(set.size()) < world_size && std::ranges::find(distinct, set) == distinct.end();
    if (is_new) distinct.push_back(std::move(set));
  }
  return distinct;
}

Status add_sets_of_communicators(Runtime& runtime, const Environment& environment, StaticSets& sets) {
  // Without communicators on this rank there is nothing to do. MPI programs pass communicators on every rank or on
  // none. A rank that passes none cannot be distinguished from one that has none.
  if (sets.communicators.empty()) return {};
  std::vector<std::vector<Rank>> own;
  std::vector<std::int64_t> mine;
  for (const void* communicator : sets.communicators) {
    auto ranks = ranks_of(communicator, sets.communicator_bytes, runtime, environment);
    if (!ranks) return ranks.error();
    mine.push_back(static_cast<std::int64_t>(ranks->size()));
    for (Rank rank : *ranks) mine.push_back(rank.value);
    own.push_back(std::move(*ranks));
  }
  auto all = gather(runtime, mine);
  if (!all) return all.error();
  std::set<std::vector<Rank>> distinct;
  for (std::size_t at = 0; at < all->size();) {
    auto count = static_cast<std::size_t>((*all)[at++]);
    std::vector<Rank> ranks;
    for (std::size_t i = 0; i < count && at < all->size(); ++i)
      ranks.emplace_back(static_cast<std::int32_t>((*all)[at++]));
    distinct.insert(std::move(ranks));
  }
  for (const std::vector<Rank>& ranks : distinct) {
    const CurrentSets known = runtime.process_sets();
    if (known->of(ranks) != nullptr) continue;
    if (auto added = runtime.add_process_set(ranks); !added) return added.error();
  }
  const CurrentSets known = runtime.process_sets();
  for (const std::vector<Rank>& ranks : own) sets.numbers_of_communicators.push_back(known->of(ranks)->number);
  return {};
}

}  // namespace hvd::runtime
