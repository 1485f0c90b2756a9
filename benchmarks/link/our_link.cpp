#include "link/our_link.hpp"

#include <sched.h>

#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "base/settings/environment.hpp"
#include "bootstrap/meeting/meeting.hpp"

namespace hvd::benchmark {

namespace {

constexpr std::string_view wake_words = "benchmark/wake_words";

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
  if (peers_) peers_->leave();
  ranks_.allgather({});
}

void OurLink::meet() {
  bootstrap::Identity identity = ranks_.value_of(bootstrap_.join({}, config_));
  auto listener = ranks_.value_of(connections::PeerListener::open());
  auto net_listener = ranks_.value_of(connections::NetListener::open(config_));
  Member me = bootstrap::introduce_myself(Environment::of_this_process(), listener.address());
  me.endpoints = net_listener.endpoints();
  world_ = ranks_.value_of(bootstrap::meet(bootstrap_, identity, 0, me, deadline_));
  layout_ = topology::layout_of(world_);
  if (layout_.node.size() > 1)
    peers_ = ranks_.value_of(connections::NodePeers::meet(world_, layout_.node, std::move(listener), deadline_));
  if (layout_.nodes > 1) net_ = ranks_.value_of(connections::NetPeers::start(world_, config_, std::move(net_listener)));
}

// Nobody sleeps here. But the check for sleepers is a part of the data plane's cost.
void OurLink::share_wake_words() {
  std::size_t bytes = sizeof(posix::WaitWord) * static_cast<std::size_t>(layout_.node.size());
  if (layout_.node.me == Seat{0}) {
    wake_memory_ = ranks_.value_of(posix::SharedMemory::create(wake_words, bytes));
    if (peers_) {
      auto offered = peers_->offer(layout_.node, wake_words, wake_memory_.descriptor());
      if (!offered) ranks_.fail(offered.error().message);
    }
  } else {
    std::optional<posix::FileDescriptor> descriptor;
    while (!(descriptor = peers_->take(wake_words))) {
      if (deadline_.passed()) ranks_.fail("the node's lowest rank did not hand over its memory in time");
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    wake_memory_ = ranks_.value_of(posix::SharedMemory::map(*descriptor, bytes));
  }
  auto* words = static_cast<posix::WaitWord*>(wake_memory_.data());
  surroundings_.world = &world_;
  surroundings_.config = &config_;
  surroundings_.wake = words + layout_.node.me.value;
  surroundings_.offer<connections::NodePeers>(peers_);
  surroundings_.offer<connections::NetPeers>(net_);
  surroundings_.wake_of = [this, words](Rank rank) -> posix::WaitWord* {
    for (int seat = 0; seat < layout_.node.size(); ++seat)
      if (layout_.node.rank_at(Seat{seat}) == rank) return words + seat;
    return nullptr;
  };
  surroundings_.asymmetric_wake = posix::register_asymmetric_barrier();
  if (net_) net_->set_wake(surroundings_.wake);
}

void OurLink::connect() {
  surroundings_.offer<devices::Devices>(std::make_shared<devices::Devices>());
  sets_ = std::make_unique<runtime::ProcessSets>(world_.size());
  maker_ = ranks_.value_of(runtime::TeamMaker::make(surroundings_, layout_));
  // Only failures would travel over the log, and a failure ends the benchmark.
  teams_ = std::make_unique<runtime::Teams>(*maker_, sets_->world(), DeviceKind::host, [](const runtime::Request&) {});
  Progress progress = Progress::pending;
  while ((progress = teams_->connect()) == Progress::pending) {
    if (deadline_.passed()) ranks_.fail("the links were not made in time");
    std::this_thread::yield();
  }
  if (progress == Progress::failed) ranks_.fail(teams_->failure().message);
}

std::function<void()> OurLink::call(const Collective& collective, std::vector<Segment> in, std::vector<Segment> out) {
  const collectives::Algorithm* algorithm = ranks_.value_of(maker_->selector().choose(collective, teams_->all()));
  planned_.push_back(
      std::make_unique<Planned>(Planned{algorithm->plan(collective, teams_->all()), std::move(in), std::move(out)}));
  return [this, planned = planned_.back().get()] { run(*planned); };
}

std::function<void()> OurLink::exchange(const Collective& collective, std::vector<Segment> in, std::vector<Segment> out,
                                        std::vector<std::int64_t> counts) {
  auto run_it = call(collective, std::move(in), std::move(out));
  planned_.back()->counts = std::move(counts);
  return run_it;
}

void OurLink::run(Planned& planned) {
  Task& task = *planned.task;
  if (!planned.counts.empty()) task.resize(planned.counts, planned.counts);
  task.restart(planned.in, planned.out, Sequence{++sequence_});
  Progress progress = task.step();
  while (progress == Progress::pending) {
    if (ranks_.is_crowded) ::sched_yield();
    progress = task.step();
  }
  if (progress == Progress::failed) ranks_.fail(task.failure().message);
}

}  // namespace hvd::benchmark
