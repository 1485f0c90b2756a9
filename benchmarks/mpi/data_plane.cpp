// Compares our data plane with MPI's collectives, in one process, over a range of sizes.
#include <mpi.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "link/our_link.hpp"
#include "mpi/core_exchange.hpp"
#include "mpi/job.hpp"
#include "mpi/measure.hpp"
#include "mpi/options.hpp"
#include "mpi/packed_allreduce.hpp"
#include "mpi/sixteen_bit.hpp"
#include "mpi/tensors.hpp"
#include "transport/shm/batch.hpp"

namespace hvd::benchmark {
namespace {

constexpr std::size_t rewritten_from_bytes = 2048;

struct Program {
  Job& job;
  Recorder& recorder;
  OurLink& link;
  const Options& options;
  const SixteenBitSums& sums;
  std::byte* buffer;    // a buffer for the largest size
  std::byte* gathered;  // a buffer of that size for every rank
  Effort effort;

  bool is_wanted(std::size_t bytes) const {
    return bytes >= options.bytes("smallest") && bytes <= options.bytes("largest");
  }
};

std::byte* private_memory(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::memset(memory, 0, bytes);
  return static_cast<std::byte*>(memory);
}

std::map<std::string, std::string> description(const char* workload, const char* dtype, std::size_t bytes) {
  return {{"workload", json(workload)}, {"dtype", json(dtype)}, {"bytes", json(bytes)}};
}

// ---- allreduce ----

struct SixteenBits {
  const char* name;
  DataType dtype;
  float (*from)(std::uint16_t);
  std::uint16_t (*to)(float);
};

void allreduce_f32(Program& program, std::size_t bytes) {
  auto* data = reinterpret_cast<float*>(program.buffer);
  std::size_t count = bytes / sizeof(float);
  int rank = program.job.rank(), size = program.job.size();
  Workload workload;
  workload.description = description("allreduce", "float32", bytes);
  workload.write = [=](int turn) {
    if (turn == zeros) std::memset(data, 0, bytes);
    else
      for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<float>(written_value(i, rank, turn));
  };
  workload.is_right = [=](int turn) {
    std::size_t stride = count > 100'000 ? 37 : 1;
    for (std::size_t i = 0; i < count; i += stride)
      if (data[i] != static_cast<float>(summed_value(i, size, turn))) return false;
    return true;
  };
  workload.back_to_back = bytes < rewritten_from_bytes;
  Collective collective;
  collective.count = static_cast<std::int64_t>(count);
  auto segments = one_segment(data, count, DataType::f32);
  workload.contenders = {
      {"mpi", [=] { MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }},
      {"ours", program.link.call(collective, segments, segments)}};
  program.recorder.measure(workload, program.effort);
}

// Returns deterministic finite values of all magnitudes, denormals among them.
std::uint16_t random_bits(std::uint32_t place, std::uint32_t rank, const SixteenBits& type) {
  std::uint32_t x = place * 2654435761u + rank * 40503u + 12345u;
  x ^= x >> 16;
  x *= 2246822519u;
  x ^= x >> 13;
  auto bits = static_cast<std::uint16_t>(x >> 8);
  std::uint16_t exponent = type.dtype == DataType::f16 ? 0x7c00 : 0x7f80;
  if ((bits & exponent) == exponent) bits = static_cast<std::uint16_t>(bits & ~(exponent >> 1));
  if (place % 5 == 0) bits = static_cast<std::uint16_t>(bits & ~exponent);
  return bits;
}

// True if our sum equals, bit for bit, a float sum in rank order that is rounded once.
bool is_bit_exact(Program& program, const SixteenBits& type) {
  std::uint32_t count = 1u << 20;
  auto* data = reinterpret_cast<std::uint16_t*>(program.buffer);
  for (std::uint32_t i = 0; i < count; ++i)
    data[i] = random_bits(i, static_cast<std::uint32_t>(program.job.rank()), type);
  Collective collective;
  collective.dtype = type.dtype;
  collective.count = count;
  auto segments = one_segment(data, count, type.dtype);
  program.link.call(collective, segments, segments)();
  for (std::uint32_t i = 0; i < count; ++i) {
    float sum = type.from(random_bits(i, 0, type));
    for (int rank = 1; rank < program.job.size(); ++rank)
      sum += type.from(random_bits(i, static_cast<std::uint32_t>(rank), type));
    if (data[i] != type.to(sum)) return false;
  }
  return true;
}

void allreduce_16(Program& program, const SixteenBits& type, std::vector<std::pair<const char*, MPI_Op>> peers,
                  std::size_t bytes, bool bit_exact) {
  auto* data = reinterpret_cast<std::uint16_t*>(program.buffer);
  std::size_t count = bytes / 2;
  int rank = program.job.rank(), size = program.job.size();
  std::vector<std::uint16_t> written(32);  // conversions would take longer than what is measured
  Workload workload;
  workload.description = description("allreduce", type.name, bytes);
  workload.description["bit_exact"] = bit_exact ? "true" : "false";
  for (int value = 0; value < 32; ++value)
    written[static_cast<std::size_t>(value)] = type.to(static_cast<float>(value));
  workload.write = [=](int turn) {
    if (turn == zeros) std::memset(data, 0, bytes);
    else
      for (std::size_t i = 0; i < count; ++i) data[i] = written[static_cast<std::size_t>(written_value(i, rank, turn))];
  };
  workload.is_right = [=, to = type.to](int turn) {
    for (std::size_t i = 0; i < count; i += 37)
      if (data[i] != to(static_cast<float>(summed_value(i, size, turn)))) return false;
    return true;
  };
  MPI_Datatype mpi_type = program.sums.type;
  for (auto [name, op] : peers)
    workload.contenders.push_back(
        {name, [=] { MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), mpi_type, op, MPI_COMM_WORLD); }});
  Collective collective;
  collective.dtype = type.dtype;
  collective.count = static_cast<std::int64_t>(count);
  auto segments = one_segment(data, count, type.dtype);
  workload.contenders.push_back({"ours", program.link.call(collective, segments, segments)});
  program.recorder.measure(workload, program.effort);
}

