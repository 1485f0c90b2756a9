#include "mpi/our_runtime.hpp"

#include <dirent.h>
#include <mpi.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "mpi/prepared_averages.hpp"

namespace hvd::benchmark {

std::set<pid_t> threads_now() {
  std::set<pid_t> threads;
  DIR* folder = ::opendir("/proc/self/task");
  while (dirent* entry = folder == nullptr ? nullptr : ::readdir(folder))
    if (pid_t thread = std::atoi(entry->d_name); thread > 0) threads.insert(thread);
  if (folder != nullptr) ::closedir(folder);
  return threads;
}

Usage usage_of(const std::set<pid_t>& threads) {
  Usage usage;
  for (pid_t thread : threads) {
    std::string folder = "/proc/self/task/" + std::to_string(thread);
    double nanoseconds = 0;
    std::ifstream(folder + "/schedstat") >> nanoseconds;
    usage.cpu_s += nanoseconds * 1e-9;
    std::ifstream status(folder + "/status");
    for (std::string line; std::getline(status, line);)
      if (line.find("ctxt_switches:") != std::string::npos)
        usage.switches += std::atof(line.c_str() + line.find(':') + 1);
  }
  return usage;
}

OurRuntime::OurRuntime(Job& job) : job_(job) {
  if (job.rank() == 0) serve_store();
  tell_where_the_store_is();
  std::set<pid_t> before = threads_now();
  check(hvd_init(&runtime_));
  std::set<pid_t> after = threads_now();
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                      std::inserter(threads_, threads_.end()));
}

OurRuntime::~OurRuntime() {
  hvd_shutdown(runtime_);
  MPI_Barrier(MPI_COMM_WORLD);
  if (!server_.joinable()) return;
  std::uint64_t one = 1;
  if (::write(stop_.get(), &one, sizeof one) != sizeof one) job_.fail("the store's thread cannot be stopped");
  server_.join();
}

void OurRuntime::serve_store() {
  bootstrap::LocalStoreServer::Options options;
  options.job = "benchmark-" + std::to_string(::getpid());
  options.size = job_.size();
  options.on_abort = [this](Rank, std::string_view reason) { job_.fail(std::string(reason)); };
  auto store = bootstrap::LocalStoreServer::open(std::move(options));
  if (!store) job_.fail(store.error().message);
  store_ = std::move(*store);
  stop_ = posix::FileDescriptor(::eventfd(0, EFD_CLOEXEC));
  server_ = std::thread([this] {
    pollfd watched[] = {{store_->descriptor(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    while (watched[1].revents == 0) {
      ::poll(watched, 2, -1);
      store_->serve();
    }
  });
}

void OurRuntime::tell_where_the_store_is() {
  std::string lines;
  if (store_)
    for (const auto& [name, value] : store_->variables()) lines += name + "=" + value + "\n";
  int length = static_cast<int>(lines.size());
  MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD);
  lines.resize(static_cast<std::size_t>(length));
  MPI_Bcast(lines.data(), length, MPI_CHAR, 0, MPI_COMM_WORLD);
  for (std::size_t at = 0; at < lines.size();) {
    std::size_t equals = lines.find('=', at), end = lines.find('\n', at);
    ::setenv(lines.substr(at, equals - at).c_str(), lines.substr(equals + 1, end - equals - 1).c_str(), 1);
    at = end + 1;
  }
  ::setenv("HOROVOD_BOOTSTRAP", "environment", 1);  // an MPI launcher may offer PMIx, too
  ::setenv("HOROVOD_RANK", std::to_string(job_.rank()).c_str(), 1);
  ::setenv("HOROVOD_SIZE", std::to_string(job_.size()).c_str(), 1);
}

OurStep::OurStep(OurRuntime& runtime, const Tensors& tensors, const std::string& name)
    : runtime_(runtime),
      arguments_(prepare_averages(runtime.get(), tensors, name, [&](hvd_status status) { runtime.check(status); })) {
  handles_.reserve(arguments_.size());
}

void OurStep::start_one_by_one() {
  for (const hvd_start_arguments& arguments : arguments_) {
    hvd_handle handle = 0;
    runtime_.check(hvd_start(runtime_.get(), &arguments, 1, &handle));
    handles_.push_back(handle);
  }
}

void OurStep::start_together() {
  hvd_handle handle = 0;
  runtime_.check(hvd_start(runtime_.get(), arguments_.data(), arguments_.size(), &handle));
  handles_.push_back(handle);
}

void OurStep::wait() {
  for (hvd_handle handle : handles_) {
    runtime_.check(hvd_wait(runtime_.get(), handle, -1));
    hvd_release(runtime_.get(), handle);
  }
  handles_.clear();
}

}  // namespace hvd::benchmark
