// The bootstrap of the ranks of a Slurm step without a PMI server (srun --mpi=none, cray_shasta). Slurm's variables
// tell this process its rank and the number of ranks. A folder on a file system that all nodes see carries the values.
//
// The first rank of each node acts for all ranks of the node (meeting/node_circle.hpp); rank 0 is one of them.
// The folder (mode 0700) has a name that belongs to one step and one meeting. In the folder:
//  1. At exchange k every first rank writes the cards of its node into `in/k.rank`. It writes a file with another name
//     first and then renames it.
//  2. Rank 0 waits for the cards of all ranks and writes their table into `out/k`. The other first ranks wait for this
//     file. So a job of n nodes costs n small files, and only rank 0 lists them. The others list `out`, which never has
//     more than one or two files. Listing matters: without it, network file systems may repeat "not there" from their
//     cache for a long time.
//  3. At exchange k+1 every first rank has read `out/k`, and rank 0 removes it.
//  4. A rank that has met the others, or has given up, removes what it wrote into `in`. If it can then remove `in`, it
//     was the last one, and removes the whole folder, long before the job ends. If rank 0 has given up, it removes the
//     folder without waiting for the last one.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/text/comma_list.hpp"
#include "base/text/number.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/launch/launch.hpp"
#include "bootstrap/meeting/exchange.hpp"
#include "bootstrap/meeting/node_circle.hpp"
#include "bootstrap/slurm/files.hpp"
#include "schedulers/slurm/components.hpp"

namespace hvd::bootstrap {
namespace {

constexpr auto shortest_pause = std::chrono::milliseconds(1);
constexpr auto longest_pause = std::chrono::milliseconds(50);
// The pauses grow with the number of ranks; many ranks would otherwise put much load on the file system.
constexpr auto longest_pause_per_rank = std::chrono::microseconds(50);

// The number of meetings that this process has had; it is equal on all ranks. It counts for the process and not for one
// bootstrap, because the folder of an earlier bootstrap may still exist.
std::atomic<int> meetings{0};

class Slurm final : public Bootstrap {
 public:
  const char* name() const override { return "slurm"; }

  bool detected(const Environment& environment) const override {
    auto launch = innermost_launch(environment);
    return launch && launch->launcher == Launcher::slurm && launch->size > 1;
  }

  Result<Identity> join(const Environment& environment, const Config& config) override {
    auto launch = innermost_launch(environment);
    if (!launch || launch->launcher != Launcher::slurm)
      return Error(ErrorCode::unsupported, "this process is no task of a Slurm step (SLURM_STEP_ID, SLURM_PROCID)");
    if (launch->size < 1 || launch->rank < 0 || launch->rank >= launch->size)
      return Error(ErrorCode::invalid_argument, "SLURM_PROCID=" + environment.get("SLURM_PROCID").value_or("") +
                                                    " and " + launch->evidence +
                                                    ": expected a rank below the number of tasks");
    identity_ = Identity{Rank{launch->rank}, launch->size, step_of(environment)};
    if (identity_.size == 1) return identity_;
    node_ = ranks_of_node(environment, identity_.rank);
    HVD_RETURN_IF_ERROR(choose_place(environment, config));
    HVD_RETURN_IF_ERROR(make_folder());
    return identity_;
  }

  ~Slurm() override { tidy_up(); }

  Status put(std::string_view key, ConstBytes value) override {
    Buffer bytes(value.begin(), value.end());
    if (!values_.try_emplace({identity_.rank, std::string(key)}, bytes).second)
      return Error(ErrorCode::invalid_argument, "\"" + std::string(key) + "\" was put already; a key is used once");
    mine_.push_back(std::string(key));
    mine_.push_back(to_string(bytes));
    return {};
  }

  Result<Buffer> get(Rank from, std::string_view key, Deadline) override {
    auto found = values_.find({from, std::string(key)});
    if (found != values_.end()) return found->second;
    return Error(ErrorCode::invalid_argument,
                 "rank " + std::to_string(from.value) + " had not put \"" + std::string(key) + "\" before the fence");
  }

  Status fence(Deadline deadline) override {
    if (identity_.size == 1) return {};
    auto cards = meet(std::exchange(mine_, {}), deadline);
    if (!cards) return std::move(cards.error());
    for (int rank = 0; rank < identity_.size; ++rank) {
      const auto& texts = cards->of(Rank{rank}).texts;
      for (std::size_t at = 0; at + 1 < texts.size(); at += 2) {
        ConstBytes value = as_bytes(texts[at + 1]);
        values_.insert_or_assign({Rank{rank}, std::string(texts[at])}, Buffer(value.begin(), value.end()));
      }
    }
    return {};
  }

  std::optional<Result<Cards>> exchange(std::string_view, const Card& card, Deadline deadline) override {
    if (identity_.size == 1) return std::nullopt;
    return meet(card, deadline);
  }

  // srun has no request for an abort. It ends the step at the first bad exit code of a task.
  void abort(std::string_view) noexcept override {}

