// Our own kernels: what a launch reads and writes follows from its list.
#include <cstring>
#include <string>

#include "devices/kernels/kernel_names.hpp"
#include "fixtures/cuda_kernels/on_host.hpp"
#include "state.hpp"

namespace hvd::doubles {
namespace {

using namespace devices::cuda;
using testing::Work;

std::size_t size_of_type(std::string_view name) {
  if (name == "f64" || name == "i64") return 8;
  if (name == "f32" || name == "i32") return 4;
  return name == "u8" || name == "i8" ? 1 : 2;
}

// The elements of a kernel of moves, by its name: hvd_move_bytes, hvd_move_f16_f32, hvd_scale_i8.
struct Elements {
  std::size_t from = 1, to = 1;
};
Elements elements_of(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('_') + 1);
  if (name.starts_with("hvd_scale_")) return {size_of_type(last), size_of_type(last)};
  if (!name.starts_with("hvd_move_") || last == "bytes") return {};
  const std::string_view first = name.substr(9, name.rfind('_') - 9);
  return {size_of_type(first), size_of_type(last)};
}

template <typename List, typename Entry>
std::vector<Entry> entries_of(const List& list, const Entry* own, std::uint32_t blocks, Work& work) {
  std::vector<Entry> entries(list.count);
  if (list.count == 0) return entries;
  const std::size_t bytes = list.count * sizeof(Entry);
  if (list.entries == nullptr) {
    std::memcpy(entries.data(), own, bytes);
    return entries;
  }
  std::memcpy(entries.data(), bytes_arriving_at(list.entries, bytes).data(), bytes);
  work.reads.push_back({list.entries, bytes});
  if constexpr (requires { list.first_of_block; })
    work.reads.push_back({list.first_of_block, blocks * sizeof(std::uint32_t)});
  return entries;
}

// The elements of an entry of a list of tiles.
template <typename Entry>
std::size_t count_of(const std::vector<Entry>& entries, std::size_t index, std::uint32_t tiles,
                     std::size_t elements_of_tile) {
  const std::uint32_t end = index + 1 < entries.size() ? entries[index + 1].first_tile : tiles;
  const std::size_t full = end - entries[index].first_tile;
  return full == 0 ? 0 : (full - 1) * elements_of_tile + entries[index].in_last_tile;
}

void uses_of_moves(std::string_view name, const MoveList& list, std::uint32_t blocks, Work& work) {
  const Elements elements = elements_of(name);
  const auto entries = entries_of(list, list.own, blocks, work);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::size_t count = count_of(entries, i, list.tiles, tile_elements(std::min(elements.from, elements.to)));
    if (entries[i].from != nullptr) work.reads.push_back({entries[i].from, count * elements.from});
    work.writes.push_back({entries[i].to, count * elements.to});
    work.bytes += count * elements.to;
    if (name == "hvd_move_bytes") remember_arriving(entries[i].to, entries[i].from, count);
  }
}

// It takes no time: it writes only after an abort.
void uses_of_poison(const MoveList& list, std::uint32_t blocks, Work& work) {
  const auto entries = entries_of(list, list.own, blocks, work);
  for (std::size_t i = 0; i < entries.size(); ++i)
    work.writes.push_back({entries[i].to, count_of(entries, i, list.tiles, list.elements_of_tile) * list.target_bytes});
  Double::it().engine().declare_words(list.aborted, sizeof *list.aborted);
  work.reads.push_back({list.aborted, sizeof *list.aborted});
}

void uses_of_sums(std::string_view name, const SumsList& list, std::uint32_t blocks, Work& work) {
  const bool is_second = name == "hvd_adasum_sums";
  const std::size_t size = size_of_type(name.substr(name.rfind('_') + 1));
  for (const SumsEntry& entry : entries_of(list, list.own, blocks, work)) {
    if (is_second) continue;
    work.reads.push_back({entry.left, entry.count * size});
    work.reads.push_back({entry.right, entry.count * size});
  }
  work.writes.push_back({list.partial, list.blocks * threads_per_block * sizeof(AdasumSums)});
  if (is_second) work.writes.push_back({list.sums, list.count * sizeof(AdasumSums)});
}

void uses_of_combination(std::string_view name, const CombinationList& list, std::uint32_t blocks, Work& work) {
  const std::size_t size = size_of_type(name.substr(name.rfind('_') + 1));
  const auto entries = entries_of(list, list.own, blocks, work);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::size_t bytes = count_of(entries, i, list.tiles, tile_elements(size)) * size;
    work.reads.push_back({entries[i].left, bytes});
    work.reads.push_back({entries[i].right, bytes});
    work.writes.push_back({entries[i].to, bytes});
  }
  work.reads.push_back({list.sums, list.count * sizeof(AdasumSums)});
}

void uses_of(const std::string& name, const void* parameters, std::uint32_t blocks, Work& work) {
  if (name == "hvd_signal") {
    const auto& list = *static_cast<const SignalList*>(parameters);
    work.kind = testing::Kind::word;
    work.word = {list.word, list.value};
  } else if (name.starts_with("hvd_adasum_sums")) {
    uses_of_sums(name, *static_cast<const SumsList*>(parameters), blocks, work);
  } else if (name.starts_with("hvd_adasum_combine")) {
    uses_of_combination(name, *static_cast<const CombinationList*>(parameters), blocks, work);
  } else if (name == "hvd_poison") {
    uses_of_poison(*static_cast<const MoveList*>(parameters), blocks, work);
  } else {
    uses_of_moves(name, *static_cast<const MoveList*>(parameters), blocks, work);
  }
}

}  // namespace

std::unique_ptr<cuda::FunctionOfDriver> own_kernel(const std::string& name) {
  const KernelOnHost* kernel = kernel_on_host(name);
  if (kernel == nullptr) return nullptr;
  auto function = std::make_unique<cuda::FunctionOfDriver>();
  function->name = name;
  function->parameter_bytes = kernel->parameter_bytes;
  function->uses = [name](const void* parameters, std::uint32_t blocks, Work& work) {
    uses_of(name, parameters, blocks, work);
  };
  function->run = kernel->run;
  if (name == "hvd_signal") function->run = [](const void*, std::uint32_t) {};  // the engine writes the word
  return function;
}

}  // namespace hvd::doubles
