#include "ranks_on_gpus.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "collectives/registry.hpp"
#include "devices/cuda/plugin.hpp"
#include "doubles/cuda/control.h"
#include "doubles/nccl/control.h"

namespace hvd::testing {

using devices::Where;

// ---- tensors

OnGpu::OnGpu(devices::Device& device, Stream stream, const Part& part) : device_(device), stream_(stream), part_(part) {
  for (auto* list : {&part_.in, &part_.out})
    for (const Segment& segment : *list) add(segment.view);
  for (Piece& piece : pieces_) {
    piece.memory = std::move(*device_.allocate(piece.bytes(), Where::on_device, stream_));
    piece.pages = std::move(*device_.allocate(piece.bytes(), Where::on_host, stream_));
    std::memcpy(piece.pages.data(), piece.begin, piece.bytes());
    move(piece.pages.data(), piece.memory.data(), piece.bytes());
  }
  for (auto* list : {&part_.in, &part_.out})
    for (Segment& segment : *list) segment.view.data = place_of(segment.view);
}

void OnGpu::download() {
  for (const Piece& piece : pieces_) move(piece.memory.data(), piece.pages.data(), piece.bytes());
  devices::finish(device_, stream_);
  for (const Piece& piece : pieces_) std::memcpy(piece.begin, piece.pages.data(), piece.bytes());
}

void OnGpu::move(const void* from, void* to, std::size_t bytes) {
  const devices::Move one{from, to, static_cast<std::int64_t>(bytes)};
  ASSERT_TRUE(device_.move(stream_, {&one, 1}, {DataType::u8, DataType::u8, 1.0, nullptr}));
}

void OnGpu::add(const TensorView& view) {
  if (view.data == nullptr || view.count == 0) return;
  Piece piece{static_cast<std::byte*>(view.data), static_cast<std::byte*>(view.data) + view.bytes()};
  std::erase_if(pieces_, [&](const Piece& other) {
    if (other.end < piece.begin || piece.end < other.begin) return false;
    piece.begin = std::min(piece.begin, other.begin);
    piece.end = std::max(piece.end, other.end);
    return true;
  });
  pieces_.push_back(std::move(piece));
}

void* OnGpu::place_of(const TensorView& view) const {
  auto* data = static_cast<std::byte*>(view.data);
  for (const Piece& piece : pieces_)
    if (data != nullptr && view.count > 0 && piece.begin <= data && data < piece.end)
      return piece.memory.data() + (data - piece.begin);
  return nullptr;
}

// ---- ranks

RanksOnGpus::RanksOnGpus(const std::vector<int>& shape, Config config)
    : ranks_(made_up_world(shape), {"inproc"}, 11, std::move(config),
             [this](RankThread& rank) { rank.surroundings.offer(devices_for(rank)); }) {
  for (const auto& device : devices_) streams_.push_back(device->stream().value());
  connect();
  for (int rank = 0; rank < size(); ++rank) {
    teams_.push_back(std::make_unique<collectives::Team>());
    collectives::Team& team = *teams_.back();
    team.group = ranks_.team(rank).group;
    team.selector = ranks_.selector.get();
    team.device = devices_[static_cast<std::size_t>(rank)].get();
    team.host = &ranks_.team(rank);
    team.link = link(rank);
  }
}

RanksOnGpus::~RanksOnGpus() {
  abort(Error(ErrorCode::shut_down, "the test is over"));
}

std::shared_ptr<devices::Devices> RanksOnGpus::devices_for(RankThread& rank) {
  Environment environment;
  environment.set("HOROVOD_CUDA_DRIVER", HVD_CUDA_DOUBLE);
  threads_.push_back(&rank);
  auto plugin = posix::open_plugin<devices::cuda::Plugin>("cuda", environment);
  if (!plugin) panic(plugin.error().message);
  auto opened = (*plugin)->open(static_cast<int>(devices_.size()), environment);
  if (!opened) panic(opened.error().message);
  devices_.push_back(std::move(*opened));
  return std::make_shared<devices::Devices>(std::span(&devices_.back(), 1));
}

void RanksOnGpus::connect() {
  std::vector<std::unique_ptr<transport::Connecting>> connecting;
  for (RankThread* thread : threads_) {
    for (const transport::Maker& maker : transport::registry())
      if (maker.name == std::string_view("nccl")) transports_.push_back(maker.make(thread->surroundings));
    const Group& group = ranks_.team(static_cast<int>(connecting.size())).group;
    EXPECT_TRUE(transports_.back()->reaches(group, DeviceKind::cuda));
    connecting.push_back(std::move(*transports_.back()->connect(group, "gpus", thread->exchange)));
  }
  for (auto& each : connecting) {
    Progress progress = Progress::pending;
    while ((progress = each->step()) == Progress::pending) {
      for (auto& other : connecting) static_cast<void>(other->step());
      std::this_thread::yield();
    }
    links_.push_back(progress == Progress::done ? each->take() : nullptr);
    if (progress == Progress::failed) ADD_FAILURE() << each->failure().message;
  }
}

std::vector<Verb> RanksOnGpus::verbs_of_links() {
  std::vector<Verb> list;
  for (const VerbRow& row : verbs()) {
    Collective collective;
    collective.verb = row.verb;
    collective.device = device();
    if (link(0)->native()->cost(collective).possible()) list.push_back(row.verb);
  }
  return list;
}

Performers::Tasks RanksOnGpus::plan(const collectives::Algorithm& algorithm, const Collective& collective) {
  Tasks tasks;
  for (int rank = 0; rank < size(); ++rank) {
    Collective of_rank = collective;
    of_rank.stream = stream_of(rank);
    tasks.push_back(algorithm.plan(of_rank, *teams_[static_cast<std::size_t>(rank)]));
  }
  return tasks;
}

Progress RanksOnGpus::run(Tasks& tasks, const std::vector<Part>& parts) {
  std::vector<std::unique_ptr<OnGpu>> tensors;
  ++sequence_;
  for (int rank = 0; rank < size(); ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    tensors.push_back(std::make_unique<OnGpu>(device_of(rank), stream_of(rank), parts[index]));
    restart(*tasks[index], tensors.back()->part(), Sequence{sequence_});
  }
  const Progress outcome = step_until_none_is_pending(tasks);
  if (outcome == Progress::failed) abort();
  for (auto& of_rank : tensors) of_rank->download();
  return outcome;
}

Progress RanksOnGpus::step_until_none_is_pending(Tasks& tasks) {
  Progress outcome = Progress::done;
  for (auto& task : tasks) {
    Progress progress = Progress::pending;
    while ((progress = task->step()) == Progress::pending) std::this_thread::yield();
    if (progress == Progress::failed) outcome = progress;
  }
  return outcome;
}

// The ranks end together, as NCCL's ranks must.
void RanksOnGpus::abort(const Error& reason) {
  std::vector<std::thread> threads;
  for (auto& link : links_)
    if (link) threads.emplace_back([&link, &reason] { link->abort(reason); });
  for (std::thread& thread : threads) thread.join();
}

std::unique_ptr<collectives::Algorithm> native_algorithm() {
  for (const collectives::Maker& maker : collectives::registry())
    if (maker.name == std::string_view("native")) return maker.make();
  panic("there is no algorithm native");
}

namespace {

class AsksTheDoubles final : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override {
    const auto fail = [](void*, const char* text) { ADD_FAILURE() << "a double has found:\n  " << text; };
    static_cast<void>(hvd_double_take_findings(fail, nullptr));
    static_cast<void>(hvd_nccl_double_take_findings(fail, nullptr));
    EXPECT_EQ(hvd_nccl_double_communicators(), 0u) << "a communicator was not given back";
    EXPECT_EQ(hvd_double_allocations(), 0u) << "the test has not given back all memory";
    hvd_double_reset();
  }
};
// The doubles and the plugins read their variables when they are first used.
const bool is_listening = [] {
  ::setenv("HVD_DOUBLE_DEVICES", "4", 1);
  ::setenv("HOROVOD_CUDA_DRIVER", HVD_CUDA_DOUBLE, 1);
  ::testing::UnitTest::GetInstance()->listeners().Append(new AsksTheDoubles);
  return true;
}();

}  // namespace

}  // namespace hvd::testing