  void tidy_up() noexcept override {
    std::string folder = std::exchange(folder_, {});
    circle_.reset();
    exchanges_ = 0;
    if (folder.empty()) return;
    bool has_written = !written_.empty();
    for (const std::string& file : std::exchange(written_, {})) ::unlink(file.c_str());
    bool gave_up = !broken_.empty() && identity_.rank == Rank{0};
    if (gave_up) remove_files_of(folder + "/in");
    bool may_be_last = has_written || identity_.rank == Rank{0};
    bool is_last = may_be_last && ::rmdir((folder + "/in").c_str()) == 0;
    if (is_last || gave_up) remove_files_of(folder + "/out");
    ::rmdir((folder + "/out").c_str());
    ::rmdir(folder.c_str());
  }

 private:
  // The name is equal on all ranks of a step and different from the name of every other step. After Slurm's controller
  // lost its memory, another step may have the same number, so the name contains srun's port. In a heterogeneous step
  // each component has its own port, so the name does not contain it. In a heterogeneous job each component has its own
  // job number, so the number of the whole job is used.
  static std::string step_of(const Environment& environment) {
    auto whole = schedulers::heterogeneous_job_around(environment);
    std::string step = "slurm-" + (whole && whole->number ? std::to_string(*whole->number)
                                                          : environment.get("SLURM_JOB_ID").value_or("0"));
    for (const char* part : {"SLURM_STEP_ID", "SLURM_RESTART_COUNT"}) step += "-" + environment.get(part).value_or("0");
    return step + "-" + (whole ? "het" : environment.get("SLURM_SRUN_COMM_PORT").value_or("0"));
  }

  // Returns the ranks of this node as slurmd tells them; only this rank if slurmd tells none, or contradicts itself.
  static std::vector<int> ranks_of_node(const Environment& environment, Rank me) {
    std::vector<int> ranks;
    for (const std::string& item : items_of(environment.get("SLURM_GTIDS").value_or(""))) {
      auto rank = number_in<int>(item);
      if (!rank) return {me.value};
      ranks.push_back(*rank);
    }
    std::size_t place = static_cast<std::size_t>(environment.number("SLURM_LOCALID").value_or(0));
    bool is_clear = place < ranks.size() && ranks[place] == me.value && std::is_sorted(ranks.begin(), ranks.end());
    return is_clear ? ranks : std::vector<int>{me.value};
  }

  Status choose_place(const Environment& environment, const Config& config) {
    place_ = config.shared_dir;
    if (!place_.empty()) return {};
    std::error_code unknown;  // an absolute path, because a program may change its working directory between meetings
    place_ = std::filesystem::current_path(unknown).string();
    if (environment.number("SLURM_STEP_NUM_NODES").value_or(2) == 1) {
      if (::access(place_.c_str(), W_OK) != 0) place_ = "/tmp";
      return {};
    }
    if (!is_of_one_machine(place_)) return {};
    return Error(ErrorCode::unsupported,
                 "srun started no PMI server, and the working directory, through which the ranks could meet, is on a "
                 "file system of this machine alone");
  }

  // All ranks call this, also those that do not use the folder: thus every rank finds out whether the folder can be
  // used.
  Status make_folder() {
    broken_.clear();
    folder_ = place_ + "/.horovod-" + identity_.job + "-" + std::to_string(meetings++);
    struct stat status {};
    bool is_there = false;
    // Another rank that gave up may remove the folder between the two calls.
    for (int tries = 0; tries < 100 && !is_there; ++tries) {
      if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) {
        Error error = system_error("srun started no PMI server, and the folder " + folder_ +
                                       ", through which the ranks could meet, cannot be made",
                                   errno);
        error.code = ErrorCode::unsupported;
        folder_.clear();
        return error;
      }
      is_there = ::lstat(folder_.c_str(), &status) == 0;
    }
    if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0) {
      Error error(
          ErrorCode::invalid_argument,
          folder_ + " exists, but is no folder that belongs to this user alone (mode 0700): somebody else made it");
      folder_.clear();
      return error;
    }
    circle_.emplace(folder_ + " " + std::to_string(node_.front()), node_.front() == identity_.rank.value,
                    static_cast<int>(node_.size()) - 1);
    return {};
  }

  Result<Cards> meet(const Card& card, Deadline deadline) {
    if (!broken_.empty()) return Error(ErrorCode::peer_lost, broken_);
    if (folder_.empty()) HVD_RETURN_IF_ERROR(make_folder());
    std::string number = std::to_string(exchanges_++);
    auto ask = [&](const std::vector<BroughtCard>& cards) {
      return identity_.rank == Rank{0} ? collect(number, cards, deadline) : bring(number, cards, deadline);
    };
    auto table = circle_->table_of_all({identity_.rank, encode(card)}, number, deadline, ask);
    if (!table) broken_ = table.error().message;
    if (!table) return std::move(table.error());
    return Cards::decode(std::move(*table), identity_.size);
  }