// ---- broadcast and allgather ----

void broadcast(Program& program, std::size_t bytes) {
  std::byte* data = program.buffer;
  bool is_root = program.job.rank() == 0;
  Workload workload;
  workload.description = description("broadcast", "uint8", bytes);
  workload.write = [=](int turn) {
    if (is_root) std::memset(data, 1 + turn % 7, bytes);
    else if (bytes <= 65536) std::memset(data, 0, bytes);
  };
  workload.is_right = [=](int turn) {
    return std::all_of(data, data + bytes, [=](std::byte b) { return b == static_cast<std::byte>(1 + turn % 7); });
  };
  Collective collective;
  collective.verb = Verb::broadcast;
  collective.dtype = DataType::u8;
  collective.count = static_cast<std::int64_t>(bytes);
  auto segments = one_segment(data, bytes, DataType::u8);
  workload.contenders = {{"mpi", [=] { MPI_Bcast(data, static_cast<int>(bytes), MPI_BYTE, 0, MPI_COMM_WORLD); }},
                         {"ours", program.link.call(collective, segments, segments)}};
  program.recorder.measure(workload, program.effort);
}

void allgather(Program& program, std::size_t bytes) {
  std::byte *data = program.buffer, *all = program.gathered;
  int rank = program.job.rank();
  auto size = static_cast<std::size_t>(program.job.size());
  Workload workload;
  workload.description = description("allgather", "uint8", bytes);
  workload.write = [=](int turn) { std::memset(data, 1 + rank + turn % 7, bytes); };
  workload.is_right = [=](int turn) {
    for (std::size_t r = 0; r < size; ++r) {
      auto expected = static_cast<std::byte>(1 + static_cast<int>(r) + turn % 7);
      if (!std::all_of(all + r * bytes, all + (r + 1) * bytes, [=](std::byte b) { return b == expected; }))
        return false;
    }
    return true;
  };
  Collective collective;
  collective.verb = Verb::allgather;
  collective.dtype = DataType::u8;
  collective.count = static_cast<std::int64_t>(bytes * size);
  std::vector<std::int64_t> counts(size, static_cast<std::int64_t>(bytes));
  int count = static_cast<int>(bytes);
  workload.contenders = {{"mpi", [=] { MPI_Allgather(data, count, MPI_BYTE, all, count, MPI_BYTE, MPI_COMM_WORLD); }},
                         {"ours", program.link.exchange(collective, one_segment(data, bytes, DataType::u8),
                                                        one_segment(all, bytes * size, DataType::u8), counts)}};
  program.recorder.measure(workload, program.effort);
}

