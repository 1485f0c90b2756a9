#include "bootstrap/meeting.hpp"

#include <unistd.h>

#include <sstream>

#include "native/posix/host_identity.hpp"
#include "native/posix/plugin.hpp"
#include "native/posix/random.hpp"

namespace hvd::bootstrap {
namespace {

// A card: u32 mark, u32 protocol version, and only then what belongs to that version.
constexpr std::uint32_t mark = 0x48766443;

constexpr const char* same_release =
    ": all ranks must load the same release of Horovod (see their PYTHONPATH, modules, images)";

Buffer card_of(const Member& member, const std::string& secret) {
  Buffer card;
  ByteWriter out(card);
  out.put(mark);
  out.put(protocol_version);
  out.put_string(member.host);
  out.put_string(member.node);
  out.put(member.pid);
  out.put_string(member.address);
  out.put_string(member.endpoints);
  out.put_string(member.release);
  out.put_string(member.knobs);
  out.put_string(secret);
  return card;
}

Result<Member> read_card(ConstBytes card, Rank from, Rank me, std::string& secret) {
  ByteReader in(card);
  auto found_mark = in.get<std::uint32_t>();
  auto version = in.get<std::uint32_t>();
  if (!in.ok() || found_mark != mark)
    return Error(ErrorCode::mismatch, "rank " + std::to_string(from.value) + " sent " + std::to_string(card.size()) +
                                          " bytes that are no introduction of Horovod's");
  if (version != protocol_version)
    return Error(ErrorCode::mismatch, "rank " + std::to_string(from.value) + " speaks protocol version " +
                                          std::to_string(version) + ", rank " + std::to_string(me.value) + " version " +
                                          std::to_string(protocol_version) + same_release);
  Member member;
  member.host = in.get_string();
  member.node = in.get_string();
  member.pid = in.get<std::int32_t>();
  member.address = in.get_string();
  member.endpoints = in.get_string();
  member.release = in.get_string();
  member.knobs = in.get_string();
  std::string its_secret(in.get_string());
  if (from == Rank{0}) secret = std::move(its_secret);
  if (!in.ok() || !in.at_end())
    return Error(ErrorCode::mismatch, "the introduction of rank " + std::to_string(from.value) + " is damaged");
  return member;
}

std::string says(Rank rank, const Member& member, const std::string& what) {
  return "rank " + std::to_string(rank.value) + " (host " + member.host + ") has " + what;
}

// Another release may speak the same, and still compute something else.
Status compare_releases(const Member& mine, Rank me, const Member& other, Rank from) {
  if (mine.release == other.release) return {};
  return Error(ErrorCode::mismatch, says(me, mine, "loaded Horovod " + mine.release) + ", " +
                                        says(from, other, "loaded Horovod " + other.release) + same_release);
}

// Ranks with different knobs would go different ways, and wait for each other for ever.
Status compare_knobs(const Member& mine, Rank me, const Member& other, Rank from) {
  if (mine.knobs == other.knobs) return {};
  std::istringstream my_lines(mine.knobs), its_lines(other.knobs);
  std::string my_line, its_line;
  while (std::getline(my_lines, my_line) && std::getline(its_lines, its_line) && my_line == its_line) {
  }
  return Error(ErrorCode::mismatch, says(me, mine, my_line) + ", " + says(from, other, its_line) +
                                        ": all ranks must have the same; set it where the job is started, or unset it "
                                        "everywhere");
}

// After a fence that was late: who has not put a card. What was put can be got though the fence has failed. Empty if
// the launcher does not even answer what needs no waiting.
std::string absent_ranks(Bootstrap& bootstrap, const Identity& identity, const std::string& key) {
  constexpr auto answer_time = std::chrono::milliseconds(200);
  constexpr int most_named = 8;  // each that is absent costs its answer time
  if (!bootstrap.get(identity.rank, key, Deadline::after(answer_time))) return {};
  std::string absent;
  int count = 0;
  for (int rank = 0; rank < identity.size; ++rank) {
    if (Rank{rank} == identity.rank || bootstrap.get(Rank{rank}, key, Deadline::after(answer_time))) continue;
    if (++count > most_named) return absent + " and maybe others";
    absent += (absent.empty() ? "" : ", ") + std::to_string(rank);
  }
  return absent;
}

// Collective. The error names who is missing, if that can be found out.
Status wait_for_all(Bootstrap& bootstrap, const Identity& identity, const std::string& key, Deadline deadline) {
  Status fenced = bootstrap.fence(deadline);
  if (fenced || fenced.error().code != ErrorCode::timeout) return fenced;
  if (std::string absent = absent_ranks(bootstrap, identity, key); !absent.empty())
    fenced.error().message += ". Of " + std::to_string(identity.size) + " ranks these did not come to the meeting by " +
                              bootstrap.name() + ": " + absent +
                              ". Do they still run, are they before hvd.init(), or did they take another way? "
                              "HOROVOD_START_TIMEOUT sets how long the others wait";
  return fenced;
}

}  // namespace

Member introduce_myself(const Environment& environment, std::string address) {
  Member me;
  std::string given = environment.get("HOROVOD_HOSTNAME").value_or("");
  me.host = given.empty() ? posix::host_name() : given;
  me.node = posix::node_id();
  me.pid = ::getpid();
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
  HVD_RETURN_IF_ERROR(bootstrap.put(key, card_of(me, world.secret)));
  HVD_RETURN_IF_ERROR(wait_for_all(bootstrap, identity, key, deadline));
  world.members.reserve(static_cast<std::size_t>(identity.size));
  for (int rank = 0; rank < identity.size; ++rank) {
    if (Rank{rank} == identity.rank) {
      world.members.push_back(me);
      continue;
    }
    auto card = bootstrap.get(Rank{rank}, key, deadline);
    if (!card) return std::move(card.error());
    auto member = read_card(*card, Rank{rank}, identity.rank, world.secret);
    if (!member) return std::move(member.error());
    HVD_RETURN_IF_ERROR(compare_releases(me, identity.rank, *member, Rank{rank}));
    HVD_RETURN_IF_ERROR(compare_knobs(me, identity.rank, *member, Rank{rank}));
    world.members.push_back(std::move(*member));
  }
  return world;
}

}  // namespace hvd::bootstrap
