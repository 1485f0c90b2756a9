#include "mpi/mpi_bootstrap.hpp"

#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

namespace hvd::benchmark {

Result<bootstrap::Identity> MpiBootstrap::join(const Environment&, const Config&) {
  bootstrap::Identity identity;
  MPI_Comm_rank(MPI_COMM_WORLD, &identity.rank.value);
  MPI_Comm_size(MPI_COMM_WORLD, &identity.size);
  int pid = ::getpid();
  MPI_Bcast(&pid, 1, MPI_INT, 0, MPI_COMM_WORLD);
  identity.job = "benchmark-" + std::to_string(pid);
  return identity;
}

Status MpiBootstrap::put(std::string_view key, ConstBytes value) {
  ByteWriter writer(news_);
  writer.put_string(key);
  writer.put_string(to_string(value));
  return {};
}

Result<Buffer> MpiBootstrap::get(Rank from, std::string_view key, Deadline) {
  auto found = known_.find({from, std::string(key)});
  if (found != known_.end()) return found->second;
  return Error(ErrorCode::invalid_argument,
               "rank " + std::to_string(from.value) + " put no value '" + std::string(key) + "' before the fence");
}

Status MpiBootstrap::fence(Deadline) {
  int size = 0, mine = static_cast<int>(news_.size()), total = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<int> lengths(static_cast<std::size_t>(size)), offsets;
  MPI_Allgather(&mine, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD);
  for (int length : lengths) {
    offsets.push_back(total);
    total += length;
  }
  Buffer all(static_cast<std::size_t>(total));
  MPI_Allgatherv(news_.data(), mine, MPI_BYTE, all.data(), lengths.data(), offsets.data(), MPI_BYTE, MPI_COMM_WORLD);
  news_.clear();
  for (int rank = 0; rank < size; ++rank) {
    auto k = static_cast<std::size_t>(rank);
    ByteReader reader(
        ConstBytes(all).subspan(static_cast<std::size_t>(offsets[k]), static_cast<std::size_t>(lengths[k])));
    while (!reader.at_end() && reader.ok()) {
      std::string key(reader.get_string());
      ConstBytes value = as_bytes(reader.get_string());
      known_[{Rank{rank}, std::move(key)}].assign(value.begin(), value.end());
    }
  }
  return {};
}

void MpiBootstrap::abort(std::string_view reason) noexcept {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(reason.size()), reason.data());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

}  // namespace hvd::benchmark
