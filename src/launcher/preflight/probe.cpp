#include "launcher/preflight/probe.hpp"

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/settings/config.hpp"
#include "base/text/comma_list.hpp"
#include "bootstrap/meeting/exchange.hpp"
#include "bootstrap/selection/selection.hpp"
#include "launcher/preflight/gpu_measurement.hpp"
#include "launcher/preflight/link_measurement.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/files/random.hpp"
#include "native/posix/machine/host_identity.hpp"

namespace hvd::launcher::preflight {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view line_begin = "horovod-probe:";
constexpr auto meeting_time = 9s;
constexpr auto measuring_time = 8s;

std::string own_node(const Environment& environment) {
  const std::string fake = environment.get("HOROVOD_FAKE_NODE").value_or("");
  return posix::node_id() + (fake.empty() ? "" : "/" + fake);
}

// Binds a name on this node. Only the first probe on a node gets it, and keeps it as long as it runs; for the others
// the result is empty.
posix::FileDescriptor be_first_on_node(const std::string& job, const Environment& environment) {
  posix::FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "horovod-preflight-" + job + environment.get("HOROVOD_FAKE_NODE").value_or("");
  std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
  auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (socket && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) socket.reset();
  return socket;
}

void print_facts(const std::string& id, const Facts& facts) {
  std::printf("%s%s %s\n", std::string(line_begin).c_str(), id.c_str(), facts.encoded().c_str());
  std::fflush(stdout);
}

// The first probes of all nodes, which measure links. Every probe reads from all cards which these are.
struct Meeting {
  std::vector<LinkEnd> ends;
  int me = -1;  // this probe's place in `ends`; -1: it is not the first on its node
  std::string secret;
  GpuTeam gpus;
};

Result<Meeting> meet(const Environment& environment, const Config& config, const posix::PeerSockets& listening,
                     Facts& facts) {
  std::vector<bootstrap::Notice> notices;
  auto chosen = bootstrap::choose(environment, config, notices);
  if (!chosen) return chosen.error();
  const int rank = chosen->identity.rank.value;
  facts.set("bootstrap", chosen->bootstrap->name());
  facts.set("rank", rank);
  facts.set("size", chosen->identity.size);
  const GpuCard gpu = draw_gpu_card(environment, facts, rank == 0);
  const bootstrap::Card card = {
      posix::host_name(),           own_node(environment), listening.endpoints, rank == 0 ? posix::random_hex(16) : "",
      gpu.can_measure ? "yes" : "", gpu.id_of_node,        gpu.id_of_world};
  auto cards =
      bootstrap::exchange(*chosen->bootstrap, chosen->identity, "preflight", card, Deadline::after(meeting_time));
  if (!cards) return cards.error();
  Meeting meeting;
  meeting.gpus.rank = rank;
  std::vector<std::string> nodes;
  for (int each = 0; each < cards->size(); ++each) {
    const auto& texts = cards->of(Rank{each}).texts;
    if (texts.size() < card.size()) return Error(ErrorCode::mismatch, "a probe of another release is among the ranks");
    if (each == 0) meeting.secret = texts[3];
    const std::string node(texts[1]);
    const auto known = std::ranges::find(nodes, node);
    meeting.gpus.nodes.push_back(static_cast<int>(known - nodes.begin()));
    meeting.gpus.cards.push_back({!texts[4].empty(), std::string(texts[5]), std::string(texts[6])});
    if (known != nodes.end()) continue;
    if (each == rank) meeting.me = static_cast<int>(nodes.size());
    nodes.push_back(node);
    meeting.ends.push_back({std::string(texts[0]), std::string(texts[2])});
  }
  return meeting;
}

void meet_and_measure(const Environment& environment, Facts& facts) {
  std::vector<std::string> warnings;
  auto config = Config::from(environment, warnings);
  if (!config) return facts.set("meeting_error", config.error().message);
  auto listening = posix::listen_for_peers(config->network_interfaces, config->port_range);
  // Without network the probe goes on with no address. Ranks of one node need none; on several nodes the check of the
  // meeting reports it.
  if (!listening && config->network_interfaces.empty()) listening = posix::PeerSockets{};
  if (!listening) return facts.set("meeting_error", listening.error().message);
  auto meeting = meet(environment, *config, *listening, facts);
  if (!meeting) return facts.set("meeting_error", meeting.error().message);
  if (meeting->me >= 0 && meeting->ends.size() > 1)
    facts.set("links", text_of(measure_links(*listening, meeting->me, meeting->ends, meeting->secret,
                                             Deadline::after(measuring_time))));
  measure_gpus(environment, meeting->gpus, facts);
}

}  // namespace

std::vector<std::string> probe_command(const std::string& horovodrun, const std::string& job,
                                       const std::vector<std::string>& hosts, const std::string& python) {
  return {horovodrun, probe_flag, job, hosts.empty() ? "-" : joined(hosts, ","), python.empty() ? "-" : python};
}

int run_probe(char** arguments) {
  ::signal(SIGPIPE, SIG_IGN);
  const Environment environment = Environment::of_this_process();
  const std::string id = posix::random_hex(8), job = arguments[0];
  auto word = [&](int number) { return std::string(arguments[number]) == "-" ? "" : std::string(arguments[number]); };
  posix::FileDescriptor first = be_first_on_node(job, environment);
  const Place place{environment, items_of(word(1)), word(2), static_cast<bool>(first)};
  Facts facts{{"host", posix::host_name()}, {"node", own_node(environment)}, {"pid", std::to_string(::getpid())}};
  if (place.is_first) facts.set("first", "yes");
  if (auto name = environment.get("HOROVOD_HOSTNAME")) facts.set("given_name", *name);
  // The place of the probe is told first, so that its host is known if a check hangs.
  print_facts(id, facts);
  for (const Check* check : checks())
    if (check->gather != nullptr) check->gather(place, facts);
  facts.set("has_looked", "yes");
  print_facts(id, facts);
  meet_and_measure(environment, facts);
  facts.set("is_through", "yes");
  print_facts(id, facts);
  return 0;
}

bool ProbeLines::take(std::string_view line) {
  std::size_t at = line.find(line_begin);
  if (at == std::string_view::npos) return false;
  line.remove_prefix(at + line_begin.size());
  const std::string id(line.substr(0, line.find(' ')));
  if (id.size() == line.size()) return false;
  line.remove_prefix(id.size() + 1);
  probes_[id].add(Facts::decode(line.substr(0, line.find_first_of(" \r\n"))));
  return true;
}

std::vector<Facts> ProbeLines::probes() const {
  std::vector<Facts> all;
  for (const auto& [id, facts] : probes_) all.push_back(facts);
  auto number = [](const Facts& probe) { return probe.number(probe.has("rank") ? "rank" : "said_rank").value_or(1e9); };
  std::ranges::stable_sort(all, {}, number);
  return all;
}

}  // namespace hvd::launcher::preflight
