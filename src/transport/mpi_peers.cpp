#include "transport/mpi_peers.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace hvd::transport {
namespace {

bool is_on_one_node(const World& world) {
  return std::all_of(world.members.begin(), world.members.end(),
                     [&](const Member& member) { return member.node == world.members.front().node; });
}

struct Mine {
  mpi::Process* process = nullptr;
  std::shared_ptr<mpi::Communicator> base;
};

Status take_mine(const MpiPeers::Request& request, Mine& mine) {
  auto process = mpi::Process::open(*request.environment, *request.config);
  if (!process) return std::move(process.error());
  mine.process = *process;
  HVD_RETURN_IF_ERROR(mine.process->start(*request.environment, *request.config));
  mine.base = request.base;
  if (mine.base != nullptr) return {};
  auto world = mine.process->calls().world();
  if (!world) return std::move(world.error());
  mine.base = std::move(*world);
  return {};
}

}  // namespace

Buffer MpiCard::encode() const {
  Buffer bytes;
  ByteWriter out(bytes);
  out.put_string(refusal);
  out.put_string(version);
  out.put(static_cast<std::int32_t>(rank));
  out.put(static_cast<std::int32_t>(size));
  out.put(static_cast<std::uint8_t>(running));
  out.put(static_cast<std::uint8_t>(wanted));
  return bytes;
}

Result<MpiCard> MpiCard::decode(ConstBytes bytes) {
  ByteReader in(bytes);
  MpiCard card;
  card.refusal = in.get_string();
  card.version = in.get_string();
  card.rank = in.get<std::int32_t>();
  card.size = in.get<std::int32_t>();
  card.running = in.get<std::uint8_t>() != 0;
  card.wanted = in.get<std::uint8_t>() != 0;
  if (in.ok() && in.at_end()) return card;
  return Error(ErrorCode::mismatch, "what a rank told about its MPI came damaged");
}

Result<std::vector<int>> match_ranks(const World& world, const std::vector<MpiCard>& cards) {
  auto refuse = [&](std::size_t rank, const std::string& why) {
    return Error(ErrorCode::unsupported, describe(world, Rank{static_cast<std::int32_t>(rank)}) + ": " + why);
  };
  for (std::size_t rank = 0; rank < cards.size(); ++rank)
    if (!cards[rank].refusal.empty()) return refuse(rank, cards[rank].refusal);
  for (std::size_t rank = 1; rank < cards.size(); ++rank)
    if (cards[rank].version != cards[0].version)
      return refuse(rank, "its MPI is " + cards[rank].version + ", that of rank 0 is " + cards[0].version +
                              ": all ranks must load the same");
  std::vector<int> ranks;
  std::vector<bool> taken(cards.size(), false);
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const MpiCard& card = cards[rank];
    if (card.size != world.size())
      return refuse(rank, "its MPI knows " + std::to_string(card.size) + " of the job's " +
                              std::to_string(world.size()) + " processes" +
                              (card.size == 1 ? ": the launcher does not speak with " + card.version : ""));
    auto place = static_cast<std::size_t>(card.rank);
    if (place >= taken.size() || taken[place])
      return refuse(rank, "its MPI calls it " + std::to_string(card.rank) +
                              " as it calls another rank: the job has several "
                              "MPI worlds");
    taken[place] = true;
    ranks.push_back(card.rank);
  }
  return ranks;
}

bool MpiPeers::is_wanted(const World& world, const Config& config, bool has_base) {
  if (config.mpi == "none" || world.size() == 1) return false;
  return !config.mpi.empty() || has_base || !is_on_one_node(world);
}

Result<std::shared_ptr<MpiPeers>> MpiPeers::meet(const Request& request, bootstrap::Bootstrap& bootstrap,
                                                 Deadline deadline) {
  const World& world = *request.world;
  Mine mine;
  MpiCard card;
  card.wanted = !request.config->mpi.empty();
  if (Status status = take_mine(request, mine); !status) {
    card.refusal = status.error().message;
  } else {
    card.version = mine.process->calls().version() + " (" + mine.process->calls().abi + ")";
    card.rank = mine.base->rank();
    card.size = mine.base->size();
  }
  card.running = mine.process != nullptr && mine.process->is_running();
  std::string key = "hvd.mpi." + std::to_string(world.epoch);
  HVD_RETURN_IF_ERROR(bootstrap.put(key, card.encode()));
  HVD_RETURN_IF_ERROR(bootstrap.fence(deadline));
  std::vector<MpiCard> cards;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (Rank{rank} == world.rank) {
      cards.push_back(card);
      continue;
    }
    auto bytes = bootstrap.get(Rank{rank}, key, deadline);
    if (!bytes) return std::move(bytes.error());
    auto read = MpiCard::decode(*bytes);
    if (!read) return std::move(read.error());
    cards.push_back(std::move(*read));
  }
  auto ranks = match_ranks(world, cards);
  bool is_wanted = std::any_of(cards.begin(), cards.end(), [](const MpiCard& it) { return it.wanted; });
  if (!ranks && is_wanted) {
    ranks.error().message = "HOROVOD_MPI asks for MPI, but it cannot be used: " + ranks.error().message;
    return std::move(ranks.error());
  }
  if (!ranks) {
    // Nobody misses an MPI that nobody started.
    bool is_missed = std::any_of(cards.begin(), cards.end(), [](const MpiCard& it) { return it.running; });
    if (world.rank == Rank{0})
      (is_missed ? &log::warning : &log::info)("the ranks communicate without MPI: " + ranks.error().message,
                                               std::source_location::current());
    return std::shared_ptr<MpiPeers>();
  }
  return std::make_shared<MpiPeers>(mine.process->calls(), std::move(mine.base), std::move(*ranks), is_wanted);
}

Result<std::unique_ptr<mpi::Communicator>> MpiPeers::connect(const Group& group, std::string_view name) const {
  std::vector<int> members;
  for (Rank rank : group.ranks) members.push_back(mpi_ranks_.at(static_cast<std::size_t>(rank.value)));
  // Groups of one name do not overlap; the program's own groups may be made at the same time, so not any small number.
  std::uint32_t mixed = 2166136261u;
  for (char letter : name) mixed = (mixed ^ static_cast<unsigned char>(letter)) * 16777619u;
  return base_->subgroup(members, static_cast<int>(mixed & 0x7fff));
}

}  // namespace hvd::transport
