#pragma once
// This process as a client of a PMIx server. This file needs no header of PMIx. Only the plugin contains the code.
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
  // Calls PMIx_Init. Fails with ErrorCode::unsupported if no server can be reached.
  static Result<std::unique_ptr<Client>> open(Deadline deadline);
  // Calls PMIx_Finalize. A new client may be opened later in the same process.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return size_; }
  const std::string& job() const { return job_; }  // name of the job: PMIx's namespace

  // The other ranks can get the value after the next fence. A key must be new in the life of the process, because
  // putting a key again is unreliable.
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
  bool reopened_ = false;  // true if this is not the first client of this process
  std::string job_;
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 1;
  std::string broken_;  // why nothing can be asked any more; empty if all is well
};

}  // namespace hvd::pmix
