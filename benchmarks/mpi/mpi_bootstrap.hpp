#pragma once
// The ranks of an MPI program that is running already find each other through that MPI.
#include <map>
#include <string>
#include <utility>

#include "bootstrap/bootstrap.hpp"

namespace hvd::benchmark {

class MpiBootstrap final : public bootstrap::Bootstrap {
 public:
  const char* name() const override { return "benchmark"; }
  bool detected(const Environment&) const override { return true; }
  Result<bootstrap::Identity> join(const Environment& environment, const Config& config) override;
  Status put(std::string_view key, ConstBytes value) override;
  Result<Buffer> get(Rank from, std::string_view key, Deadline deadline) override;
  Status fence(Deadline deadline) override;
  void abort(std::string_view reason) noexcept override;

 private:
  Buffer news_;  // what was put since the last fence
  std::map<std::pair<Rank, std::string>, Buffer> known_;
};

}  // namespace hvd::benchmark
