#include "connections/mpi_peers.hpp"

#include <algorithm>
#include <map>
#include <sstream>

#include "base/log.hpp"
#include "bootstrap/meeting/exchange.hpp"
#include "bootstrap/pmi_bridge/start.hpp"
#include "native/mpi/device_pointers.hpp"
#include "native/posix/machine/fabric_devices.hpp"
#include "native/posix/sockets/tcp_address.hpp"

namespace hvd::connections {
namespace {

bool is_on_one_node(const World& world) {
  return std::all_of(world.members.begin(), world.members.end(),
                     [&](const Member& member) { return member.node == world.members.front().node; });
}

void answer_about_device_pointers(const mpi::MpiPlugin& calls) {
  const mpi::DevicePointers pointers = mpi::device_pointers_of(calls.where());
  log::warning(
      "HOROVOD_MPI_GPU_POINTERS=1 has no effect: " + calls.version() +
      (pointers.are_taken ? " takes" : " does not take") + " pointers to memory of GPUs (" + pointers.why +
      "), and this version of Horovod gives MPI none; tensors of GPUs go to MPI through page-locked host memory "
      "(docs/mpi.md)");
}

// Returns the text for MpiCard::addresses.
std::string addresses_to_choose_from(const Environment& environment) {
  if (mpi::is_told_its_interfaces(environment)) return "";
  auto interfaces = posix::interfaces();
  if (!interfaces || !posix::fabric_devices().empty()) return "";
  std::string text;
  for (const posix::Interface& interface : *interfaces)
    for (const posix::InterfaceAddress& entry : interface.addresses)
      if (interface.is_running && !interface.is_loopback && !entry.address.is_link_local())
        text += (text.empty() ? "" : " ") + entry.address.host() + "/" + interface.name;
  return text;
}

// This rank's part in the agreement on MPI.
class Mine {
 public:
  Mine(const MpiPeers::Request& request, bootstrap::Bootstrap& bootstrap, Deadline deadline)
      : request_(request), bootstrap_(bootstrap), deadline_(deadline), base_(request.base) {}

  // Returns this rank's card before any MPI is started.
  MpiCard look() {
    MpiCard card;
    card.wanted = !request_.config->mpi.empty();
    auto process = mpi::Process::open(*request_.environment, *request_.config);
    if (!process) {
      card.refusal = process.error().message;
      return card;
    }
    process_ = *process;
    card.version = process_->calls().version() + " (" + process_->calls().abi + ")";
    card.over_bridge = !process_->is_running() && process_->lacks_pmi_server(*request_.environment);
    if (card.over_bridge) card.space = bootstrap::PmiBridge::new_space();
    if (process_->is_running()) return started(std::move(card));
    if (!card.wanted) card.addresses = addresses_to_choose_from(*request_.environment);
    return card;
  }

  MpiCard start(MpiCard card, const std::string& space) {
    if (card.running) return card;
    const World& world = *request_.world;
    if (leaves_by_itself(card)) process_->skip_finalize();
    if (!card.over_bridge) return started(std::move(card));
    std::vector<std::string> nodes;
    for (const Member& member : world.members) nodes.push_back(member.node);
    Status status = bootstrap::start_over_bridge(*process_, bootstrap_, {world.rank, world.size(), world.job}, space,
                                                 nodes, *request_.environment, *request_.config);
    if (!status) card.refusal = status.error().message;
    return status ? started(std::move(card)) : card;
  }

  // Returns the cards of all ranks, ordered by rank.
  Result<std::vector<MpiCard>> exchange(const MpiCard& card, const char* round) {
    const World& world = *request_.world;
    std::string key = "hvd.mpi." + std::to_string(world.epoch) + round;
    auto told = bootstrap::exchange(bootstrap_, {world.rank, world.size(), world.job}, key, card.encode(), deadline_);
    if (!told) return std::move(told.error());
    std::vector<MpiCard> cards;
    for (int rank = 0; rank < world.size(); ++rank) {
      auto read = MpiCard::decode(told->of(Rank{rank}));
      if (!read) return std::move(read.error());
      cards.push_back(std::move(*read));
    }
    return cards;
  }

  mpi::Process& process() { return *process_; }
  std::shared_ptr<mpi::Communicator>& base() { return base_; }

