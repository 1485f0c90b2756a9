#include "native/mpi/process.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>

#include "base/log.hpp"
#include "base/text/number.hpp"
#include "native/posix/plugins/plugin.hpp"
#include "native/posix/plugins/shared_library.hpp"
#include "native/posix/processes/signal_catcher.hpp"

namespace hvd::mpi {
namespace {

constexpr const char* known_abis[] = {"mpich", "openmpi", "abi"};

// The names under which an MPI of an ABI may be installed. Debian's MPICH has another name.
struct Soname {
  const char* abi;
  const char* name;
};
constexpr Soname sonames[] = {
    {"mpich", "libmpi.so.12"}, {"mpich", "libmpich.so.12"}, {"openmpi", "libmpi.so.40"}, {"abi", "libmpi_abi.so.1"}};

std::atomic<bool> stays_open{false};

using Question = int (*)(int*);
bool says_yes(void* function) {
  int answer = 0;
  return function != nullptr && reinterpret_cast<Question>(function)(&answer) == 0 && answer != 0;
}

const char* abi_of(const std::string& file, void* handle) {
  if (::dlsym(handle, "MPI_Init_thread") == nullptr) return nullptr;
  if (file.starts_with("libmpi_abi.so")) return "abi";
  return ::dlsym(handle, "ompi_mpi_comm_world") != nullptr ? "openmpi" : "mpich";
}

Mapped::State state_of(void* handle) {
  if (!says_yes(::dlsym(handle, "MPI_Initialized"))) return Mapped::State::loaded;
  return says_yes(::dlsym(handle, "MPI_Finalized")) ? Mapped::State::finalised : Mapped::State::running;
}

bool is_running(const Mapped& library) {
  return library.state == Mapped::State::running;
}

std::string file_of(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

int collect(dl_phdr_info* object, std::size_t, void* data) {
  std::string path = object->dlpi_name != nullptr ? object->dlpi_name : "";
  std::string file = file_of(path);
  for (const char* begin : {"libmpi.so", "libmpich.so", "libmpi_abi.so"})
    if (file.starts_with(begin)) static_cast<std::vector<std::string>*>(data)->push_back(path);
  return 0;
}

std::string list_of(const std::vector<Mapped>& libraries) {
  std::string text;
  for (const Mapped& library : libraries) text += (text.empty() ? "" : " and ") + library.path;
  return text;
}

// Binds the plugin's names to this library. The plugin itself names no library, because the library of an ABI has
// different names on different systems. So the library is made visible to all. Then the plugin is asked whether it was
// bound to this library.
Result<const MpiPlugin*> open_for(const Mapped& library, const Environment& environment) {
  if (!library.path.empty() && ::dlopen(library.path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD) == nullptr)
    return Error(ErrorCode::unsupported,
                 library.path + " cannot be opened again: " + posix::loader_error("it is not loaded"));
  auto plugin = posix::open_plugin<MpiPlugin>(std::string("mpi-") + library.abi, environment);
  if (!plugin) return std::move(plugin.error());
  Dl_info bound{};
  ::dladdr((*plugin)->where(), &bound);
  std::string found = bound.dli_fname != nullptr ? bound.dli_fname : "";
  // The address of a function may be in the program's own table of imports.
  bool is_library = [&] {
    std::string file = file_of(found);
    return file.starts_with("libmpi.so") || file.starts_with("libmpich.so") || file.starts_with("libmpi_abi.so");
  }();
  if (!library.path.empty() && is_library && found != library.path)
    return Error(ErrorCode::unsupported, "two MPI libraries are in this process, " + found + " and " + library.path +
                                             ": load one alone (see LD_PRELOAD, LD_LIBRARY_PATH, loaded modules)");
  return *plugin;
}

Result<Mapped> load(const Soname& wanted) {
  // The library is never unloaded, because MPI libraries have threads and handlers.
  void* handle = ::dlopen(wanted.name, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  if (handle == nullptr) return Error(ErrorCode::unsupported, posix::loader_error(wanted.name));
  for (Mapped& library : mapped_libraries()) {
    void* again = ::dlopen(library.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (again == handle) return library;
  }
  return Error(ErrorCode::unsupported, std::string(wanted.name) + " is no MPI library");
}

// True if the launcher seems to speak with an MPI of this ABI. Otherwise MPI_Init ends the process, or makes a world of
// this process alone. So an MPI that nobody asked for is loaded and started only if the launcher seems to be made for
// it.
bool has_pmi(const Environment& environment) {
  return environment.has("PMI_FD") || environment.has("PMI_PORT");
}
bool has_launcher_for(std::string_view abi, const Environment& environment) {
  // An MPICH gets through PMI-1 what a PMIx server knows (bootstrap/pmi_bridge).
  return environment.has("PMIX_NAMESPACE") || (abi != "openmpi" && has_pmi(environment));
}

// Sorts the names: the MPI that the launcher seems to be made for comes first.
std::vector<Soname> in_order(const Environment& environment) {
  std::vector<Soname> order(std::begin(sonames), std::end(sonames));
  bool by_open_mpi = environment.has("OMPI_COMM_WORLD_SIZE");
  std::stable_partition(order.begin(), order.end(),
                        [&](const Soname& it) { return (it.abi == std::string_view("openmpi")) == by_open_mpi; });
  return order;
}

Result<const MpiPlugin*> choose(const Environment& environment, const std::string& forced) {
  std::vector<Mapped> here = mapped_libraries();
  // An MPI that runs is the program's. Other MPIs in the process came with some library and are not used.
  if (std::any_of(here.begin(), here.end(), is_running))
    std::erase_if(here, [](const Mapped& it) { return !is_running(it); });
  if (!forced.empty()) {
    auto matches = [&](const Mapped& it) { return it.abi == forced; };
    if (!here.empty() && std::none_of(here.begin(), here.end(), matches))
      return Error(ErrorCode::unsupported, "HOROVOD_MPI=" + forced + ", but the MPI of this process is " +
                                               list_of(here) + " (" + here.front().abi +
                                               "): unset HOROVOD_MPI, or let the program use the other MPI");
    std::erase_if(here, [&](const Mapped& it) { return !matches(it); });
  }
  if (here.size() > 1)
    return Error(ErrorCode::unsupported, "several MPI libraries are in this process, " + list_of(here) +
                                             ", and none is initialised: load one alone, or set HOROVOD_MPI");
  if (here.size() == 1) return open_for(here.front(), environment);

  std::string tried;
  for (const Soname& soname : in_order(environment)) {
    if (!forced.empty() && forced != soname.abi) continue;
    if (forced.empty() && !has_launcher_for(soname.abi, environment)) {
      tried += std::string("; ") + soname.name + " was not loaded, since the ranks' launcher has no server for it";
      continue;
    }
    if (!has_plugin(soname.abi, environment)) {
      tried += std::string("; Horovod was built without a plugin for ") + soname.name +
               ", having found no mpi.h of that ABI (horovodrun --check-build lists the plugins)";
      continue;
    }
    auto library = load(soname);
    auto plugin = library ? open_for(*library, environment) : Result<const MpiPlugin*>(std::move(library.error()));
    if (plugin) return plugin;
    tried += "; " + plugin.error().message;
  }
  return Error(ErrorCode::unsupported,
               "no MPI can be used" + tried + (forced.empty() ? " (HOROVOD_MPI chooses one in any case)" : ""));
}

// Handlers in an MPI that the program has started are the library's, and not the program's.
void note_handlers_of_the_running() {
  for (const Mapped& library : mapped_libraries()) {
    if (!is_running(library) || library.path.empty()) continue;
    void* handle = ::dlopen(library.path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    posix::note_handlers_in_library_of(::dlsym(handle, "MPI_Init_thread"));
    ::dlclose(handle);
  }
}

// Returns a function of the libpmix that this process has loaded; null if there is none.
void* pmix_function(const char* name) {
  void* handle = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* function = ::dlsym(handle, name);
  ::dlclose(handle);
  return function;
}

bool is_pmix_initialized() {
  auto initialized = reinterpret_cast<int (*)()>(pmix_function("PMIx_Initialized"));
  return initialized != nullptr && initialized() > 0;
}

// PMIx calls this once, perhaps long after the caller has stopped waiting.
void end_of_fence(int status, void* promise) {
  std::unique_ptr<std::promise<int>> owned(static_cast<std::promise<int>*>(promise));
  owned->set_value(status);
}

}  // namespace

bool is_told_its_interfaces(const Environment& environment) {
  constexpr const char* choices[] = {"UCX_NET_DEVICES", "FI_TCP_IFACE", "OMPI_MCA_btl_tcp_if_include",
                                     "OMPI_MCA_btl_tcp_if_exclude"};
  return std::any_of(std::begin(choices), std::end(choices), [&](const char* name) { return environment.has(name); });
}

const char* name_of(ThreadLevel level) noexcept {
  switch (level) {
    case ThreadLevel::single: return "MPI_THREAD_SINGLE";
    case ThreadLevel::funneled: return "MPI_THREAD_FUNNELED";
    case ThreadLevel::serialized: return "MPI_THREAD_SERIALIZED";
    case ThreadLevel::multiple: return "MPI_THREAD_MULTIPLE";
  }
  return "?";
}

std::span<const char* const> abis() {
  return known_abis;
}

bool has_plugin(std::string_view abi, const Environment& environment) {
  return !posix::plugin_path("mpi-" + std::string(abi), environment).empty();
}

std::vector<Mapped> mapped_libraries() {
  // All paths are collected first. A call of the loader inside the iteration could deadlock.
  std::vector<std::string> paths;
  ::dl_iterate_phdr(&collect, &paths);
  std::vector<Mapped> libraries;
  for (const std::string& path : paths) {
    void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    if (const char* abi = abi_of(file_of(path), handle)) libraries.push_back({path, abi, state_of(handle)});
    ::dlclose(handle);
  }
  // The program itself may contain an MPI and export it.
  if (libraries.empty())
    if (const char* abi = abi_of("", RTLD_DEFAULT)) libraries.push_back({"", abi, state_of(RTLD_DEFAULT)});
  return libraries;
}

bool is_one_running() {
  auto libraries = mapped_libraries();
  return std::any_of(libraries.begin(), libraries.end(), is_running);
}

Result<Process*> Process::open(const Environment& environment, const Config& config) {
  static auto* mutex = new std::mutex;
  static Process* process = nullptr;
  std::lock_guard lock(*mutex);
  if (config.mpi == "none") return Error(ErrorCode::unsupported, "MPI is not wanted: HOROVOD_MPI=none");
  if (process == nullptr) {
    auto calls = choose(environment, config.mpi);
    if (!calls) return std::move(calls.error());
    process = new Process(*calls);
  }
  if (!config.mpi.empty() && config.mpi != process->calls().abi)
    return Error(ErrorCode::unsupported, "HOROVOD_MPI=" + config.mpi + ", but this process uses the MPI of the ABI " +
                                             process->calls().abi + " already");
  return process;
}

bool Process::lacks_pmi_server(const Environment& environment) const {
  if (std::string_view(calls_->abi) == "openmpi" || has_pmi(environment)) return false;
  // An MPI that was built to use PMIx has PMIx among its libraries.
  Dl_info library{};
  if (::dladdr(calls_->where(), &library) == 0 || library.dli_fname == nullptr) return true;
  void* handle = ::dlopen(library.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return true;
  bool speaks_pmix = ::dlsym(handle, "PMIx_Init") != nullptr;
  ::dlclose(handle);
  return !speaks_pmix;
}

bool Process::must_initialize_pmix() const {
  constexpr std::string_view name = "Open MPI v";
  std::string version = calls_->version();
  return version.starts_with(name) && leading_number<int>(version.substr(name.size())).value_or(0) >= 5;
}

Status Process::check_launcher(const Environment& environment) const {
  std::string abi = calls_->abi;
  if (has_launcher_for(abi, environment)) return {};
  return Error(ErrorCode::unsupported, calls_->version() + " was not started: the ranks' launcher has no " +
                                           (abi == "openmpi" ? "PMIx" : "PMI") + " server for it (HOROVOD_MPI=" + abi +
                                           " starts it anyway)");
}

Status Process::start(const Environment& environment, const Config& config) {
  if (calls_->is_finalized())
    return Error(ErrorCode::unsupported,
                 "MPI has been finalised in this process and cannot be started again: call hvd.init() before "
                 "MPI_Finalize");
  ThreadLevel least = config.mpi_threads_disable ? ThreadLevel::serialized : ThreadLevel::multiple;
  ThreadLevel level = ThreadLevel::single;
  bool was_running = calls_->is_initialized();
  if (!was_running && config.mpi.empty()) HVD_RETURN_IF_ERROR(check_launcher(environment));
  if (!was_running && must_initialize_pmix() && is_pmix_initialized())
    return Error(ErrorCode::unsupported,
                 calls_->version() +
                     " was not started: it would end the process, since PMIx is in use here already. Let the program "
                     "start MPI before hvd.init() (from mpi4py import MPI), or set HOROVOD_MPI=openmpi for all ranks");
  if (was_running) {
    level = calls_->thread_level();
    note_handlers_of_the_running();
  } else {
    auto provided = [&] {
      posix::LibraryStart handlers;  // MPICH installs one for SIGUSR1
      return calls_->initialize(least);
    }();
    if (!provided) return std::move(provided.error());
    level = *provided;
    is_ours_ = true;
    static Process* mine = nullptr;
    mine = this;
    // This handler is registered after the library's own handlers, so it runs before them. It uses on_exit, which gets
    // the exit code: a process that has failed ends at once. In MPI_Finalize it would wait for the others until they
    // fail because of it, and the launcher would take one of them for the cause.
    ::on_exit(
        [](int exit_code, void*) {
          if (exit_code != 0 || stays_open.load() || mine->skips_finalize_) return;
          if (mine->is_running()) mine->calls_->finalize();
        },
        nullptr);
  }
  if (level >= least) return {};
  std::string remedy = was_running
                           ? "let the program call MPI_Init_thread with MPI_THREAD_MULTIPLE (mpi4py does unless "
                             "mpi4py.rc.thread_level says otherwise)"
                           : "use an MPI that was built with threads";
  if (level == ThreadLevel::serialized)
    remedy +=
        ", or set HOROVOD_MPI_THREADS_DISABLE=1 if the program makes no MPI calls between hvd.init() and "
        "hvd.shutdown()";
  return Error(ErrorCode::unsupported, "MPI provides " + std::string(name_of(level)) + "; expected " + name_of(least) +
                                           ", since Horovod's thread calls it beside the program's: " + remedy);
}

bool Process::meet_world(Deadline deadline) {
  static std::atomic<bool> met{false};
  if (!must_initialize_pmix()) return true;
  auto world = calls_->world();
  // A process that is alone has nobody to meet. Also, without a server OpenPMIx 5.0.11 keeps a lock in this call that
  // MPI_Finalize waits for.
  if (!world || (*world)->size() == 1 || met.exchange(true)) return true;
  using Fence =
      int (*)(const void* processes, std::size_t, const void* options, std::size_t, void (*)(int, void*), void*);
  auto fence = reinterpret_cast<Fence>(pmix_function("PMIx_Fence_nb"));
  auto owned = std::make_unique<std::promise<int>>();
  auto ended = owned->get_future();
  int code = fence != nullptr ? fence(nullptr, 0, nullptr, 0, &end_of_fence, owned.get()) : -1;
  if (code == 0) {
    (void)owned.release();
    // While this process waits, the program's own messages must be delivered: another process may need them before it
    // comes here.
    while (ended.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
      if (deadline.passed()) return false;
      (*world)->progress();
    }
    code = ended.get();
  }
  if (code != 0) log::info(calls_->version() + " may crash at the start: PMIx_Fence_nb gave " + std::to_string(code));
  return true;
}

namespace {

// Never destroyed, because the last exit handler of a process may end MPI.
struct FinalizeWatches {
  std::mutex mutex;
  bool is_hooked = false;
  std::vector<std::function<void()>*> actions;
};
FinalizeWatches& finalize_watches() {
  static auto* watches = new FinalizeWatches;
  return *watches;
}

}  // namespace

FinalizeWatch::FinalizeWatch(const MpiPlugin& calls, std::function<void()> action) : action_(std::move(action)) {
  FinalizeWatches& watches = finalize_watches();
  std::lock_guard lock(watches.mutex);
  watches.actions.push_back(&action_);
  if (watches.is_hooked) return;
  watches.is_hooked = true;
  calls.before_finalize([] {
    FinalizeWatches& all = finalize_watches();
    std::lock_guard hold(all.mutex);
    for (std::function<void()>* it : all.actions) (*it)();
  });
}

FinalizeWatch::~FinalizeWatch() {
  FinalizeWatches& watches = finalize_watches();
  std::lock_guard lock(watches.mutex);
  std::erase(watches.actions, &action_);
}

void Process::leave_open() noexcept {
  stays_open.store(true);
}

bool Process::is_left_open() noexcept {
  return stays_open.load();
}

}  // namespace hvd::mpi
