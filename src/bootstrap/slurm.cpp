// Ranks of a Slurm step without a PMI server (srun --mpi=none, cray_shasta): Slurm's variables say who this is, and a
// folder on a file system that all nodes see carries the values.
//
// What happens in the folder (mode 0700, its name belongs to one step and one meeting):
//  1. At fence k every rank writes what it put since the last one into `k.rank`, under another name first.
//  2. Rank 0 waits for all of them, joins them into `k.all` and removes them; the others wait for that one file, so a
//     job of n ranks costs n small files and n readers of one. Who waits lists the folder: file systems over a network
//     may otherwise answer "not there" from memory for a long time.
//  3. At fence k+1 everybody has read `k.all`, and rank 0 removes it.
//  4. Who has met the others writes `gone.rank`; who finds all of them removes the folder, long before the job ends.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/launch.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::bootstrap {
namespace {

constexpr auto shortest_pause = std::chrono::milliseconds(1);
constexpr auto longest_pause = std::chrono::milliseconds(50);

// How often this process has met the others; all ranks have equally often. Of the process, not of one bootstrap: the folder
// of the one before may be there still.
std::atomic<int> meetings{0};

// File systems of one machine. Everything else (NFS, Lustre, GPFS, FUSE …) is taken for one that all nodes see.
bool is_of_one_machine(const std::string& folder) {
  struct statfs status {};
  if (::statfs(folder.c_str(), &status) != 0) return false;
  switch (static_cast<unsigned long>(status.f_type)) {
    case 0x01021994:  // tmpfs
    case 0x858458f6:  // ramfs
    case 0xef53:      // ext2, ext3, ext4
    case 0x58465342:  // xfs
    case 0x9123683e:  // btrfs
    case 0x794c7630:  // overlayfs: a container's
    case 0x73717368:  // squashfs
    case 0x2fc12fc1:  // zfs
    case 0xf2f52010:  // f2fs
      return true;
    default: return false;
  }
}

Result<Buffer> read_file(const std::string& path) {
  posix::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return system_error("cannot read " + path, errno);
  Buffer content;
  std::byte bytes[16 << 10];
  for (;;) {
    ssize_t got = ::read(file.get(), bytes, sizeof bytes);
    if (got == 0) return content;
    if (got < 0 && errno != EINTR) return system_error("cannot read " + path, errno);
    if (got > 0) content.insert(content.end(), bytes, bytes + got);
  }
}

// Whoever sees the file sees all of it.
Status write_file(const std::string& folder, const std::string& name, ConstBytes content) {
  std::string unfinished = folder + "/." + name;
  posix::FileDescriptor file(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return system_error("cannot make " + unfinished, errno);
  while (!content.empty()) {
    ssize_t written = ::write(file.get(), content.data(), content.size());
    if (written < 0 && errno != EINTR) return system_error("cannot write " + unfinished, errno);
    if (written > 0) content = content.subspan(static_cast<std::size_t>(written));
  }
  // Some file systems over a network tell of a full disk at the close only.
  if (::close(file.release()) != 0) return system_error("cannot write " + unfinished, errno);
  if (::rename(unfinished.c_str(), (folder + "/" + name).c_str()) != 0)
    return system_error("cannot rename " + unfinished, errno);
  return {};
}

std::set<std::string> files_of(const std::string& folder) {
  std::set<std::string> names;
  std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(folder.c_str()), &::closedir);
  if (listing == nullptr) return names;
  while (const dirent* entry = ::readdir(listing.get())) names.insert(entry->d_name);  // NOLINT(concurrency-mt-unsafe)
  return names;
}

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
    HVD_RETURN_IF_ERROR(choose_place(environment, config));
    HVD_RETURN_IF_ERROR(make_folder());
    return identity_;
  }

  Status put(std::string_view key, ConstBytes value) override {
    Buffer bytes(value.begin(), value.end());
    if (!values_.try_emplace({identity_.rank, std::string(key)}, bytes).second)
      return Error(ErrorCode::invalid_argument, "\"" + std::string(key) + "\" was put already; a key is used once");
    mine_[std::string(key)] = std::move(bytes);
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
    if (!broken_.empty()) return Error(ErrorCode::peer_lost, broken_);
    if (folder_.empty()) HVD_RETURN_IF_ERROR(make_folder());
    Status done = meet(std::to_string(fences_), deadline);
    if (!done) broken_ = done.error().message;
    ++fences_;
    return done;
  }

  void abort(std::string_view) noexcept override {}  // srun is not asked; it ends the step with its first bad exit code

  void tidy_up() noexcept override {
    std::string folder = std::exchange(folder_, {});
    fences_ = 0;
    if (folder.empty() || !broken_.empty() || !write_file(folder, "gone." + std::to_string(identity_.rank.value), {}))
      return;
    auto files = files_of(folder);
    for (int rank = 0; rank < identity_.size; ++rank)
      if (!files.contains("gone." + std::to_string(rank))) return;
    for (const std::string& file : files)
      if (file != "." && file != "..") ::unlink((folder + "/" + file).c_str());
    ::rmdir(folder.c_str());
  }

 private:
  // Equal on all ranks of a step and different from every other step, also from one of the same number after the
  // controller lost its memory: srun's port tells them apart.
  static std::string step_of(const Environment& environment) {
    std::string step = "slurm";
    for (const char* part : {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "SLURM_SRUN_COMM_PORT"})
      step += "-" + environment.get(part).value_or("0");
    return step;
  }

  Status choose_place(const Environment& environment, const Config& config) {
    place_ = config.shared_dir;
    if (!place_.empty()) return {};
    std::error_code unknown;  // a program may change its working directory between its meetings
    place_ = std::filesystem::current_path(unknown).string();
    if (number_in(environment, "SLURM_STEP_NUM_NODES").value_or(2) == 1) {
      if (::access(place_.c_str(), W_OK) != 0) place_ = "/tmp";
      return {};
    }
    if (!is_of_one_machine(place_)) return {};
    return Error(ErrorCode::unsupported,
                 "srun started no PMI server, and the working directory, through which the ranks could meet, is on a "
                 "file system of this machine alone");
  }

  Status make_folder() {
    folder_ = place_ + "/.horovod-" + identity_.job + "-" + std::to_string(meetings++);
    if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) {
      Error error = system_error("srun started no PMI server, and the folder " + folder_ +
                                     ", through which the ranks could meet, cannot be made",
                                 errno);
      error.code = ErrorCode::unsupported;
      folder_.clear();
      return error;
    }
    struct stat status {};
    if (::lstat(folder_.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
        (status.st_mode & 077) == 0)
      return {};
    Error error(
        ErrorCode::invalid_argument,
        folder_ + " exists, but is no folder that belongs to this user alone (mode 0700): somebody else made it");
    folder_.clear();
    return error;
  }

  Status meet(const std::string& fence, Deadline deadline) {
    Buffer content;
    ByteWriter out(content);
    for (const auto& [key, value] : std::exchange(mine_, {})) write_value(out, identity_.rank, key, value);
    std::string all = fence + ".all";
    if (identity_.rank == Rank{0}) {
      HVD_RETURN_IF_ERROR(gather(fence, content, deadline));
      HVD_RETURN_IF_ERROR(write_file(folder_, all, content));
      if (fences_ > 0) ::unlink((folder_ + "/" + std::to_string(fences_ - 1) + ".all").c_str());
    } else {
      HVD_RETURN_IF_ERROR(write_file(folder_, fence + "." + std::to_string(identity_.rank.value), content));
      if (!wait_until(deadline, [&](const std::set<std::string>& files) { return files.contains(all); }))
        return late("rank 0 did not find all others");
      auto read = read_file(folder_ + "/" + all);
      if (!read) return std::move(read.error());
      content = std::move(*read);
    }
    return read_values(content);
  }

  // Rank 0 alone: appends what the others wrote.
  Status gather(const std::string& fence, Buffer& content, Deadline deadline) {
    std::set<int> missing;
    for (int rank = 1; rank < identity_.size; ++rank) missing.insert(rank);
    Status failed;
    bool complete = wait_until(deadline, [&](const std::set<std::string>& files) {
      for (auto rank = missing.begin(); rank != missing.end() && failed;) {
        std::string file = fence + "." + std::to_string(*rank);
        if (!files.contains(file)) {
          ++rank;
          continue;
        }
        auto read = read_file(folder_ + "/" + file);
        if (!read) {
          failed = std::move(read.error());
          break;
        }
        content.insert(content.end(), read->begin(), read->end());
        ::unlink((folder_ + "/" + file).c_str());
        rank = missing.erase(rank);
      }
      return missing.empty() || !failed;
    });
    if (!failed || complete) return failed;
    std::string ranks;
    for (int rank : missing)
      if (ranks.size() < 60) ranks += (ranks.empty() ? " " : ", ") + std::to_string(rank);
    return late("nothing came from " + std::to_string(missing.size()) + " ranks, among them" + ranks);
  }

  template <typename Condition>
  bool wait_until(Deadline deadline, Condition condition) {
    for (auto pause = shortest_pause;; pause = std::min<std::chrono::milliseconds>(pause * 2, longest_pause)) {
      if (condition(files_of(folder_))) return true;
      if (deadline.passed()) return false;
      std::this_thread::sleep_for(pause);  // nothing tells of changes on another machine
    }
  }

  Error late(const std::string& what) const {
    return {ErrorCode::timeout,
            "Slurm: the ranks meet in the folder " + folder_ + ", but " + what +
                " in time: do all nodes see this folder, and did all tasks start? Otherwise start the "
                "ranks with `srun --mpi=pmix` or `srun --mpi=pmi2`"};
  }

  static void write_value(ByteWriter& out, Rank rank, const std::string& key, const Buffer& value) {
    out.put(rank.value);
    out.put_string(key);
    out.put(static_cast<std::uint32_t>(value.size()));
    out.put_raw(value.data(), value.size());
  }

  Status read_values(ConstBytes content) {
    ByteReader in(content);
    while (in.ok() && !in.at_end()) {
      Rank rank{in.get<std::int32_t>()};
      std::string key(in.get_string());
      ConstBytes value = as_bytes(in.get_string());
      values_.insert_or_assign({rank, std::move(key)}, Buffer(value.begin(), value.end()));
    }
    if (in.ok()) return {};
    return Error(ErrorCode::mismatch, "Slurm: what the ranks wrote into " + folder_ + " is damaged");
  }

  Identity identity_;
  std::string place_;   // where each meeting has its folder
  std::string folder_;  // empty between meetings, and for a single rank
  std::uint64_t fences_ = 0;
  std::string broken_;
  std::map<std::string, Buffer, std::less<>> mine_;  // put since the last fence
  std::map<std::pair<Rank, std::string>, Buffer> values_;
};

}  // namespace

std::unique_ptr<Bootstrap> make_slurm() {
  return std::make_unique<Slurm>();
}

}  // namespace hvd::bootstrap
