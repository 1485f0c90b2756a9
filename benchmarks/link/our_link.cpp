#include "link/our_link.hpp"

#include <sched.h>

#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "base/environment.hpp"
#include "bootstrap/meeting.hpp"
#include "topology/layout.hpp"
#include "transport/registry.hpp"

namespace hvd::benchmark {

namespace {

constexpr std::string_view wake_words = "benchmark/wake_words";

// Only failures travel over it, and a failure ends the benchmark.
class NoExchange final : public transport::Exchange {
 public:
  Status put(std::string_view, ConstBytes) override { return {}; }
  Result<bool> get(Rank, std::string_view, Buffer&) override { return false; }
};

}  // namespace

OurLink::OurLink(Ranks ranks)
    : ranks_(std::move(ranks)), bootstrap_(ranks_), deadline_(Deadline::after(std::chrono::seconds(30))) {
  std::vector<std::string> warnings;
  config_ = ranks_.value_of(Config::from(Environment::of_this_process(), warnings));
  meet();
  share_wake_words();
  connect();
}

OurLink::~OurLink() {
  ranks_.allgather({});
  planned_.clear();
  peers_->expect_departures();
  ranks_.allgather({});
}

void OurLink::meet() {
  bootstrap::Identity identity = ranks_.value_of(bootstrap_.join({}, config_));
  auto listener = ranks_.value_of(transport::PeerListener::open());
  world_ = ranks_.value_of(bootstrap::meet(bootstrap_, identity, 0, listener.address(), deadline_));
  topology::Layout layout = topology::layout_of(world_);
  if (layout.nodes != 1) ranks_.fail("all ranks must run on one machine");
  peers_ = ranks_.value_of(transport::NodePeers::meet(world_, layout.node, std::move(listener), deadline_));
}

// Nobody sleeps here, but the look whether somebody does belongs to the data plane's cost.
void OurLink::share_wake_words() {
  std::size_t bytes = sizeof(posix::WaitWord) * static_cast<std::size_t>(world_.size());
  if (world_.rank == Rank{0}) {
    wake_memory_ = ranks_.value_of(posix::SharedMemory::create(wake_words, bytes));
    auto offered = peers_->offer(topology::layout_of(world_).node, wake_words, wake_memory_.descriptor());
    if (!offered) ranks_.fail(offered.error().message);
  } else {
    std::optional<posix::FileDescriptor> descriptor;
    while (!(descriptor = peers_->take(wake_words))) {
      if (deadline_.passed()) ranks_.fail("rank 0 did not hand over its memory in time");
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    wake_memory_ = ranks_.value_of(posix::SharedMemory::map(*descriptor, bytes));
  }
  auto* words = static_cast<posix::WaitWord*>(wake_memory_.data());
  surroundings_.world = &world_;
  surroundings_.config = &config_;
  surroundings_.wake = words + world_.rank.value;
  surroundings_.peers = peers_;
  surroundings_.wake_of = [words](Rank rank) { return words + rank.value; };
  surroundings_.asymmetric_wake = posix::register_asymmetric_barrier();
}

void OurLink::connect() {
  for (const transport::Maker& maker : transport::registry())
    if (std::string_view(maker.name) == "shm") transport_ = maker.make(surroundings_);
  if (transport_ == nullptr) ranks_.fail("this build has no transport 'shm'");
  NoExchange exchange;
  auto connecting = ranks_.value_of(transport_->connect(topology::layout_of(world_).world, "world", exchange));
  Progress progress = Progress::pending;
  while ((progress = connecting->step()) == Progress::pending) {
    if (deadline_.passed()) ranks_.fail("the link was not connected in time");
    std::this_thread::yield();
  }
  if (progress == Progress::failed) ranks_.fail(connecting->failure().message);
  link_ = connecting->take();
}

std::function<void()> OurLink::call(const Collective& collective, std::vector<Segment> in, std::vector<Segment> out) {
  transport::NativeCollectives* native = link_->native();
  if (native == nullptr || !native->cost(collective).possible())
    ranks_.fail(std::string("the link does no ") + name_of(collective.verb) + " of " + name_of(collective.dtype));
  planned_.push_back(std::make_unique<Planned>(Planned{native->plan(collective), std::move(in), std::move(out)}));
  return [this, planned = planned_.back().get()] { run(*planned); };
}

void OurLink::run(Planned& planned) {
  Task& task = *planned.task;
  task.restart(planned.in, planned.out, Sequence{++sequence_});
  Progress progress = task.step();
  while (progress == Progress::pending) {
    if (ranks_.is_crowded) ::sched_yield();
    progress = task.step();
  }
  if (progress == Progress::failed) ranks_.fail(task.failure().message);
}

}  // namespace hvd::benchmark
