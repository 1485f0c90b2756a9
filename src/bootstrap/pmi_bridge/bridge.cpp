#include "bootstrap/pmi_bridge/bridge.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/log.hpp"
#include "base/text/number.hpp"
#include "bootstrap/meeting/exchange.hpp"
#include "bootstrap/pmi/connection.hpp"
#include "native/mpi/process.hpp"
#include "native/posix/files/random.hpp"
#include "native/posix/machine/host_identity.hpp"
#include "native/posix/processes/thread.hpp"

namespace hvd::bootstrap {
namespace {

using pmi::value_in;

// MPICH 4.0's client has lines of 1024 bytes in all, and crashes on values that are longer than this limit. The client
// cuts the values that it puts itself.
constexpr std::size_t longest_name = 64;
constexpr std::size_t longest_value = 1024 - 2 * longest_name - 30;
// The longest time for the barrier of MPI_Finalize. While one rank waits in the barrier, the MPI_Finalize of another
// rank may wait for an answer from the first rank's endpoints, which do not answer then (MPICH 4 over UCX and TCP).
// When the first rank goes on after this time, so does the other.
constexpr std::chrono::milliseconds leave_time{3000};

// Makes the key of the values that one program puts before a barrier. The key contains the program's space, because the
// rank's next program begins with barrier 0 again.
std::string key_of(const std::string& space, std::uint32_t barrier) {
  return "pmi." + space + "." + std::to_string(barrier);
}

// Returns the rank that a key ends with, as in "-allgather-shm-1-3-seg-1/2"; -1 if the key ends with no rank.
int rank_in(std::string_view key) {
  if (auto segment = key.find("-seg-"); segment != std::string_view::npos) key = key.substr(0, segment);
  std::size_t begin = key.find_last_not_of("0123456789");
  std::string_view digits = key.substr(begin == std::string_view::npos ? 0 : begin + 1);
  return number_in<int>(digits).value_or(-1);
}

// Numbers the nodes in the order in which the ranks mention them.
std::vector<int> number(const std::vector<std::string>& nodes) {
  std::map<std::string_view, int> numbers;
  std::vector<int> node_of;
  for (const std::string& node : nodes)
    node_of.push_back(numbers.emplace(node, static_cast<int>(numbers.size())).first->second);
  return node_of;
}

struct Block {
  int first, nodes, processes;
  bool operator==(const Block&) const = default;
};

}  // namespace

std::optional<std::string> process_mapping(const std::vector<int>& node_of, std::size_t longest) {
  // A block is a run of consecutive nodes that have the same number of consecutive ranks each.
  std::vector<Block> blocks;
  for (std::size_t at = 0; at < node_of.size();) {
    std::size_t end = at;
    while (end < node_of.size() && node_of[end] == node_of[at]) ++end;
    Block run{node_of[at], 1, static_cast<int>(end - at)};
    bool goes_on = !blocks.empty() && blocks.back().processes == run.processes &&
                   blocks.back().first + blocks.back().nodes == run.first;
    if (goes_on) ++blocks.back().nodes;
    else blocks.push_back(run);
    at = end;
  }
  auto text_of = [&] {
    std::string text = "(vector";
    for (const Block& block : blocks)
      text += ",(" + std::to_string(block.first) + "," + std::to_string(block.nodes) + "," +
              std::to_string(block.processes) + ")";
    return text + ")";
  };
  if (std::string text = text_of(); text.size() <= longest) return text;
  // The reader of the list starts again at its end, so one period of a repeating list is enough.
  for (std::size_t period = 1; period < blocks.size(); ++period) {
    bool repeats = blocks.size() % period == 0;
    for (std::size_t i = period; repeats && i < blocks.size(); ++i) repeats = blocks[i] == blocks[i - period];
    if (repeats) blocks.resize(period);
  }
  if (std::string text = text_of(); text.size() <= longest) return text;
  return std::nullopt;
}

std::string PmiBridge::new_space() {
  return "kvs_" + posix::random_hex(8) + "_" + std::to_string(::getpid());
}

Result<std::unique_ptr<PmiBridge>> PmiBridge::open(Bootstrap& bootstrap, const Identity& identity, std::string space,
                                                   const std::vector<std::string>& nodes,
                                                   std::chrono::milliseconds patience) {
  std::unique_ptr<PmiBridge> bridge(new PmiBridge(bootstrap, identity, patience));
  bridge->space_ = std::move(space);
  bridge->mapping_ = process_mapping(number(nodes), longest_value).value_or("");
  bridge->fetched_.resize(static_cast<std::size_t>(identity.size), 0);
  HVD_RETURN_IF_ERROR(bridge->start());
  return bridge;
}

Result<std::unique_ptr<PmiBridge>> PmiBridge::open(Bootstrap& bootstrap, const Identity& identity,
                                                   std::chrono::milliseconds patience) {
  auto cards = exchange(bootstrap, identity, "pmi.node", {new_space(), posix::node_id()}, Deadline::after(patience));
  if (!cards) return std::move(cards.error());
  std::string space;
  std::vector<std::string> nodes;
  for (int rank = 0; rank < identity.size; ++rank) {
    const CardView& card = cards->of(Rank{rank});
    if (card.texts.size() != 2)
      return Error(ErrorCode::mismatch, "the PMI bridge of rank " + std::to_string(rank) + " is of another version");
    if (rank == 0) space = card.texts[0];
    nodes.emplace_back(card.texts[1]);
  }
  return open(bootstrap, identity, space, nodes, patience);
}

Status PmiBridge::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return system_error("the socket pair between the MPI library and its PMI server", errno);
  our_end_ = posix::FileDescriptor(ends[0]);
  library_end_ = ends[1];
  auto thread = posix::start_thread("hvd-pmi", [this] { serve(); });
  if (!thread) return std::move(thread.error());
  thread_ = std::move(*thread);
  return {};
}

