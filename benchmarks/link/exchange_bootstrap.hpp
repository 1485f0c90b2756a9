#pragma once
// Ranks that can talk to each other already (through an MPI, through Gloo) meet for our transport in this way.
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "transport/transport.hpp"

namespace hvd::benchmark {

// The ranks of the program, no matter how it was started.
struct Ranks {
  int rank = 0, size = 1;
  bool is_crowded = false;  // more ranks than cores: a rank that waits has to let others run
  // Collective and blocking. Returns the bytes of all ranks, by rank.
  std::function<std::vector<Buffer>(const Buffer& mine)> allgather;
  // Ends all ranks. Does not return.
  std::function<void(const std::string& why)> fail;
  // Returns the value of a result. If there is none, ends all ranks.
  template <typename T>
  T value_of(Result<T> result) const {
    if (!result) fail(result.error().message);
    return std::move(*result);
  }
};

class ExchangeBootstrap final : public bootstrap::Bootstrap {
 public:
  explicit ExchangeBootstrap(const Ranks& ranks) : ranks_(ranks) {}
  const char* name() const override { return "benchmark"; }
  bool detected(const Environment&) const override { return true; }
  Result<bootstrap::Identity> join(const Environment& environment, const Config& config) override;
  Status put(std::string_view key, ConstBytes value) override;
  Result<Buffer> get(Rank from, std::string_view key, Deadline deadline) override;
  Status fence(Deadline deadline) override;
  void abort(std::string_view reason) noexcept override { ranks_.fail(std::string(reason)); }

 private:
  const Ranks& ranks_;
  Buffer news_;  // the values that were put since the last fence
  std::map<std::pair<Rank, std::string>, Buffer> known_;
};

// The exchange between the ranks while links are made. Only failures would travel over it, and a failure ends the
// benchmark.
class NoExchange final : public transport::Exchange {
 public:
  Status put(std::string_view, ConstBytes) override { return {}; }
  Result<bool> get(Rank, std::string_view, Buffer&) override { return false; }
};

}  // namespace hvd::benchmark
