#include "runtime/session.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.hpp"
#include "base/text/number.hpp"
#include "bootstrap/meeting/meeting.hpp"
#include "connections/mpi_peers.hpp"
#include "connections/net_peers.hpp"
#include "connections/node_peers.hpp"
#include "native/posix/files/settings_files.hpp"
#include "native/posix/processes/process.hpp"
#include "runtime/placement.hpp"
#include "runtime/reports/start_report.hpp"
#include "runtime/static_sets.hpp"
#include "topology/layout.hpp"

namespace hvd::runtime {
namespace {

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A later start in the same process is not the start of the job.
void report_start(const World& world, const bootstrap::Identity& identity, const Environment& environment,
                  StartTimes times) {
  if (world.rank != Rank{0} || world.epoch > (identity.assignment ? 1 : 0)) return;
  times.done_at = wall_seconds();
  times.launched_at = number_in<double>(environment.get("HOROVOD_STARTED_AT").value_or(""));
  const std::string line = describe_start(world, times);
  if (times.launched_at) std::fprintf(stderr, "horovodrun: %s\n", line.c_str());
  else log::info(line);
}

}  // namespace

Status Session::join(const Environment& environment, const Config& config) {
  auto chosen = bootstrap::choose(environment, config, notices_);
  if (!chosen) return chosen.error();
  chosen_ = std::move(*chosen);
  log::set_rank(chosen_->identity.rank.value);
  if (chosen_->identity.rank == Rank{0})
    for (const bootstrap::Notice& notice : notices_) log::warning(notice);
  return {};
}

// Asks for the place in the generation that begins. The bootstrap is made at the first start.
Status Session::join_again(const Environment& environment, const Config& config) {
  chosen_->bootstrap->set_progress(progress_);
  auto identity = chosen_->bootstrap->join(environment, config);
  if (!identity) return identity.error();
  chosen_->identity = std::move(*identity);
  log::set_rank(chosen_->identity.rank.value);
  return {};
}

const bootstrap::Identity* Session::assigned() const {
  return chosen_ && chosen_->identity.assignment ? &chosen_->identity : nullptr;
}

std::vector<bootstrap::HostNews> Session::take_news() {
  return chosen_ ? chosen_->bootstrap->take_news() : std::vector<bootstrap::HostNews>();
}

Result<Session::Settings> Session::configure(const Environment& given) {
  std::vector<std::string> warnings;
  auto environment = posix::with_settings_files(given, warnings);
  if (!environment) return std::move(environment.error());
  auto config = Config::from(*environment, warnings);
  if (!config) return std::move(config.error());
  log::configure(config->log);
  if (!warned_) unheard_ = std::move(warnings);
  warned_ = true;
  return Settings{std::move(*environment), std::move(*config)};
}

Result<std::vector<Setting>> settings_of_this_process() {
  std::vector<std::string> unheard;
  auto files = posix::settings_files(unheard);
  if (!files) return std::move(files.error());
  return settings_of(Environment::of_this_process(), **files);
}

Result<std::unique_ptr<Runtime>> Session::start(const Environment& given, StaticSets& sets) {
  const double called_at = wall_seconds();
  auto settings = configure(given);
  if (!settings) return settings.error();
  const bool is_first = !chosen_;
  if (is_first) HVD_RETURN_IF_ERROR(join(settings->environment, settings->config));
  if (!chosen_->bootstrap->assigns()) return start_once(*settings, sets, called_at);
  if (settings->config.mpi != "" && settings->config.mpi != "none")
    return Error(ErrorCode::unsupported,
                 "HOROVOD_MPI=" + settings->config.mpi +
                     " in an elastic job: a process that ends takes all of its MPI job with it. "
                     "Unset HOROVOD_MPI, or train without --min-np and go on from checkpoints");
  settings->config.mpi = "none";
  if (!is_first) HVD_RETURN_IF_ERROR(join_again(settings->environment, settings->config));
  for (;;) {
    auto runtime = start_once(*settings, sets, called_at);
    // Another process has ended, or does not answer, while the ranks met: horovodrun decides who meets next.
    bool meets_others =
        !runtime && (runtime.error().code == ErrorCode::peer_lost || runtime.error().code == ErrorCode::timeout);
    if (!meets_others) return runtime;
    log::warning("the ranks meet again: " + runtime.error().message);
    progress_.cause = bootstrap::Progress::failed_round;
    HVD_RETURN_IF_ERROR(join_again(settings->environment, settings->config));
  }
}

Result<std::unique_ptr<Runtime>> Session::start_once(const Settings& settings, StaticSets& sets, double called_at) {
  Meeting meeting;
  meeting.bootstrap = chosen_->bootstrap.get();
  meeting.identity = chosen_->identity;
  meeting.epoch = meeting.identity.assignment ? meeting.identity.assignment->epoch : epoch_++;
  meeting.called_at_s = called_at;
  meeting.over_mpi = chosen_->bootstrap->is_over_mpi();
  Deadline deadline = start_deadline(settings.config);
  auto runtime = meet(settings.environment, settings.config, meeting, sets, deadline);
  meeting.bootstrap->tidy_up();
  return runtime;
}

Result<std::unique_ptr<Runtime>> Session::start(const Environment& given, const bootstrap::Members& members,
                                                StaticSets& sets) {
  const double called_at = wall_seconds();
  auto settings = configure(given);
  if (!settings) return settings.error();
  auto& [environment, config] = *settings;
  if (config.elastic)
    return Error(ErrorCode::unsupported,
                 "init(comm=...) in an elastic job: its ranks are those that horovodrun assigns. Call init() without "
                 "comm, or train without --min-np and go on from checkpoints");
  auto communicator = bootstrap::communicator_of(members, environment, config);
  bool has_no_mpi = !communicator && communicator.error().code == ErrorCode::unsupported;
  if (has_no_mpi && members.mpi_communicator == nullptr)
    return start_with_all(environment, members, sets, communicator.error());
  if (!communicator) return communicator.error();
  Deadline deadline = start_deadline(config);
  // The job has its own name, even if its members have already started other jobs.
  auto chosen = bootstrap::over_communicator(*communicator, environment, config);
  if (!chosen) return chosen.error();
  log::set_rank(chosen->identity.rank.value);
  return meet(environment, std::move(config),
              {chosen->bootstrap.get(), chosen->identity, 0, *communicator, true, called_at}, sets, deadline);
}

// Without MPI the world can only be all ranks of the launch. A list of all these ranks means the same as no list.
Result<std::unique_ptr<Runtime>> Session::start_with_all(const Environment& environment,
                                                         const bootstrap::Members& members, StaticSets& sets,
                                                         const Error& why_no_mpi) {
  auto runtime = start(environment, sets);
  if (!runtime) return runtime;
  std::vector<int> ranks(members.ranks.begin(), members.ranks.end());
  std::sort(ranks.begin(), ranks.end());
  std::vector<int> all(static_cast<std::size_t>((*runtime)->world().size()));
  std::iota(all.begin(), all.end(), 0);
  if (ranks == all) return runtime;
  return Error(ErrorCode::invalid_argument, "init(comm=...) must name all " + std::to_string(all.size()) +
                                                " ranks of this job, because a job of some ranks needs MPI (" +
                                                why_no_mpi.message + "): launch as many processes as you need");
}

namespace {

// The result is equal on all ranks, so that no rank waits for a rank that it cannot reach.
Status check_network(const World& world, const std::string& why_mine_is_none) {
  bool is_on_one_node = std::all_of(world.members.begin(), world.members.end(),
                                    [&](const Member& member) { return member.node == world.me().node; });
  for (int rank = 0; rank < world.size() && !is_on_one_node; ++rank) {
    if (!world.member(Rank{rank}).endpoints.empty()) continue;
    bool is_mine = Rank{rank} == world.rank;
    return Error(ErrorCode::unsupported, describe(world, Rank{rank}) +
                                             " has no network address by which the other nodes could reach it" +
                                             (is_mine ? ": " + why_mine_is_none : "; see its own output"));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Runtime>> Session::meet(const Environment& environment, Config config, const Meeting& meeting,
                                               StaticSets& sets, Deadline deadline) {
  const bootstrap::Identity& identity = meeting.identity;
  for (const std::string& warning : std::exchange(unheard_, {}))
    if (identity.rank == Rank{0}) log::warning(warning);
  auto listener = connections::PeerListener::open();
  if (!listener) return listener.error();
  // Only after the ranks have met is it known whether the job has other nodes, but the meeting itself has to carry the
  // ranks' endpoints. On one node no endpoints are needed. So a host without an address is an error only later.
  std::optional<connections::NetListener> net_listener;
  std::string why_no_network;
  if (identity.size > 1) {
    auto opened = connections::NetListener::open(config);
    if (opened) net_listener = std::move(*opened);
    else if (!config.network_interfaces.empty()) return opened.error();
    else why_no_network = opened.error().message;
  }
  Member me = bootstrap::introduce_myself(environment, listener->address());
  if (net_listener) me.endpoints = net_listener->endpoints();
  me.forked_at_s = wall_seconds() - posix::age_of_this_process();
  me.called_init_at_s = meeting.called_at_s;
  me.devices = introduce_devices(environment);
  me.knobs = config.equal_knobs() + knob_of(sets);
  auto world = bootstrap::meet(*meeting.bootstrap, identity, meeting.epoch, me, deadline);
  if (!world) {
    // The error includes the notices: the other ranks may have joined by a bootstrap that failed on this rank.
    for (const bootstrap::Notice& notice : notices_) world.error().message += "; " + notice;
    return world.error();
  }

  StartTimes times;
  times.met_at = wall_seconds();
  HVD_RETURN_IF_ERROR(check_network(*world, why_no_network));
  auto listed = distinct_sets(sets.listed, world->size());
  if (!listed) return listed.error();
  Runtime::Parts parts;
  parts.sets = std::move(*listed);
  parts.config = std::move(config);
  parts.world = std::move(*world);
  parts.layout = topology::layout_of(parts.world);
  // Threads that MPI and the devices start later are then bound, too.
  auto place = take_place(parts.world, *parts.layout, environment, parts.config);
  if (!place) return place.error();
  parts.placement = std::move(*place);
  if (connections::MpiPeers::is_wanted(parts.world, parts.config, meeting.over_mpi)) {
    auto mpi = connections::MpiPeers::meet({&parts.world, &parts.config, &environment, meeting.communicator},
                                           *meeting.bootstrap, deadline);
    if (!mpi) return mpi.error();
    parts.mpi = std::move(*mpi);
    times.mpi_took = wall_seconds() - times.met_at;
  }
  if (parts.layout->node.size() > 1) {
    auto peers = connections::NodePeers::meet(parts.world, parts.layout->node, std::move(*listener), deadline);
    if (!peers) return peers.error();
    parts.peers = std::move(*peers);
  }
  parts.net = std::move(net_listener);
  auto runtime = Runtime::start(std::move(parts), deadline);
  if (runtime) report_start((*runtime)->world(), identity, environment, times);
  if (runtime)
    if (auto added = add_sets_of_communicators(**runtime, environment, sets); !added) return added.error();
  return runtime;
}

}  // namespace hvd::runtime
