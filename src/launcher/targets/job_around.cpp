#include "launcher/targets/job_around.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/counted.hpp"
#include "base/panic.hpp"
#include "native/posix/files/text_file.hpp"
#include "native/posix/machine/host_identity.hpp"
#include "native/posix/processes/ask_program.hpp"
#include "native/posix/processes/process.hpp"
#include "schedulers/grammar/host_lists.hpp"
#include "schedulers/registry.hpp"

namespace hvd::launcher {
namespace {

using schedulers::Host;

Error malformed(std::string message) {
  return Error(ErrorCode::invalid_argument, std::move(message));
}

int sum_of(const std::vector<Host>& hosts, int (*number)(const Host&)) {
  std::int64_t sum = 0;
  for (const Host& host : hosts) sum += number(host);
  return static_cast<int>(std::min<std::int64_t>(sum, 1 << 30));
}

int slots_of(const Host& host) {
  return host.slots;
}

int room_of(const Host& host) {
  return host.room();
}

// Returns a text like "n1:2, n2:2, … n900:2".
std::string list_of(const std::vector<Host>& hosts) {
  constexpr std::size_t most_shown = 8;
  std::string text;
  for (std::size_t at = 0; at < hosts.size(); ++at) {
    if (hosts.size() > most_shown && at == most_shown - 1) {
      text += ", …";
      at = hosts.size() - 1;
    }
    text += (text.empty()                                          ? ""
             : at == hosts.size() - 1 && hosts.size() > most_shown ? " "
                                                                   : ", ") +
            hosts[at].name + ":" + std::to_string(hosts[at].slots);
  }
  return text;
}

// Shares the ranks out in proportion to the weights. The ranks that are left over go to the hosts whose shares were cut
// most.
std::vector<int> proportional(int ranks, const std::vector<int>& weights) {
  const std::int64_t whole =
      std::max<std::int64_t>(1, std::accumulate(weights.begin(), weights.end(), std::int64_t{0}));
  std::vector<int> shares;
  std::vector<std::size_t> by_rest(weights.size());
  std::iota(by_rest.begin(), by_rest.end(), std::size_t{0});
  int left = ranks;
  for (int weight : weights) {
    shares.push_back(static_cast<int>(std::int64_t{ranks} * weight / whole));
    left -= shares.back();
  }
  std::ranges::stable_sort(by_rest, std::ranges::greater(),
                           [&](std::size_t at) { return std::int64_t{ranks} * weights[at] % whole; });
  for (std::size_t next = 0; left > 0; ++next, --left) ++shares[by_rest[next % by_rest.size()]];
  return shares;
}

}  // namespace

JobAround::JobAround(const Environment& environment)
    : environment_(environment), around_(schedulers::scheduler_around(sources())) {}

bool JobAround::is_of(std::string_view scheduler) const {
  // With a name that is misspelt this would be false in every job.
  if (std::ranges::none_of(schedulers::registry(), [&](const auto& each) { return each.name == scheduler; }))
    panic("there is no scheduler '" + std::string(scheduler) + "'");
  return around_.key == scheduler;
}

schedulers::Sources JobAround::sources() const {
  using namespace std::chrono;
  auto find = [this](const std::string& program) {
    int code = 0;
    return posix::find_program(program, posix::search_path(environment_), code);
  };
  auto ask = [find](std::vector<std::string> command) {
    auto program = find(command[0]);
    if (!program) return std::string();
    command[0] = *program;
    return posix::answer_of(command, seconds(20), false);
  };
  return {.environment = environment_,
          .read_file = &posix::read_text,
          .ask = ask,
          .has_program = [find](const std::string& program) { return find(program).has_value(); },
          .now_s = duration_cast<seconds>(system_clock::now().time_since_epoch()).count(),
          .host = posix::host_name()};
}

const Result<schedulers::Allocation>& JobAround::allocation() const {
  if (!allocation_) allocation_ = scheduler().allocation(sources());
  return *allocation_;
}

std::optional<std::chrono::seconds> JobAround::time_left() const {
  return scheduler().time_left(sources());
}

Result<int> JobAround::slots() const {
  const auto& found = allocation();
  if (!found) return found.error();
  int slots = sum_of(found->hosts, &slots_of);
  if (slots > 0) return slots;
  return malformed("the job " + found->job + " of " + scheduler().name() + " has no slots, by " + found->source);
}

Result<std::vector<HostSlots>> JobAround::share_out(int ranks, bool may_share_processors) const {
  const auto& found = allocation();
  if (!found) return found.error();
  int slots = sum_of(found->hosts, &slots_of), room = sum_of(found->hosts, &room_of);
  if (ranks > room && !may_share_processors)
    return malformed("-np " + std::to_string(ranks) + " asks for more ranks than the job " + found->job + " of " +
                     scheduler().name() + " has slots (" + std::to_string(room) + ", on " + list_of(found->hosts) +
                     ", by " + found->source + "): ask for more (" + scheduler().how_to_ask_for(ranks) +
                     "), give a smaller -np, or let ranks share processors (--oversubscribe)");
  std::vector<int> weights;
  for (const Host& host : found->hosts) weights.push_back(ranks <= slots ? host.slots : host.room());
  std::vector<int> shares = proportional(ranks, weights);
  std::vector<HostSlots> hosts;
  for (std::size_t at = 0; at < shares.size(); ++at)
    if (shares[at] > 0) hosts.push_back({found->hosts[at].name, shares[at]});
  return hosts;
}

Result<std::vector<HostSlots>> JobAround::all_hosts(int ranks, bool may_share_processors) const {
  const auto& found = allocation();
  if (!found || ranks > sum_of(found->hosts, &slots_of)) return share_out(ranks, may_share_processors);
  std::vector<HostSlots> hosts;
  for (const Host& host : found->hosts)
    if (host.slots > 0) hosts.push_back({host.name, host.slots});
  return hosts;
}

std::optional<std::string> JobAround::name_of(const std::string& host) const {
  const auto& found = allocation();
  if (!found) return host;  // an error is reported by the code that needs the hosts
  const std::string wanted = host == "localhost" ? posix::host_name() : host;
  for (const Host& each : found->hosts)
    if (schedulers::is_same_host(each.name, wanted)) return each.name;
  return std::nullopt;
}

Status JobAround::check_hosts(const std::vector<HostSlots>& hosts) const {
  const auto& found = allocation();
  for (const HostSlots& host : hosts)
    if (!name_of(host.host))
      return malformed("the host " + host.host + " is not in the job " + found->job + " of " + scheduler().name() +
                       ", whose hosts are " + list_of(found->hosts) + ": name only these");
  return {};
}

std::string JobAround::description() const {
  const auto& found = allocation();
  if (!found) return found.error().message;
  int slots = sum_of(found->hosts, &slots_of);
  std::string text =
      counted(found->hosts.size(), "host") + " with " + counted(slots, "slot") + " (" + list_of(found->hosts) + ")";
  return text;
}

}  // namespace hvd::launcher
