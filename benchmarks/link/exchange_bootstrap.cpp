#include "link/exchange_bootstrap.hpp"

#include <unistd.h>

namespace hvd::benchmark {

Result<bootstrap::Identity> ExchangeBootstrap::join(const Environment&, const Config&) {
  Buffer mine;
  ByteWriter(mine).put(static_cast<std::int32_t>(::getpid()));
  std::vector<Buffer> all = ranks_.allgather(mine);
  auto pid = ByteReader(all.front()).get<std::int32_t>();
  return bootstrap::Identity{Rank{ranks_.rank}, ranks_.size, "benchmark-" + std::to_string(pid)};
}

Status ExchangeBootstrap::put(std::string_view key, ConstBytes value) {
  ByteWriter writer(news_);
  writer.put_string(key);
  writer.put_string(to_string(value));
  return {};
}

Result<Buffer> ExchangeBootstrap::get(Rank from, std::string_view key, Deadline) {
  auto found = known_.find({from, std::string(key)});
  if (found != known_.end()) return found->second;
  return Error(ErrorCode::invalid_argument,
               "rank " + std::to_string(from.value) + " put no value '" + std::string(key) + "' before the fence");
}

Status ExchangeBootstrap::fence(Deadline) {
  std::vector<Buffer> all = ranks_.allgather(news_);
  news_.clear();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    ByteReader reader(all[rank]);
    while (!reader.at_end() && reader.ok()) {
      std::string key(reader.get_string());
      ConstBytes value = as_bytes(reader.get_string());
      known_[{Rank{static_cast<int>(rank)}, std::move(key)}].assign(value.begin(), value.end());
    }
  }
  return {};
}

}  // namespace hvd::benchmark