PmiBridge::~PmiBridge() {
  // The bridge closes only its own end; the MPI library closes the other one.
  if (our_end_) ::shutdown(our_end_.get(), SHUT_RDWR);
  if (thread_.joinable()) thread_.join();
}

void PmiBridge::serve() {
  std::string unread;
  for (char chunk[4096];;) {
    ssize_t count = ::read(our_end_.get(), chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    unread.append(chunk, static_cast<std::size_t>(count));
    for (std::size_t end; (end = unread.find('\n')) != std::string::npos; unread.erase(0, end + 1)) {
      std::string said = answer(std::string_view(unread).substr(0, end));
      log::trace("pmi bridge: " + unread.substr(0, end) + " -> " + said);
      if (said.empty()) continue;
      said += '\n';
      for (std::size_t at = 0; at < said.size();) {
        ssize_t sent = ::send(our_end_.get(), said.data() + at, said.size() - at, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return;
        at += static_cast<std::size_t>(sent);
      }
    }
  }
}

std::string PmiBridge::answer(std::string_view request) {
  std::string_view command = value_in(request, "cmd");
  if (command == "init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
  if (command == "get_maxes")
    return "cmd=maxes kvsname_max=" + std::to_string(longest_name) + " keylen_max=" + std::to_string(longest_name) +
           " vallen_max=1024";
  if (command == "get_appnum") return "cmd=appnum appnum=0";
  if (command == "get_my_kvsname") return std::string("cmd=my_kvsname kvsname=") + space_;
  if (command == "get_universe_size") return "cmd=universe_size size=" + std::to_string(identity_.size);
  if (command == "put") return put(request);
  if (command == "barrier_in") return barrier();
  if (command == "get") return get(value_in(request, "key"));
  if (command == "finalize") return "cmd=finalize_ack";
  if (command == "abort") {
    bootstrap_.abort("MPI_Abort was called with exit code " + std::string(value_in(request, "exitcode")));
    return "";
  }
  for (std::string_view name : {"publish_name", "unpublish_name", "lookup_name"})
    if (command == name)
      return "cmd=" + std::string(name.substr(0, name.find('_'))) + "_result rc=-1 msg=names_cannot_be_published";
  if (command == "spawn" || command == "mcmd") return "cmd=spawn_result rc=-1 msg=processes_cannot_be_spawned";
  return "cmd=" + std::string(command) + "_result rc=-1 msg=unknown_command";
}

std::string PmiBridge::put(std::string_view request) {
  std::string key(value_in(request, "key")), value(value_in(request, "value"));
  if (key.empty()) return "cmd=put_result rc=-1 msg=no_key";
  ByteWriter out(unsent_);
  out.put_string(key);
  out.put_string(value);
  values_[std::move(key)] = std::move(value);
  return "cmd=put_result rc=0 msg=success";
}

std::string PmiBridge::barrier() {
  // A byte is added because some servers cannot keep a value of no bytes.
  unsent_.push_back(std::byte{0});
  Status status = bootstrap_.put(key_of(space_, barriers_), unsent_);
  unsent_.clear();
  bool is_leave = mpi::is_one_running();
  if (status) status = bootstrap_.fence(Deadline::after(is_leave ? std::min(patience_, leave_time) : patience_));
  if (!status && is_leave) {
    log::debug("MPI_Finalize goes on, though not all ranks came to it: " + status.error().message);
  } else if (!status) {
    log::error("MPI's start failed, since not all ranks took part: " + status.error().message);
    return "cmd=barrier_out rc=-1 msg=failed";
  }
  ++barriers_;
  fetched_[static_cast<std::size_t>(identity_.rank.value)] = barriers_;
  return "cmd=barrier_out rc=0";
}

std::string PmiBridge::get(std::string_view key) {
  if (key == "PMI_process_mapping" && !mapping_.empty()) return "cmd=get_result rc=0 msg=success value=" + mapping_;
  const std::string* value = find(key);
  int likely = rank_in(key);
  if (value == nullptr && likely >= 0 && likely < identity_.size && fetch(likely)) value = find(key);
  // Keys with the library's own prefixes (PMI_…, pmix.) are questions to the server. Every other key was put by some
  // rank.
  bool is_question = key.starts_with("PMI_") || key.starts_with("pmix.");
  for (int rank = 0; value == nullptr && !is_question && rank < identity_.size; ++rank)
    if (fetch(rank)) value = find(key);
  if (value == nullptr) return "cmd=get_result rc=-1 msg=key_" + std::string(key) + "_not_found value=unknown";
  return "cmd=get_result rc=0 msg=success value=" + *value;
}

Status PmiBridge::fetch(int rank) {
  std::uint32_t& fetched = fetched_[static_cast<std::size_t>(rank)];
  for (; fetched < barriers_; ++fetched) {
    auto bytes = bootstrap_.get(Rank{rank}, key_of(space_, fetched), Deadline::after(patience_));
    if (!bytes) return std::move(bytes.error());
    ByteReader in(ConstBytes(*bytes).first(bytes->empty() ? 0 : bytes->size() - 1));
    while (in.ok() && !in.at_end()) {
      std::string key(in.get_string());
      values_[std::move(key)] = in.get_string();
    }
  }
  return {};
}

const std::string* PmiBridge::find(std::string_view key) const {
  auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

}  // namespace hvd::bootstrap