// ---- reduce_scatter and alltoall; `bytes` is what every rank has ----

void reduce_scatter(Program& program, std::size_t bytes) {
  auto *data = reinterpret_cast<float*>(program.buffer), *share = reinterpret_cast<float*>(program.gathered);
  int rank = program.job.rank(), size = program.job.size();
  std::size_t each = bytes / sizeof(float) / static_cast<std::size_t>(size),
              count = each * static_cast<std::size_t>(size);
  Workload workload;
  workload.description = description("reducescatter", "float32", bytes);
  workload.write = [=](int turn) {
    for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<float>(written_value(i, rank, turn));
  };
  workload.is_right = [=](int turn) {
    for (std::size_t i = 0; i < each; ++i)
      if (share[i] != static_cast<float>(summed_value(each * static_cast<std::size_t>(rank) + i, size, turn)))
        return false;
    return true;
  };
  Collective collective;
  collective.verb = Verb::reduce_scatter;
  collective.count = static_cast<std::int64_t>(count);
  workload.contenders = {
      {"mpi",
       [=] { MPI_Reduce_scatter_block(data, share, static_cast<int>(each), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }},
      {"ours", program.link.call(collective, one_segment(data, count, DataType::f32),
                                 one_segment(share, each, DataType::f32))}};
  program.recorder.measure(workload, program.effort);
}

void alltoall(Program& program, std::size_t bytes) {
  std::byte *data = program.buffer, *out = program.gathered;
  int rank = program.job.rank(), size = program.job.size();
  auto ranks = static_cast<std::size_t>(size);
  std::size_t each = bytes / ranks;
  auto value = [](int from, int to, int turn) { return static_cast<std::byte>(1 + from * 5 + to * 3 + turn % 7); };
  Workload workload;
  workload.description = description("alltoall", "uint8", bytes);
  workload.write = [=](int turn) {
    for (int to = 0; to < size; ++to)
      std::memset(data + static_cast<std::size_t>(to) * each, static_cast<int>(value(rank, to, turn)), each);
  };
  workload.is_right = [=](int turn) {
    for (int from = 0; from < size; ++from) {
      const std::byte* part = out + static_cast<std::size_t>(from) * each;
      std::byte expected = value(from, rank, turn);
      if (!std::all_of(part, part + each, [=](std::byte b) { return b == expected; })) return false;
    }
    return true;
  };
  workload.back_to_back = bytes < rewritten_from_bytes;
  Collective collective;
  collective.verb = Verb::alltoall;
  collective.dtype = DataType::u8;
  collective.count = static_cast<std::int64_t>(each * ranks);
  int count = static_cast<int>(each);
  auto segment = [&](std::byte* memory) { return one_segment(memory, each * ranks, DataType::u8); };
  workload.contenders = {
      {"mpi", [=] { MPI_Alltoall(data, count, MPI_BYTE, out, count, MPI_BYTE, MPI_COMM_WORLD); }},
      {"ours", program.link.exchange(collective, segment(data), segment(out),
                                     std::vector<std::int64_t>(ranks, static_cast<std::int64_t>(each)))}};
  program.recorder.measure(workload, program.effort);
}

// ---- a training step's tensors ----

// The tensors are averaged in place. This is the data plane's share of the whole library's steps.
void fused(Program& program, const char* name, std::size_t bytes) {
  Tensors tensors(resnet50_gradients(200, bytes / sizeof(float)));
  PackedAllreduce packed(tensors, program.job.size());
  std::vector<Segment> segments;
  for (const auto& tensor : tensors.all())
    segments.push_back({{tensor.data, static_cast<std::int64_t>(tensor.count), DataType::f32}});
  Collective collective;
  collective.count = static_cast<std::int64_t>(tensors.count());
  collective.postscale = 1.0 / program.job.size();
  Workload workload;
  workload.description = description(name, "float32", tensors.bytes());
  workload.write = [&](int turn) { tensors.write(program.job.rank(), turn); };
  workload.is_right = [&](int turn) {
    return tensors.hold_sums(program.job.size(), turn, static_cast<float>(collective.postscale));
  };
  workload.contenders = {{"packed_mpi", [&] { packed(MPI_COMM_WORLD); }},
                         {"ours", program.link.call(collective, segments, segments)}};
  program.recorder.measure(workload, program.effort);
}

// ---- the copies of fusion ----

// Pack and unpack without communication: first the whole batch at once, then in the steps that our transport takes.
void fusion_copy(Program& program) {
  constexpr std::size_t bytes = 64 << 20, chunk = 128 << 10;
  Tensors tensors(resnet50_gradients(200, bytes / sizeof(float)));
  std::vector<Segment> segments;
  for (const auto& tensor : tensors.all())
    segments.push_back({{tensor.data, static_cast<std::int64_t>(tensor.count), DataType::f32}});
  transport::shm::Batch batch;
  batch.assign(segments);
  auto* whole = reinterpret_cast<float*>(program.buffer);
  std::byte* slab = private_memory(chunk);
  Workload workload;
  workload.description = description("fusion_copy", "float32", tensors.bytes());
  workload.write = [&](int turn) { tensors.write(program.job.rank(), turn); };
  workload.is_right = [&](int turn) {
    for (const auto& tensor : tensors.all())
      for (std::size_t i = 0; i < tensor.count; i += 13)
        if (tensor.data[i] != static_cast<float>(written_value(tensor.offset + i, program.job.rank(), turn)))
          return false;
    return true;
  };
  workload.contenders = {{"whole",
                          [&] {
                            for (const auto& tensor : tensors.all())
                              std::memcpy(whole + tensor.offset, tensor.data, tensor.count * sizeof(float));
                            for (const auto& tensor : tensors.all())
                              std::memcpy(tensor.data, whole + tensor.offset, tensor.count * sizeof(float));
                          }},
                         {"ours", [&] {
                            transport::shm::Cursor in(batch), out(batch);
                            for (std::size_t at = 0; at < batch.bytes(); at += chunk) {
                              std::size_t part = std::min(chunk, batch.bytes() - at);
                              in.gather(slab, part);
                              out.scatter(slab, part);
                            }
                          }}};
  program.recorder.measure(workload, program.effort);
  ::munmap(slab, chunk);
}

// ---- what the cores allow ----

void core_exchange(Program& program, CoreExchange& exchange, std::size_t bytes) {
  Workload workload;
  workload.description = description("core_exchange", "uint8", bytes);
  workload.back_to_back = bytes < rewritten_from_bytes;
  if (workload.back_to_back) {
    workload.write = [](int) {};
    workload.contenders = {{"cores", [&exchange, bytes] { exchange.write_and_read(bytes); }}};
  } else {
    workload.write = [&exchange, bytes](int turn) { exchange.write(bytes, turn); };
    workload.contenders = {{"cores", [&exchange, bytes] { exchange.read(bytes); }}};
  }
  program.recorder.measure(workload, program.effort);
}

// ---- the program ----

void run(Program& program) {
  const Options& options = program.options;
  const std::vector<std::size_t> all_sizes = {8,      64,      512,     4096,     16384,    65536,
                                              262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20};
  if (options.lists("workloads", "allreduce"))
    for (std::size_t bytes : all_sizes)
      if (program.is_wanted(bytes)) allreduce_f32(program, bytes);
  const SixteenBits half{"float16", DataType::f16, from_half, to_half};
  const SixteenBits bfloat{"bfloat16", DataType::bf16, from_bfloat, to_bfloat};
  for (std::size_t bytes :
       {std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{16} << 20, std::size_t{64} << 20}) {
    if (!program.is_wanted(bytes)) continue;
    if (options.lists("workloads", "float16"))
      allreduce_16(program, half, {{"mpi", program.sums.halves}}, bytes, is_bit_exact(program, half));
    if (options.lists("workloads", "bfloat16"))
      allreduce_16(program, bfloat,
                   {{"mpi", program.sums.bfloats_scalar}, {"mpi_compiled", program.sums.bfloats_compiled}}, bytes,
                   is_bit_exact(program, bfloat));
  }
  // These calls are shorter than the barrier between them, so more calls cost little time.
  program.effort.most_calls = 500;
  for (std::size_t bytes : {std::size_t{8}, std::size_t{512}, std::size_t{4096}, std::size_t{65536},
                            std::size_t{1} << 20, std::size_t{16} << 20, std::size_t{64} << 20}) {
    if (!program.is_wanted(bytes)) continue;
    if (options.lists("workloads", "broadcast")) broadcast(program, bytes);
    if (options.lists("workloads", "allgather")) allgather(program, bytes);
    if (options.lists("workloads", "reducescatter")) reduce_scatter(program, bytes);
    if (options.lists("workloads", "alltoall")) alltoall(program, bytes);
  }
  if (options.lists("workloads", "fused")) {
    fused(program, "fused_1MB", 1 << 20);
    fused(program, "fused_8MB", 8 << 20);
    fused(program, "fused_64MB", 64 << 20);
  }
  if (options.lists("workloads", "fusion_copy")) fusion_copy(program);
  if (options.lists("workloads", "core_exchange") && program.job.size() == 2) {
    program.effort.most_calls = Effort().most_calls;
    const std::size_t largest = std::min(options.bytes("largest"), std::size_t{64} << 20);
    CoreExchange exchange(program.job.rank(), largest);
    std::vector<std::size_t> sizes = all_sizes;
    sizes.push_back(8 << 20);
    for (std::size_t bytes : sizes)
      if (program.is_wanted(bytes) && bytes <= largest) core_exchange(program, exchange, bytes);
  }
}

}  // namespace
}  // namespace hvd::benchmark

