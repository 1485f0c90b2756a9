#include "bootstrap/meeting/meeting.hpp"

#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "bootstrap/meeting/exchange.hpp"
#include "native/posix/files/random.hpp"
#include "native/posix/machine/host_identity.hpp"
#include "native/posix/plugins/plugin.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::bootstrap {
namespace {

// The card of a rank begins with u32 mark and u32 protocol version. The version defines what follows.
constexpr std::uint32_t mark = 0x48766443;
struct Text {
  enum : std::size_t { head, host, node, processes, release, knobs, addresses, devices, own, secret, count };
};

constexpr const char* same_release =
    ": all ranks must load the same release of Horovod (see their PYTHONPATH, modules, images)";

// The ranks of a node have the same addresses, and each rank has its own ports. This function separates the addresses
// from the ports.
void split(const std::string& endpoints, std::string& addresses, ByteWriter& ports) {
  for (std::size_t at = 0; at < endpoints.size();) {
    std::size_t end = std::min(endpoints.find(' ', at), endpoints.size());
    std::size_t colon = std::min(endpoints.rfind(':', end), end);
    addresses += (addresses.empty() ? "" : " ") + endpoints.substr(at, colon - at);
    ports.put_string(endpoints.substr(colon, end - colon));
    at = end + 1;
  }
}

std::string joined(std::string_view addresses, ByteReader& ports) {
  std::string endpoints;
  for (std::size_t at = 0; at < addresses.size();) {
    std::size_t end = std::min(addresses.find(' ', at), addresses.size());
    endpoints += (endpoints.empty() ? "" : " ") + std::string(addresses.substr(at, end - at));
    endpoints += ports.get_string();
    at = end + 1;
  }
  return endpoints;
}

Card card_of(const Member& member, const std::string& secret) {
  Card card(Text::count);
  Buffer version, mine;
  ByteWriter first(version), out(mine);
  first.put(mark);
  first.put(protocol_version);
  out.put(member.pid);
  out.put(member.forked_at_s);
  out.put(member.called_init_at_s);
  out.put_string(member.address);
  split(member.endpoints, card[Text::addresses], out);
  card[Text::head] = to_string(version);
  card[Text::host] = member.host;
  card[Text::node] = member.node;
  card[Text::processes] = member.process_space;
  card[Text::release] = member.release;
  card[Text::knobs] = member.knobs;
  card[Text::devices] = member.devices;
  card[Text::own] = to_string(mine);
  card[Text::secret] = secret;
  return card;
}

Status check_version(const CardView& card, Rank from, Rank me) {
  std::string_view text = card.texts.empty() ? std::string_view() : card.texts[Text::head];
  ByteReader in(as_bytes(text));
  auto found_mark = in.get<std::uint32_t>();
  auto version = in.get<std::uint32_t>();
  if (!in.ok() || found_mark != mark)
    return Error(ErrorCode::mismatch, "expected a card of Horovod from rank " + std::to_string(from.value) +
                                          ", received something else" + same_release);
  if (version == protocol_version) return {};
  return Error(ErrorCode::mismatch, "rank " + std::to_string(from.value) + " speaks protocol version " +
                                        std::to_string(version) + ", rank " + std::to_string(me.value) + " version " +
                                        std::to_string(protocol_version) + same_release);
}

// Reads from a card what is not equal on all ranks.
Result<Member> read_card(const CardView& card, Rank from, Rank me, std::string& secret) {
  HVD_RETURN_IF_ERROR(check_version(card, from, me));
  Error damaged(ErrorCode::mismatch, "the introduction of rank " + std::to_string(from.value) + " is damaged");
  if (!card.is_whole || card.texts.size() != Text::count) return damaged;
  ByteReader in(as_bytes(card.texts[Text::own]));
  Member member;
  member.host = card.texts[Text::host];
  member.node = card.texts[Text::node];
  member.process_space = card.texts[Text::processes];
  member.devices = card.texts[Text::devices];
  member.pid = in.get<std::int32_t>();
  member.forked_at_s = in.get<double>();
  member.called_init_at_s = in.get<double>();
  member.address = in.get_string();
  member.endpoints = joined(card.texts[Text::addresses], in);
  if (from == Rank{0}) secret = card.texts[Text::secret];
  if (!in.ok() || !in.at_end()) return damaged;
  return member;
}

std::string says(Rank rank, const Member& member, const std::string& what) {
  return "rank " + std::to_string(rank.value) + " (host " + member.host + ") has " + what;
}

// Another release may speak the same protocol and still compute something else.
Status compare_releases(const Member& mine, Rank me, const Member& other, Rank from, std::string_view its_release) {
  if (mine.release == its_release) return {};
  return Error(ErrorCode::mismatch, says(me, mine, "loaded Horovod " + mine.release) + ", " +
                                        says(from, other, "loaded Horovod " + std::string(its_release)) + same_release);
}

// Ranks with different knobs would take different decisions, and wait for each other forever.
Status compare_knobs(const Member& mine, Rank me, const Member& other, Rank from, std::string_view its_knobs) {
  if (mine.knobs == its_knobs) return {};
  std::istringstream my_lines(mine.knobs), its_lines{std::string(its_knobs)};
  std::string my_line, its_line;
  while (std::getline(my_lines, my_line) && std::getline(its_lines, its_line) && my_line == its_line) {
  }
  return Error(ErrorCode::mismatch, says(me, mine, my_line) + ", " + says(from, other, its_line) +
                                        ": all ranks must have the same; set it where the job is started, or unset it "
                                        "everywhere");
}

}  // namespace

Member introduce_myself(const Environment& environment, std::string address) {
  Member me;
  std::string given = environment.get("HOROVOD_HOSTNAME").value_or("");
  me.host = given.empty() ? posix::host_name() : given;
  me.node = posix::node_id();
  if (auto fake = environment.get("HOROVOD_FAKE_NODE")) me.node += "/" + *fake;
  me.pid = ::getpid();
  me.process_space = posix::process_space();
  me.address = std::move(address);
  me.release = posix::plugin_stamp(0).version;
  return me;
}

Result<World> meet(Bootstrap& bootstrap, const Identity& identity, std::uint32_t epoch, const Member& me,
                   Deadline deadline) {
  World world;
  world.rank = identity.rank;
  world.epoch = epoch;
  world.job = identity.job;
  if (identity.size == 1) {
    world.members.push_back(me);
    return world;
  }
  std::string key = "hvd.meet." + std::to_string(epoch);
  if (identity.rank == Rank{0}) world.secret = posix::random_bytes(32);
  auto cards = exchange(bootstrap, identity, key, card_of(me, world.secret), deadline);
  if (!cards) return std::move(cards.error());
  world.members.reserve(static_cast<std::size_t>(identity.size));
  for (int rank = 0; rank < identity.size; ++rank) {
    if (Rank{rank} == identity.rank) {
      world.members.push_back(me);
      continue;
    }
    const CardView& card = cards->of(Rank{rank});
    auto member = read_card(card, Rank{rank}, identity.rank, world.secret);
    if (!member) return std::move(member.error());
    HVD_RETURN_IF_ERROR(compare_releases(me, identity.rank, *member, Rank{rank}, card.texts[Text::release]));
    HVD_RETURN_IF_ERROR(compare_knobs(me, identity.rank, *member, Rank{rank}, card.texts[Text::knobs]));
    world.members.push_back(std::move(*member));
  }
  return world;
}

}  // namespace hvd::bootstrap
