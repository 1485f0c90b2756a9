#include "launcher/staging/stager.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/settings/config.hpp"
#include "base/text/number.hpp"
#include "bootstrap/meeting/exchange.hpp"
#include "bootstrap/selection/selection.hpp"
#include "launcher/staging/chain.hpp"
#include "launcher/staging/environments.hpp"
#include "launcher/staging/unpacker.hpp"
#include "native/posix/files/random.hpp"
#include "native/posix/machine/host_identity.hpp"

namespace hvd::launcher::staging {
namespace {

constexpr std::string_view line_begin = "horovod-staged:";
constexpr std::size_t digest_letters = 32;
constexpr std::chrono::seconds time_to_be_ended{20};
constexpr std::chrono::hours longest_staging{7 * 24};  // practically no limit: the user or the scheduler ends a run
                                                       // that hangs

// The archive as rank 0 describes it in its card.
struct Archive {
  ArchiveState state;
  std::string packing;
  std::string digest;  // empty if it is not known before the archive was read
};

struct Node {
  std::string host, endpoints;
  int rank = 0;  // the rank of the first stager on the node
};

Result<posix::FileDescriptor> opened(const std::string& path) {
  posix::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return system_error("the archive cannot be read", errno);
  return file;
}

Result<std::string> packing_of_file(const std::string& path) {
  auto file = opened(path);
  if (!file) return file.error();
  std::string begin(packing_bytes, '\0');
  ssize_t count = ::read(file->get(), begin.data(), begin.size());
  if (count < 0) return system_error("the archive cannot be read", errno);
  begin.resize(static_cast<std::size_t>(count));
  return packing_of(begin);
}

class Stager {
 public:
  Stager(Config config, std::string job, std::string path, Environments environments)
      : config_(std::move(config)),
        job_(std::move(job)),
        path_(std::move(path)),
        environments_(std::move(environments)) {}

  Status run(const Environment& environment) {
    std::vector<bootstrap::Notice> notices;
    auto chosen = bootstrap::choose(environment, config_, notices);
    if (!chosen) return chosen.error();
    chosen_ = std::move(*chosen);
    HVD_RETURN_IF_ERROR(meet());
    if (me_ >= 0 && !archive_.digest.empty()) kept_ = environments_.use(archive_.digest);
    HVD_RETURN_IF_ERROR(compare());
    const bool is_in_chain = std::ranges::find(chain_, me_) != chain_.end();
    if (chain_has_work_ && is_in_chain) HVD_RETURN_IF_ERROR(take_part());
    auto all = exchange("staged", {archive_.digest}, Deadline::after(longest_staging));
    if (!all) return all.error();
    if (me_ >= 0) {
      const std::string digest(all->of(Rank{0}).texts[0]);
      environments_.note_use(digest, job_);
      environments_.remove_old(digest);
    }
    if (rank() == 0)
      std::printf("%s %s %zu %zu\n", std::string(line_begin).c_str(), archive_.digest.c_str(), nodes_.size(), lacking_);
    return {};
  }

 private:
  int rank() const { return chosen_.identity.rank.value; }

  Result<bootstrap::Cards> exchange(const char* key, const bootstrap::Card& card, Deadline deadline) {
    return bootstrap::exchange(*chosen_.bootstrap, chosen_.identity, key, card, deadline);
  }