 private:
  // Between nodes, MPICH 4's MPI_Finalize hangs in every other job of UCX over TCP if the ranks do not call it at the
  // same time: the first rank waits in PMI's barrier and does not answer ranks that still close their connections to
  // it. If the library's requests to the launcher pass through this process, they are ended in order without
  // MPI_Finalize. (MPICH 5 does not hang, but without MPI_Finalize it would leave its shared memory behind.)
  bool leaves_by_itself(const MpiCard& card) const {
    std::string version = process_->calls().version();
    std::size_t digit = version.find_first_of("0123456789");
    bool is_mpich_4 = version.starts_with("MPICH") && digit != std::string::npos && version[digit] == '4';
    if (!is_mpich_4 || is_on_one_node(*request_.world)) return false;
    bool has_doorway = std::string_view(bootstrap_.name()) == "pmi" && request_.environment->has("PMI_FD");
    return card.over_bridge || has_doorway;
  }
  // Checks the thread level of an MPI that runs already.
  MpiCard started(MpiCard card) {
    Status status = process_->start(*request_.environment, *request_.config);
    card.running = process_->is_running();
    if (status && base_ == nullptr) {
      auto world = process_->calls().world();
      if (world) base_ = std::move(*world);
      else status = std::move(world.error());
    }
    if (!status) {
      card.refusal = status.error().message;
      return card;
    }
    card.rank = base_->rank();
    card.size = base_->size();
    return card;
  }

  const MpiPeers::Request& request_;
  bootstrap::Bootstrap& bootstrap_;
  const Deadline deadline_;
  mpi::Process* process_ = nullptr;
  std::shared_ptr<mpi::Communicator> base_;
};

Error refuse(const World& world, std::size_t rank, const std::string& why) {
  return {ErrorCode::unsupported, describe(world, Rank{static_cast<std::int32_t>(rank)}) + ": " + why};
}

// An interface may have the same address on several hosts (a bridge of containers). It then leads to no other host. MPI
// libraries use it nevertheless, and then end the job or wait forever. A program that did not ask for MPI must not
// suffer that.
Status check_addresses(const World& world, const std::vector<MpiCard>& cards) {
  std::map<std::string, std::size_t> owners;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    std::istringstream entries(cards[rank].addresses);
    for (std::string entry; entries >> entry;) {
      std::size_t slash = std::min(entry.find('/'), entry.size());
      std::size_t owner = owners.emplace(entry.substr(0, slash), rank).first->second;
      if (world.members[owner].node == world.members[rank].node) continue;
      return refuse(world, rank,
                    "it and the host of rank " + std::to_string(owner) + " both have the address " +
                        entry.substr(0, slash) + " (" + entry.substr(std::min(slash + 1, entry.size())) +
                        "), which MPI may take for the way between them, so that it was not started: name the right "
                        "interface (UCX_NET_DEVICES=eth0, OMPI_MCA_btl_tcp_if_include=eth0) or insist "
                        "(HOROVOD_MPI=mpich, openmpi or abi)");
    }
  }
  return {};
}

// Checks that all ranks can start MPI in the same way. Otherwise MPI_Init would wait for ranks that do not call it.
Status check_alike(const World& world, const std::vector<MpiCard>& cards) {
  for (std::size_t rank = 0; rank < cards.size(); ++rank)
    if (!cards[rank].refusal.empty()) return refuse(world, rank, cards[rank].refusal);
  for (std::size_t rank = 1; rank < cards.size(); ++rank) {
    if (cards[rank].version != cards[0].version)
      return refuse(world, rank,
                    "its MPI is " + cards[rank].version + ", that of rank 0 is " + cards[0].version +
                        ": all ranks must load the same");
    if (cards[rank].running != cards[0].running)
      return refuse(world, rank,
                    std::string("its program has ") + (cards[rank].running ? "" : "not ") +
                        "initialised MPI, that of rank 0 has" + (cards[0].running ? "" : " not") +
                        ": do it on all ranks or on none");
    if (cards[rank].over_bridge != cards[0].over_bridge)
      return refuse(world, rank, "it finds another PMI server than rank 0");
  }
  return check_addresses(world, cards);
}

}  // namespace

bootstrap::Card MpiCard::encode() const {
  Buffer numbers;
  ByteWriter out(numbers);
  out.put(static_cast<std::int32_t>(rank));
  out.put(static_cast<std::int32_t>(size));
  out.put(static_cast<std::uint8_t>(running));
  out.put(static_cast<std::uint8_t>(over_bridge));
  out.put(static_cast<std::uint8_t>(wanted));
  return {refusal, version, space, addresses, to_string(numbers)};
}