  // For a first rank other than rank 0: writes the cards of its node and reads the table.
  Result<Buffer> bring(const std::string& number, const std::vector<BroughtCard>& cards, Deadline deadline) {
    Buffer content;
    ByteWriter out(content);
    for (const auto& [rank, card] : cards) {
      out.put(rank.value);
      out.put_string(to_string(card));
    }
    make_inner_folders();
    std::string name = number + "." + std::to_string(identity_.rank.value);
    HVD_RETURN_IF_ERROR(write_file(folder_ + "/in", name, content));
    written_.push_back(folder_ + "/in/" + name);
    auto has_come = [&](const std::set<std::string>& files) { return files.contains(number); };
    if (!wait_until("/out", deadline, has_come)) return late("Rank 0 did not come, or did not find all others");
    return read_file(folder_ + "/out/" + number);
  }

  // For rank 0: reads what the others wrote and writes the table.
  Result<Buffer> collect(const std::string& number, const std::vector<BroughtCard>& cards, Deadline deadline) {
    CardTable table(identity_.size);
    std::vector<bool> has(static_cast<std::size_t>(identity_.size), false);
    int missing = identity_.size;
    auto add = [&](Rank rank, ConstBytes card) {
      auto place = static_cast<std::size_t>(rank.value);
      if (place >= has.size() || has[place]) return;
      table.add(rank, decode_card(card));
      has[place] = true;
      --missing;
    };
    for (const auto& [rank, card] : cards) add(rank, card);
    make_inner_folders();
    Status failed;
    std::set<std::string> read;
    bool complete = wait_until("/in", deadline, [&](const std::set<std::string>& files) {
      for (const std::string& file : files)
        if (failed && file.starts_with(number + ".") && read.insert(file).second) failed = read_cards(file, add);
      return missing == 0 || !failed;
    });
    if (!failed) return std::move(failed.error());
    if (!complete) {
      std::vector<int> absent;
      for (int rank = 0; rank < identity_.size; ++rank)
        if (!has[static_cast<std::size_t>(rank)]) absent.push_back(rank);
      return late(who_is_absent(absent, identity_.size));
    }
    Buffer all = table.encode();
    HVD_RETURN_IF_ERROR(write_file(folder_ + "/out", number, all));
    if (exchanges_ > 1) ::unlink((folder_ + "/out/" + std::to_string(exchanges_ - 2)).c_str());
    return all;
  }

  template <typename Add>
  Status read_cards(const std::string& file, const Add& add) {
    auto content = read_file(folder_ + "/in/" + file);
    if (!content) return std::move(content.error());
    ByteReader in(*content);
    while (in.ok() && !in.at_end()) {
      Rank rank{in.get<std::int32_t>()};
      ConstBytes card = as_bytes(in.get_string());
      if (in.ok()) add(rank, card);
    }
    if (in.ok()) return {};
    return Error(ErrorCode::mismatch, "Slurm: what a rank wrote into " + folder_ + "/in/" + file + " is damaged");
  }

  // Every rank that needs the inner folders makes them, because the last rank of the previous meeting may just have
  // removed them.
  void make_inner_folders() const {
    for (const char* inner : {"", "/in", "/out"}) (void)::mkdir((folder_ + inner).c_str(), 0700);
  }

  template <typename Condition>
  bool wait_until(const char* inner, Deadline deadline, Condition condition) {
    const auto longest =
        longest_pause + std::chrono::duration_cast<std::chrono::milliseconds>(longest_pause_per_rank * identity_.size);
    for (auto pause = shortest_pause;; pause = std::min<std::chrono::milliseconds>(pause * 2, longest)) {
      if (condition(files_of(folder_ + inner))) return true;
      if (deadline.passed()) return false;
      std::this_thread::sleep_for(pause);  // no event tells of changes on another machine
    }
  }

  Error late(const std::string& what) const {
    return {ErrorCode::timeout, "Slurm: the ranks meet in the folder " + folder_ + ", but not all did in time. " +
                                    what +
                                    ". Do all nodes see this folder, and did all tasks start? Otherwise start the "
                                    "ranks with `srun --mpi=pmix` or `srun --mpi=pmi2`"};
  }

  Identity identity_;
  std::string place_;      // the folder in which meetings have their folders
  std::string folder_;     // empty between meetings, and for a single rank
  std::vector<int> node_;  // the ranks of this node, including this rank
  std::optional<NodeCircle> circle_;
  std::uint64_t exchanges_ = 0;       // number of exchanges in this meeting
  std::vector<std::string> written_;  // files of this rank in `in`
  std::string broken_;
  Card mine_;  // what was put since the last fence: key, value, key, value …
  std::map<std::pair<Rank, std::string>, Buffer> values_;
};

}  // namespace

std::unique_ptr<Bootstrap> make_slurm() {
  return std::make_unique<Slurm>();
}

}  // namespace hvd::bootstrap