int main(int argument_count, char** arguments) {
  using namespace hvd::benchmark;
  Options options(argument_count, arguments,
                  {{"out", "-"},
                   {"peer", "mpi"},
                   {"variant", "default"},
                   {"launch", "0"},
                   {"workloads",
                    "allreduce,float16,bfloat16,broadcast,allgather,reducescatter,alltoall,fused,"
                    "fusion_copy,core_exchange"},
                   {"smallest", "8"},
                   {"largest", "268435456"},
                   {"rounds", "5"},
                   {"seconds", "0.03"}});
  Job job(true, false);
  Recorder recorder(job, options.text("out"),
                    {{"program", json("data_plane")},
                     {"peer", json(options.text("peer"))},
                     {"variant", json(options.text("variant"))},
                     {"launch", json(options.count("launch"))},
                     {"mpi_version", json(job.mpi_version())}});
  OurLink link(job.ranks());
  constexpr std::size_t largest_gathered = 64 << 20;
  std::size_t largest = std::max(options.bytes("largest"), std::size_t{80} << 20);
  Effort effort;
  effort.rounds = options.count("rounds");
  effort.seconds = options.number("seconds");
  SixteenBitSums sums;
  Program program{job, recorder, link, options, sums, private_memory(largest), nullptr, effort};
  if (options.lists("workloads", "allgather") || options.lists("workloads", "reducescatter") ||
      options.lists("workloads", "alltoall"))
    program.gathered =
        private_memory(std::min(options.bytes("largest"), largest_gathered) * static_cast<std::size_t>(job.size()));
  if (program.buffer == nullptr)
    job.fail("there is not enough memory for buffers of " + options.text("largest") + " bytes");
  run(program);
}
