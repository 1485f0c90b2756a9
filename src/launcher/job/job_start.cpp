#include "launcher/job/job_start.hpp"

#include <signal.h>

#include "base/text/comma_list.hpp"
#include "launcher/agent/rank_environment.hpp"
#include "launcher/job/start_orders.hpp"
#include "native/posix/machine/host_identity.hpp"

namespace hvd::launcher {
namespace {

constexpr std::size_t most_elastic_hosts = 4096;  // that a job reaches from its beginning to its end

}  // namespace

using std::chrono::milliseconds;

Status JobStart::begin(AgentSettings settings) {
  settings_ = std::move(settings);
  HVD_RETURN_IF_ERROR(reach_hosts());
  HVD_RETURN_IF_ERROR(open_wire_up());
  for (std::size_t at = 0; at < parts_.hosts.size(); ++at) greet(at);
  HVD_RETURN_IF_ERROR(reach_more());
  // A job on this machine alone does not wait until its agent is ready: that agent cannot fail to become so.
  // A job whose hosts come and go does not wait for all of them.
  return is_on_this_machine_alone() || parts_.options.elastic ? start_ranks() : Status();
}

Status JobStart::step() {
  if (has_started_ranks_ || is_on_this_machine_alone()) return {};
  HVD_RETURN_IF_ERROR(reach_more());
  if (auto line = progress_.look(parts_.hosts, Clock::now())) parts_.console.say(*line);
  if (parts_.hosts.are_all_ready()) {
    parts_.console.say_time("all hosts ready");
    HVD_RETURN_IF_ERROR(parts_.hosts.check_nodes());
    return start_ranks();
  }
  return start_by_.passed() ? not_ready_in_time() : Status();
}

milliseconds JobStart::left() const {
  // Wakes up regularly, to start the commands to the next hosts and to tell how many hosts have answered.
  return std::min(start_by_.left(), milliseconds(500));
}

Status JobStart::reach_hosts() {
  for (const HostPlan& plan : parts_.options.hosts)
    if (!plan.reach.empty())
      parts_.console.say_if_verbose("reaching for " + plan.name + ": " + joined(plan.reach, " "));
  HVD_RETURN_IF_ERROR(parts_.hosts.reach(parts_.options, settings_));
  parts_.console.say_time("agents forked");
  if (host_of_first_rank().is_here && !parts_.input.is_ours()) return {};
  // A read from a terminal in the background must fail. With the default action of SIGTTIN it would stop us.
  ::signal(SIGTTIN, SIG_IGN);
  parts_.input.open();
  return {};
}

Status JobStart::open_wire_up() {
  const JobOptions& options = parts_.options;
  if (options.site) return {};  // the site's launcher lets its ranks meet
  bool is_on_several = options.is_on_several_machines() || (options.elastic && options.elastic->plan_of_host);
  if (is_on_several) {
    HVD_RETURN_IF_ERROR(parts_.watch.open_lifelines(options.network, options.elastic ? most_elastic_hosts : 0));
    start_by_ = Deadline::after(options.network.start_timeout);
  }
  const std::string& path = parts_.folder.path();
  std::vector<std::string> notices;
  auto wired =
      WireUp::start({"horovodrun-" + path.substr(path.rfind('-') + 1), static_cast<int>(options.placements.size()),
                     posix::host_name(), parts_.folder.make(), is_on_several, options.elastic.has_value(),
                     options.network.interfaces, options.network.ports},
                    parts_.environment, notices);
  if (!wired) return wired.error();
  wire_up_ = std::move(*wired);
  for (const std::string& notice : notices) parts_.console.say(notice);
  parts_.console.say_time(wire_up_->has_pmix() ? "PMIx server and own store ready" : "own store ready");
  return {};
}

void JobStart::greet(std::size_t at) {
  HostLink& host = parts_.hosts[at];
  host.send(prepare_order(parts_.options, host, at, parts_.watch.lifelines()));
}

Status JobStart::reach_more() {
  return parts_.hosts.reach_more([this](std::size_t at) { greet(at); });
}

Error JobStart::not_ready_in_time() const {
  constexpr std::size_t most_named = 8;
  const NetworkOptions& network = parts_.options.network;
  std::size_t missing = 0;
  std::string text;
  for (const HostLink& host : parts_.hosts)
    if (!host.is_ready() && ++missing <= most_named)
      text += (text.empty() ? "" : "; ") + host.name + ": " + host.why_not(network.remote_program);
  if (missing > most_named) text += "; and " + std::to_string(missing - most_named) + " more hosts";
  return {ErrorCode::timeout, "not all hosts were ready within " +
                                  std::to_string(network.start_timeout.count() / 1000) +
                                  " s (--start-timeout sets another limit): " + text};
}

Status JobStart::start_ranks() {
  has_started_ranks_ = true;
  start_by_ = Deadline::never();
  if (parts_.options.site) return start_site_launcher();
  if (parts_.options.elastic) return {};  // the job's ElasticJob starts them
  const Environment abroad = exportable(parts_.environment);
  for (const Placement& placement : parts_.options.placements) {
    HostLink& host = parts_.hosts[placement.host_index];
    auto order =
        start_order(parts_.options, placement, host.is_here, host.is_here ? parts_.environment : abroad, *wire_up_);
    if (!order) return order.error();
    send_start_order(host, std::move(*order));
  }
  parts_.console.say_time("launch orders sent");
  return {};
}

Status JobStart::start_site_launcher() {
  const JobOptions& options = parts_.options;
  auto order =
      order_for_site(*options.site, parts_.environment, options.variables, [this] { return parts_.folder.make(); });
  if (!order) return order.error();
  order->folder = working_folder();
  send_start_order(host_of_first_rank(), *order);
  parts_.console.say_if_verbose("starting " + joined(order->command, " "));
  return {};
}

void JobStart::send_start_order(HostLink& host, StartRank order) {
  if (parts_.input.is_ours() && order.input == InputFrom::agent) order.input = InputFrom::horovodrun;
  host.send(order);
}

}  // namespace hvd::launcher