  Status meet() {
    if (rank() == 0) {
      auto state = ArchiveState::of(path_);
      if (!state) return state.error();
      auto packing = packing_of_file(path_);
      if (!packing) return packing.error();
      archive_ = {*state, *packing, environments_.digest_of(*state)};
    }
    if (chosen_.identity.size > 1) {
      auto sockets = posix::listen_for_peers(config_.network_interfaces, config_.port_range);
      if (sockets) sockets_ = std::move(*sockets);
      else if (!config_.network_interfaces.empty()) return sockets.error();
    }
    const std::string own_node = posix::node_id();
    bootstrap::Card card = {posix::host_name(), own_node, sockets_.endpoints};
    if (rank() == 0)
      for (const std::string& text : {posix::random_hex(secret_bytes / 2), archive_.packing, archive_.digest,
                                      std::to_string(archive_.state.bytes), archive_.state.state})
        card.push_back(text);
    auto cards = exchange("stagers", card, deadline_);
    if (!cards) return cards.error();
    std::vector<std::string> ids;
    for (int each = 0; each < cards->size(); ++each) {
      const auto& texts = cards->of(Rank{each}).texts;
      if (texts.size() < (each == 0 ? 8u : 3u))
        return Error(ErrorCode::mismatch, "a horovodrun of another release is among the ranks");
      const std::string id(texts[1]);
      if (std::ranges::find(ids, id) != ids.end()) continue;
      if (each == rank()) me_ = static_cast<int>(ids.size());
      ids.push_back(id);
      nodes_.push_back({std::string(texts[0]), std::string(texts[2]), each});
    }
    const auto& first = cards->of(Rank{0}).texts;
    secret_ = first[3];
    archive_ = {{path_, number_in<std::uint64_t>(first[6]).value_or(0), std::string(first[7])},
                std::string(first[4]),
                std::string(first[5])};
    return {};
  }

  // Returns the nodes that do not have the environment.
  Status compare() {
    auto cards = exchange("who lacks it", {kept_ || me_ < 0 ? "" : "lacks"}, deadline_);
    if (!cards) return cards.error();
    for (std::size_t at = 0; at < nodes_.size(); ++at) {
      const auto& texts = cards->of(Rank{nodes_[at].rank}).texts;
      const bool lacks = !texts.empty() && texts[0] == "lacks";
      lacking_ += lacks;
      if (at == 0 || lacks) chain_.push_back(static_cast<int>(at));
    }
    chain_has_work_ = lacking_ > 0;
    return {};
  }

  Status take_part() {
    auto here = std::ranges::find(chain_, me_);
    std::optional<Neighbour> before, next;
    if (here + 1 != chain_.end()) {
      const Node& node = nodes_[static_cast<std::size_t>(*(here + 1))];
      auto dialled = Neighbour::dial(node.host, node.endpoints, sockets_.addresses, secret_, deadline_);
      if (!dialled) return dialled.error();
      next.emplace(std::move(*dialled));
    }
    if (here != chain_.begin()) {
      const Node& node = nodes_[static_cast<std::size_t>(*(here - 1))];
      auto came = Neighbour::wait_for(node.host, sockets_, secret_, deadline_);
      if (!came) return came.error();
      before.emplace(std::move(*came));
    }
    std::optional<Unpacking> unpacking;
    if (!kept_) {
      environments_.remove_old(archive_.digest);
      auto begun = environments_.begin();
      if (!begun) return begun.error();
      unpacking = std::move(*begun);
    }
    Status done = unpacking ? unpack(*unpacking, before, next) : pass_on(nullptr, before, next);
    if (done && unpacking) done = publish(std::move(*unpacking));
    else if (unpacking) remove_tree(unpacking->folder);
    // If the archive has a fault, the node that reads it finds the same fault. This node's error is marked as a
    // consequence, so that the reading node is named.
    if (!done && before && done.error().code == ErrorCode::invalid_argument) done.error().is_a_consequence = true;
    return done;
  }

  Status unpack(const Unpacking& unpacking, std::optional<Neighbour>& before, std::optional<Neighbour>& next) {
    auto unpacker = Unpacker::start({unpacking.content, archive_.packing, environments_.free_bytes()});
    if (!unpacker) return unpacker.error();
    HVD_RETURN_IF_ERROR(pass_on(unpacker->get(), before, next));
    return (*unpacker)->finish();
  }

  Status publish(Unpacking unpacking) {
    const std::string folder = unpacking.folder;
    auto kept = environments_.publish(std::move(unpacking), archive_.digest, archive_.state, job_);
    if (!kept) {
      remove_tree(folder);
      return kept.error();
    }
    kept_ = std::move(*kept);
    return {};
  }

