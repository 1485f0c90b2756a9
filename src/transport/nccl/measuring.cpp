// Measurements for --preflight: an allreduce of all ranks of a group, then exchanges between two of them.
#include "native/nccl/measuring.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "native/cuda/owners.hpp"
#include "transport/nccl/communicator.hpp"

namespace hvd::transport::over_nccl {
namespace {

using nccl::Equipment;
using nccl::Part;
using nccl::Rates;

constexpr std::size_t small_load = 256 << 10, large_load = 64 << 20;
constexpr double slow_s = 2e-3;  // if the small load takes longer, the large one would take too long
constexpr int rounds = 3;        // of which the best counts

class Meter {
 public:
  static Result<std::unique_ptr<Meter>> start(const Environment& environment, const Part& part);
  // A rank that has failed, or that has come too late, leaves the others to their deadline.
  ~Meter() { communicator_.end(false); }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  Result<Rates> measure();

 private:
  Meter(const Part& part, const nccl::Library& library, std::shared_ptr<const cuda::Context> context)
      : part_(part), context_(std::move(context)), use_(*context_), communicator_(library, "preflight") {}
  Status prepare();
  Status choose_load();
  Result<double> exchange_with(int partner);

  // Returns the seconds that the calls of one launch take.
  template <typename Calls>
  Result<double> time(const char* what, Calls calls) {
    const auto begin = Clock::now();
    HVD_RETURN_IF_ERROR(communicator_.launch(what, calls, part_.deadline));
    HVD_RETURN_IF_ERROR(wait(what));
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  template <typename Calls>
  Result<double> best_time(const char* what, Calls calls) {
    double best = 1e300;
    for (int round = 0; round < rounds; ++round) {
      auto seconds = time(what, calls);
      if (!seconds) return seconds.error();
      best = std::min(best, *seconds);
    }
    return best;
  }
  Status reduce(std::size_t count, nccl::Type type, nccl::Operation operation) {
    return communicator_.check(communicator_.library().allreduce(place(), place(), count, type, operation,
                                                                 communicator_.handle(), stream_.get()),
                               "an allreduce");
  }
  // Returns when the stream has done what it has to.
  Status wait(const char* what);
  Status copy(cuda::Address to, cuda::Address from) {
    return check(context_->driver().copy(to, from, sizeof(double), stream_.get()), "a copy");
  }
  Status check(cuda::Code code, const char* what) const {
    if (code == cuda::Code::success) return {};
    return context_->error(code, what);
  }
  void* place(std::size_t offset = 0) const { return reinterpret_cast<void*>(memory_.get() + offset); }

  const Part& part_;
  const std::shared_ptr<const cuda::Context> context_;
  const cuda::Context::Use use_;
  cuda::OwnStream stream_;
  cuda::OwnEvent event_;
  cuda::DeviceMemory memory_;  // of two loads
  cuda::PageLocked number_;
  Communicator communicator_;
  std::size_t load_ = small_load;
};

Result<std::unique_ptr<Meter>> Meter::start(const Environment& environment, const Part& part) {
  auto driver = cuda::open_driver(environment);
  if (!driver) return std::move(driver.error());
  auto library = nccl::open_library(environment);
  if (!library) return std::move(library.error());
  auto context = cuda::Context::open(**driver, part.ordinal);
  if (!context) return std::move(context.error());
  std::unique_ptr<Meter> meter(new Meter(part, **library, std::move(*context)));
  HVD_RETURN_IF_ERROR(meter->prepare());
  return meter;
}

Status Meter::prepare() {
  auto stream = cuda::make_stream(context_, 0);
  auto event = cuda::make_event(context_);
  auto memory = cuda::make_device_memory(context_, 2 * large_load);
  auto number = cuda::make_page_locked(context_, sizeof(double));
  for (const Error* failed : {stream ? nullptr : &stream.error(), event ? nullptr : &event.error(),
                              memory ? nullptr : &memory.error(), number ? nullptr : &number.error()})
    if (failed != nullptr) return *failed;
  stream_ = std::move(*stream);
  event_ = std::move(*event);
  memory_ = std::move(*memory);
  number_ = std::move(*number);
  constexpr const char* what = "a fill of memory";
  HVD_RETURN_IF_ERROR(check(context_->driver().fill_bytes(memory_.get(), 0, 2 * large_load, stream_.get()), what));
  HVD_RETURN_IF_ERROR(wait(what));
  nccl::UniqueId id{};
  std::memcpy(id.bytes, part_.id.data(), std::min(sizeof id.bytes, part_.id.size()));
  return communicator_.make({&id, 1}, part_.rank, part_.size, false, part_.deadline);
}

Status Meter::wait(const char* what) {
  HVD_RETURN_IF_ERROR(check(context_->driver().event_record(event_.get(), stream_.get()), what));
  for (;;) {
    const cuda::Code code = context_->driver().event_query(event_.get());
    if (code != cuda::Code::not_ready) return check(code, what);
    if (part_.deadline.passed()) return Error(ErrorCode::timeout, std::string(what) + " has not ended in time");
    std::this_thread::yield();
  }
}

// All ranks take the same load: by the time of the slowest.
Status Meter::choose_load() {
  const auto whole = [&] { return reduce(small_load / sizeof(float), nccl::Type::f32, nccl::Operation::sum); };
  if (auto first = time("an allreduce", whole); !first) return first.error();  // it makes links, and loads kernels
  auto seconds = time("an allreduce", whole);
  if (!seconds) return seconds.error();
  std::memcpy(number_.get(), &*seconds, sizeof(double));
  const auto number = reinterpret_cast<cuda::Address>(number_.get());
  HVD_RETURN_IF_ERROR(copy(memory_.get(), number));
  const auto slowest = [&] { return reduce(1, nccl::Type::f64, nccl::Operation::max); };
  if (auto done = time("an allreduce", slowest); !done) return done.error();
  HVD_RETURN_IF_ERROR(copy(number, memory_.get()));
  HVD_RETURN_IF_ERROR(wait("a copy"));
  double most = 0;
  std::memcpy(&most, number_.get(), sizeof(double));
  load_ = most < slow_s ? large_load : small_load;
  return {};
}

Result<double> Meter::exchange_with(int partner) {
  const nccl::Library& library = communicator_.library();
  const auto both_ways = [&] {
    const Status sent = communicator_.check(
        library.send(place(), load_, nccl::Type::i8, partner, communicator_.handle(), stream_.get()), "a send");
    const Status received = communicator_.check(
        library.receive(place(large_load), load_, nccl::Type::i8, partner, communicator_.handle(), stream_.get()),
        "a receive");
    return sent ? received : sent;
  };
  if (auto first = time("an exchange", both_ways); !first) return first.error();
  return best_time("an exchange", both_ways);
}

Result<Rates> Meter::measure() {
  HVD_RETURN_IF_ERROR(choose_load());
  auto seconds =
      best_time("an allreduce", [&] { return reduce(load_ / sizeof(float), nccl::Type::f32, nccl::Operation::sum); });
  if (!seconds) return seconds.error();
  Rates rates;
  rates.allreduce = static_cast<double>(load_) * 2 * (part_.size - 1) / part_.size / *seconds;
  for (const int partner : part_.partners) {
    if (partner < 0) continue;
    auto exchanged = exchange_with(partner);
    if (!exchanged) return exchanged.error();
    rates.best_partner = std::max(rates.best_partner, static_cast<double>(load_) / *exchanged);
  }
  return rates;
}

Result<Equipment> look(const Environment& environment, int local_rank) {
  auto driver = cuda::open_driver(environment);
  if (!driver) return std::move(driver.error());
  int count = 0;
  static_cast<void>((*driver)->device_count(&count));
  Equipment found;
  found.driver = cuda::driver_version_text((*driver)->version);
  found.ordinal = count == 1 ? 0 : local_rank;
  auto facts = cuda::Context::facts_of(**driver, found.ordinal);
  if (!facts) return std::move(facts.error());
  found.name = facts->name;
  found.uuid = facts->uuid;
  auto library = nccl::open_library(environment);
  if (!library) {
    found.without_nccl = std::move(library.error().message);
    return found;
  }
  found.nccl = nccl::version_text((*library)->version);
  found.fault = nccl::known_faults_here((*library)->version);
  return found;
}

Result<std::string> draw_id(const Environment& environment) {
  auto library = nccl::open_library(environment);
  if (!library) return std::move(library.error());
  nccl::UniqueId id;
  if (const nccl::Code code = (*library)->get_unique_id(&id); code != nccl::Code::success)
    return nccl::error_of(**library, code, nullptr, "no communicator can be made");
  return std::string(id.bytes, sizeof id.bytes);
}

Result<Rates> measure(const Environment& environment, const Part& part) {
  auto meter = Meter::start(environment, part);
  return meter ? (*meter)->measure() : Result<Rates>(std::move(meter.error()));
}

}  // namespace

const nccl::Measuring& measuring() {
  static const nccl::Measuring table{posix::plugin_stamp(sizeof(nccl::Measuring)), &look, &draw_id, &measure};
  return table;
}

}  // namespace hvd::transport::over_nccl

extern "C" __attribute__((visibility("default"))) const void* horovod_measuring_plugin() {
  return &hvd::transport::over_nccl::measuring();
}