Result<MpiCard> MpiCard::decode(const bootstrap::CardView& from) {
  MpiCard card;
  if (from.is_whole && from.texts.size() == 5) {
    card.refusal = from.texts[0];
    card.version = from.texts[1];
    card.space = from.texts[2];
    card.addresses = from.texts[3];
    ByteReader in(as_bytes(from.texts[4]));
    card.rank = in.get<std::int32_t>();
    card.size = in.get<std::int32_t>();
    card.running = in.get<std::uint8_t>() != 0;
    card.over_bridge = in.get<std::uint8_t>() != 0;
    card.wanted = in.get<std::uint8_t>() != 0;
    if (in.ok() && in.at_end()) return card;
  }
  return Error(ErrorCode::mismatch, "what a rank told about its MPI came damaged");
}

Result<std::vector<int>> match_ranks(const World& world, const std::vector<MpiCard>& cards) {
  HVD_RETURN_IF_ERROR(check_alike(world, cards));
  std::vector<int> ranks;
  std::vector<bool> taken(cards.size(), false);
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const MpiCard& card = cards[rank];
    if (card.size != world.size())
      return refuse(world, rank,
                    "its MPI knows " + std::to_string(card.size) + " of the job's " + std::to_string(world.size()) +
                        " processes" + (card.size == 1 ? ": the launcher does not speak with " + card.version : ""));
    auto place = static_cast<std::size_t>(card.rank);
    if (place >= taken.size() || taken[place])
      return refuse(world, rank,
                    "its MPI calls it " + std::to_string(card.rank) +
                        " as it calls another rank: the job has several "
                        "MPI worlds");
    taken[place] = true;
    ranks.push_back(card.rank);
  }
  return ranks;
}

bool MpiPeers::is_wanted(const World& world, const Config& config, bool has_base) {
  if (world.size() == 1) return false;
  MpiUse use = mpi_use(config);
  bool never = use.when == MpiUse::When::never;
  if (!never && (use.when == MpiUse::When::always || has_base || !is_on_one_node(world))) return true;
  if (world.rank == Rank{0})
    log::info("the ranks communicate without MPI: " + (never ? use.why : "they are all on one node"));
  return false;
}

Result<std::shared_ptr<MpiPeers>> MpiPeers::meet(const Request& request, bootstrap::Bootstrap& bootstrap,
                                                 Deadline deadline) {
  const World& world = *request.world;
  Mine mine(request, bootstrap, deadline);
  MpiCard card = mine.look();
  auto cards = mine.exchange(card, "");
  if (!cards) return std::move(cards.error());
  bool is_demanded = std::any_of(cards->begin(), cards->end(), [](const MpiCard& it) { return it.wanted; });
  if (!cards->front().running && check_alike(world, *cards)) {
    cards = mine.exchange(mine.start(std::move(card), cards->front().space), ".started");
    if (!cards) return std::move(cards.error());
  }
  auto ranks = match_ranks(world, *cards);
  if (ranks && world.rank == Rank{0} && request.config->mpi_gpu_pointers)
    answer_about_device_pointers(mine.process().calls());
  if (ranks)
    return std::make_shared<MpiPeers>(mine.process().calls(), std::move(mine.base()), std::move(*ranks), is_demanded);
  if (is_demanded) {
    ranks.error().message = "HOROVOD_MPI asks for MPI, but it cannot be used: " + ranks.error().message;
    return std::move(ranks.error());
  }
  // If no rank had started an MPI, a note is enough. If one was running or the libraries differ, there is a warning.
  bool is_missed = std::any_of(cards->begin(), cards->end(),
                               [&](const MpiCard& it) { return it.running || it.version != cards->front().version; });
  std::string told = "the ranks communicate without MPI: " + ranks.error().message;
  if (world.rank == Rank{0}) is_missed ? log::warning(told) : log::info(told);
  return std::shared_ptr<MpiPeers>();
}

Result<std::unique_ptr<mpi::Communicator>> MpiPeers::connect(const Group& group, std::string_view name) const {
  std::vector<int> members;
  for (Rank rank : group.ranks) members.push_back(mpi_ranks_.at(static_cast<std::size_t>(rank.value)));
  // The number is computed from the name. Groups of one name do not overlap. The program may make its own groups at the
  // same time, so a small number could collide with one of theirs.
  std::uint32_t mixed = 2166136261u;
  for (char letter : name) mixed = (mixed ^ static_cast<unsigned char>(letter)) * 16777619u;
  return base_->subgroup(members, static_cast<int>(mixed & 0x7fff));
}

}  // namespace hvd::connections
