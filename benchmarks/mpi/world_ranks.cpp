#include "mpi/world_ranks.hpp"

#include <mpi.h>

namespace hvd::benchmark {

Ranks ranks_of_world(bool is_crowded, std::function<void(const std::string& why)> fail) {
  Ranks ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks.size);
  ranks.is_crowded = is_crowded;
  ranks.fail = std::move(fail);
  ranks.allgather = [size = ranks.size](const Buffer& mine) {
    std::vector<int> lengths(static_cast<std::size_t>(size)), offsets;
    int length = static_cast<int>(mine.size()), total = 0;
    MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD);
    for (int each : lengths) offsets.push_back(std::exchange(total, total + each));
    Buffer all(static_cast<std::size_t>(total));
    MPI_Allgatherv(mine.data(), length, MPI_BYTE, all.data(), lengths.data(), offsets.data(), MPI_BYTE, MPI_COMM_WORLD);
    std::vector<Buffer> by_rank;
    for (std::size_t k = 0; k < lengths.size(); ++k)
      by_rank.emplace_back(all.begin() + offsets[k], all.begin() + offsets[k] + lengths[k]);
    return by_rank;
  };
  return ranks;
}

}  // namespace hvd::benchmark
