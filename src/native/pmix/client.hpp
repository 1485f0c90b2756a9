#pragma once
// This process as a client of a PMIx server. Needs no header of PMIx; compiled into the plugin alone.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "base/deadline.hpp"
#include "base/result.hpp"

namespace hvd::pmix {

// Used by one thread at a time.
class Client {
 public:
  // PMIx_Init. ErrorCode::unsupported if no server can be reached.
  static Result<std::unique_ptr<Client>> open(Deadline deadline);
  // PMIx_Finalize; opening again later in the same process works.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return size_; }
  const std::string& job() const { return job_; }  // PMIx's namespace

  // The others can get it after the next fence. A key must be new in the life of the process: putting one again is
  // unreliable.
  Status put(std::string_view key, ConstBytes value);
  Result<Buffer> get(std::uint32_t rank, std::string_view key, Deadline deadline);
  Status fence(Deadline deadline);
  // Asks the server to end the whole job.
  void abort(std::string_view reason) noexcept;

 private:
  Client() = default;
  Result<std::uint32_t> read_size(Deadline deadline);
  std::optional<int> fence_once(Deadline deadline);

  int process_ = 0;
  bool reopened_ = false;  // not the first client of this process
  std::string job_;
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 1;
  std::string broken_;  // why nothing can be asked any more
};

}  // namespace hvd::pmix