  Status pass_on(Unpacker* unpacker, std::optional<Neighbour>& before, std::optional<Neighbour>& next) {
    Digest digest{};
    if (!before) {
      HVD_RETURN_IF_ERROR(read(unpacker, next, digest));
    } else {
      for (;;) {
        auto block = before->receive(digest);
        if (!block) return block.error();
        if (block->empty()) break;
        if (next) HVD_RETURN_IF_ERROR(next->send(*block));
        if (unpacker != nullptr) HVD_RETURN_IF_ERROR(unpacker->add(*block));
      }
    }
    archive_.digest = hexadecimal(digest).substr(0, digest_letters);
    if (next) return next->send_end(digest);
    return {};
  }

  // Reads the archive once, from its beginning to its end.
  Status read(Unpacker* unpacker, std::optional<Neighbour>& next, Digest& digest) {
    auto file = opened(path_);
    if (!file) return file.error();
    ::posix_fadvise(file->get(), 0, 0, POSIX_FADV_SEQUENTIAL);
    Sha256 sum;
    Buffer block(block_bytes);
    for (;;) {
      ssize_t count = ::read(file->get(), block.data(), block.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return system_error("the archive cannot be read", errno);
      if (count == 0) break;
      ConstBytes bytes = ConstBytes(block).first(static_cast<std::size_t>(count));
      if (next) HVD_RETURN_IF_ERROR(next->send(bytes));
      if (unpacker != nullptr) HVD_RETURN_IF_ERROR(unpacker->add(bytes));
      sum.add(bytes);
    }
    digest = sum.finish();
    auto now = ArchiveState::of(path_);
    if (now && now->state == archive_.state.state) return {};
    return Error(ErrorCode::invalid_argument, "the archive was changed while it was read");
  }

  Config config_;
  std::string job_, path_, secret_;
  Environments environments_;
  bootstrap::Chosen chosen_;
  Archive archive_;
  posix::PeerSockets sockets_;
  std::vector<Node> nodes_;
  std::vector<int> chain_;  // the nodes of the chain, as positions in nodes_
  int me_ = -1;             // position of this node in nodes_; -1: this stager is not the first one on its node
  std::size_t lacking_ = 0;
  bool chain_has_work_ = false;
  std::optional<Kept> kept_;  // holds the lock, so nobody removes the environment while the stagers run
  Deadline deadline_ = Deadline::after(milliseconds_of(config_.start_timeout_s));
};

int complain(const Error& error, const std::string& path) {
  // A stager whose failure is only a consequence waits. The stager that knows the cause ends first, and the launcher
  // then ends the others.
  if (error.is_a_consequence) ::poll(nullptr, 0, static_cast<int>(milliseconds_of(time_to_be_ended.count()).count()));
  std::fprintf(stderr, "horovodrun: %s: %s is not staged: %s\n", posix::host_name().c_str(), path.c_str(),
               error.message.c_str());
  return 1;
}

}  // namespace

int run_stager(char** arguments) {
  ::signal(SIGPIPE, SIG_IGN);
  const Environment environment = Environment::of_this_process();
  const std::string job = arguments[1], path = arguments[2];
  auto environments = Environments::in(std::string_view(arguments[3]) == "-" ? "" : arguments[3],
                                       environment.get("TMPDIR").value_or("/tmp"));
  if (!environments) return complain(environments.error(), path);
  if (std::string_view(arguments[0]) == to_remove) return environments->remove(path, job), 0;
  std::vector<std::string> warnings;  // the ranks print these warnings later
  auto config = Config::from(environment, warnings);
  if (!config) return complain(config.error(), path);
  Status done = Stager(std::move(*config), job, path, std::move(*environments)).run(environment);
  return done ? 0 : complain(done.error(), path);
}

std::optional<Staged> staged_in(std::string_view line) {
  std::size_t at = line.find(line_begin);
  if (at == std::string_view::npos) return std::nullopt;
  line.remove_prefix(at + line_begin.size());
  Staged staged;
  char digest[digest_letters + 1] = {};
  if (std::sscanf(std::string(line).c_str(), "%32s %d %d", digest, &staged.nodes, &staged.new_nodes) != 3)
    return std::nullopt;
  staged.digest = digest;
  return staged;
}

}  // namespace hvd::launcher::staging
