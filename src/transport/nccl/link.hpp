#pragma once
// A link of a group of GPUs: a communicator, memory in which tensors are packed, and the word that makes the results of
// aborted work NaN.
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "transport/nccl/card.hpp"
#include "transport/nccl/communicator.hpp"
#include "transport/nccl/issuer.hpp"
#include "transport/transport.hpp"

namespace hvd::transport::over_nccl {

// What a link is made of, got together by the issuer's thread.
struct Equipment {
  devices::Device& device;
  std::shared_ptr<Issuer> issuer;
  const nccl::Library* library = nullptr;
  std::shared_ptr<void> stream;  // the user of the memory: it waits for the link's last work
  devices::Memory abort_word;    // on the host; the device reads it
};

class NcclLink final : public Link, public NativeCollectives {
 public:
  NcclLink(const Surroundings& surroundings, const Group& group, std::string name, Equipment equipment,
           const Agreement& agreement);
  ~NcclLink() override;

  const Group& group() const override { return group_; }
  Pending send(Seat to, ConstBytes bytes, Channel channel) override;
  Pending recv(Seat from, Bytes bytes, Channel channel) override;
  Progress poll(Pending pending) override;
  const Error& failure() const override;
  NativeCollectives* native() noexcept override { return this; }
  void abort(const Error& reason) noexcept override;

  Cost cost(const Collective& collective) const override;
  // The first call begins to make the communicator, and takes the memory for tensors that are packed.
  std::unique_ptr<Task> plan(const Collective& collective) override;

  // ---- for the tasks, on the issuer's thread
  devices::Device& device() const noexcept { return equipment_.device; }
  Issuer& issuer() const noexcept { return *equipment_.issuer; }
  Communicator& communicator() noexcept { return communicator_; }
  // Fails if the communicator could not be made.
  Status is_ready() const { return ready_; }
  // Adds this rank to an error that other ranks are told, too, unless the cause is elsewhere.
  Error named(Error error) const;
  std::byte* buffer() const noexcept { return buffer_.data(); }
  std::size_t buffer_bytes() const noexcept { return buffer_bytes_; }
  std::uint32_t* abort_word() const noexcept { return reinterpret_cast<std::uint32_t*>(equipment_.abort_word.data()); }
  // Wakes the engine.
  void report() noexcept { wake_.post(); }
  void has_issued(Event end) noexcept { last_end_.store(end.token, std::memory_order_release); }

 private:
  void make();
  bool is_quiet() const;

  const Group group_;
  const World& world_;
  posix::WaitWord& wake_;
  const double start_timeout_s_;
  Equipment equipment_;
  const std::size_t buffer_bytes_;
  devices::Memory buffer_;  // for tensors that are packed; made with the communicator
  std::vector<nccl::UniqueId> ids_;
  const bool without_nvls_;
  Communicator communicator_;
  Status ready_;
  std::atomic<std::uint64_t> last_end_{0};
  bool is_being_made_ = false;
  bool is_over_ = false;
};

// Makes a task of the link (collectives.cpp).
std::unique_ptr<Task> plan_collective(NcclLink& link, const Collective& collective);
// True if NCCL does this reduction of this type (collectives.cpp). What only moves bytes takes every type.
bool can_reduce(DataType dtype, ReduceOp op) noexcept;

}  // namespace hvd::transport::over_nccl
