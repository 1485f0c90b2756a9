#include "native/pmix/server.hpp"

#include <pmix.h>
#include <pmix_server.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <mutex>

namespace hvd::pmix {
namespace {

Error refused(const std::string& call, pmix_status_t status) {
  return Error(ErrorCode::system, call + ": " + PMIx_Error_string(status) + " (" + std::to_string(status) + ")");
}

// Many calls only begin something. This object waits until it has ended.
class Completion {
 public:
  static void callback(pmix_status_t status, void* completion) {
    auto* self = static_cast<Completion*>(completion);
    std::lock_guard lock(self->mutex_);
    self->status_ = status;
    self->done_ = true;
    self->changed_.notify_one();
  }
  pmix_status_t wait(pmix_status_t begun) {
    if (begun == PMIX_OPERATION_SUCCEEDED) return PMIX_SUCCESS;
    if (begun != PMIX_SUCCESS) return begun;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  pmix_status_t status_ = PMIX_SUCCESS;
};

// A growing array of pmix_info_t, with all that the values point to. PMIx copies what it is given. The library fills
// and frees nothing here, because its functions for that are not the same in PMIx 3, 4 and 5.
class InfoList {
 public:
  void add(const char* key, const std::string& value) { next(key, PMIX_STRING).data.string = kept(value); }
  void add(const char* key, std::uint16_t value) { next(key, PMIX_UINT16).data.uint16 = value; }
  void add(const char* key, std::uint32_t value) { next(key, PMIX_UINT32).data.uint32 = value; }
  void add_rank(const char* key, pmix_rank_t value) { next(key, PMIX_PROC_RANK).data.rank = value; }
  // PMIx 3 has no type of its own for what PMIx_generate_regex and _ppn return.
  void add_regex(const char* key, const std::string& value) {
    static const bool is_text = std::string_view(PMIx_Get_version()).find("PMIx 3.") != std::string_view::npos;
    if (is_text) return add(key, value);
    pmix_value_t& info = next(key, PMIX_REGEX);
    info.data.bo.bytes = kept(value);
    info.data.bo.size = value.size() + 1;
  }
  // Takes over the elements of the other list.
  void add_array(const char* key, InfoList elements) {
    InfoList& element_list = lists_.emplace_back(std::move(elements));
    next(key, PMIX_DATA_ARRAY).data.darray =
        &arrays_.emplace_back(pmix_data_array_t{PMIX_INFO, element_list.size(), element_list.data()});
  }
  pmix_info_t* data() { return infos_.data(); }
  std::size_t size() const { return infos_.size(); }

 private:
  pmix_value_t& next(const char* key, pmix_data_type_t type) {
    pmix_info_t& info = infos_.emplace_back();
    PMIX_LOAD_KEY(info.key, key);
    info.value.type = type;
    return info.value;
  }
  char* kept(const std::string& text) { return texts_.emplace_back(text).data(); }

  std::vector<pmix_info_t> infos_;
  std::deque<std::string> texts_;  // PMIx keeps the addresses of this member and of the following ones
  std::deque<pmix_data_array_t> arrays_;
  std::list<InfoList> lists_;
};

// PMIx passes no context to these functions, and allows only one server per process. The object is never destroyed,
// because threads of the library run until the process ends.
struct AbortReceiver {
  std::mutex mutex;
  std::function<void(Rank, int, std::string)> receive;
};
AbortReceiver& abort_receiver() {
  static auto* receiver = new AbortReceiver;
  return *receiver;
}
void set_abort_receiver(std::function<void(Rank, int, std::string)> receive) {
  std::lock_guard lock(abort_receiver().mutex);
  abort_receiver().receive = std::move(receive);
}

pmix_status_t client_connected(const pmix_proc_t*, void*, pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}
pmix_status_t client_finalized(const pmix_proc_t*, void*, pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_status_t abort_job(const pmix_proc_t* process, void*, int status, const char message[], pmix_proc_t[], std::size_t,
                        pmix_op_cbfunc_t, void*) {
  AbortReceiver& receiver = abort_receiver();
  std::lock_guard lock(receiver.mutex);
  if (receiver.receive)
    receiver.receive(Rank{static_cast<std::int32_t>(process->rank)}, status, message == nullptr ? "" : message);
  return PMIX_OPERATION_SUCCEEDED;
}

// Called when all local ranks take part. All ranks of the job are local, so their values are all values.
pmix_status_t fence(const pmix_proc_t[], std::size_t, const pmix_info_t[], std::size_t, char* data, std::size_t size,
                    pmix_modex_cbfunc_t callback, void* context) {
  if (callback == nullptr) std::free(data);
  else callback(PMIX_SUCCESS, data, size, context, &std::free, data);
  return PMIX_SUCCESS;
}

// Only for values of ranks on other hosts. There are no such ranks.
pmix_status_t direct_modex(const pmix_proc_t*, const pmix_info_t[], std::size_t, pmix_modex_cbfunc_t, void*) {
  return PMIX_ERR_NOT_FOUND;
}

pmix_server_module_t make_module() {
  pmix_server_module_t module;
  std::memset(&module, 0, sizeof module);
  module.client_connected = client_connected;
  module.client_finalized = client_finalized;
  module.abort = abort_job;
  module.fence_nb = fence;
  module.direct_modex = direct_modex;
  return module;
}

// Returns the name of this host for the library. It copies the letters that a name begins with into a buffer of 50
// bytes (4.2.2, pmix_preg_base_generate_node_regex), however many there are. Ranks of one host need any name.
std::string name_for_library(const std::string& host) {
  constexpr std::size_t most_letters = 48;
  const auto letters =
      std::find_if(host.begin(), host.end(), [](unsigned char letter) { return !std::isalpha(letter); });
  return static_cast<std::size_t>(letters - host.begin()) > most_letters ? host.substr(0, most_letters) : host;
}

class LibraryServer : public Server {
 public:
  // The library's server is not ended here. It ends with the process; the caller removes the folder with its files.
  // When a client dies while it connects, the library (4.2.2, the error path of pmix_ptl_base_connection_handler) drops
  // two references to the rank's record though it holds one: directly, and through the peer object. The record is freed
  // but stays in the name space's list. PMIx_server_deregister_nspace and PMIx_server_finalize then wait forever for
  // the lock in the record. This was seen in 3 of 100 jobs whose ranks are killed while they start;
  // tests/multiprocess/launcher_ends.py has the case.
  ~LibraryServer() override { set_abort_receiver(nullptr); }

  Status start(ServerOptions options) override {
    options_ = std::move(options);
    const std::string host = options_.host;
    options_.host = name_for_library(host);
    set_abort_receiver(options_.on_abort);
    PMIX_LOAD_NSPACE(name_space_, options_.job.c_str());
    // Keeps values in the server's memory and not in files. A killed server would leave the files behind, and their
    // format differs between versions.
    ::setenv("PMIX_MCA_gds", "hash", 1);  // NOLINT(concurrency-mt-unsafe): the launcher has a single thread yet
    InfoList init;
    init.add(PMIX_SERVER_TMPDIR, options_.folder);
    init.add(PMIX_SYSTEM_TMPDIR, options_.folder);
    if (options_.host != host) init.add(PMIX_HOSTNAME, options_.host);  // or the ranks would be of another host
    static pmix_server_module_t module = make_module();
    if (auto status = PMIx_server_init(&module, init.data(), init.size()); status != PMIX_SUCCESS)
      return refused("PMIx_server_init", status);
    HVD_RETURN_IF_ERROR(register_job());
    for (int rank = 0; rank < options_.size; ++rank) {
      pmix_proc_t process = process_of(Rank{rank});
      Completion registered;
      auto status = registered.wait(
          PMIx_server_register_client(&process, ::geteuid(), ::getegid(), nullptr, Completion::callback, &registered));
      if (status != PMIX_SUCCESS) return refused("PMIx_server_register_client", status);
    }
    return {};
  }

  Result<std::vector<std::pair<std::string, std::string>>> variables_for(Rank rank) override {
    pmix_proc_t process = process_of(rank);
    char** environment = nullptr;
    if (auto status = PMIx_server_setup_fork(&process, &environment); status != PMIX_SUCCESS)
      return refused("PMIx_server_setup_fork", status);
    std::vector<std::pair<std::string, std::string>> variables;
    for (char** entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
      std::string text(*entry);
      if (auto equals = text.find('='); equals != std::string::npos)
        variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
      std::free(*entry);
    }
    std::free(environment);
    variables.emplace_back("PMIX_MCA_gds", "hash");
    // Open MPI 4 trusts a PMIx server only if it knows the launcher, for example jsrun. Only this variable makes it
    // believe so.
    variables.emplace_back("JSM_JSRUN_PORT", "0");
    return variables;
  }

 private:
  pmix_proc_t process_of(Rank rank) const {
    pmix_proc_t process;
    PMIX_LOAD_PROCID(&process, name_space_, static_cast<pmix_rank_t>(rank.value));
    return process;
  }

  // Registers everything that clients are known to ask for, in the types that Slurm and Open MPI send.
  Status register_job() {
    auto size = static_cast<std::uint32_t>(options_.size);
    std::string ranks;
    for (std::uint32_t rank = 0; rank < size; ++rank) ranks += (rank == 0 ? "" : ",") + std::to_string(rank);
    char *nodes = nullptr, *processes = nullptr;
    if (auto status = PMIx_generate_regex(options_.host.c_str(), &nodes); status != PMIX_SUCCESS)
      return refused("PMIx_generate_regex", status);
    if (auto status = PMIx_generate_ppn(ranks.c_str(), &processes); status != PMIX_SUCCESS) {
      std::free(nodes);
      return refused("PMIx_generate_ppn", status);
    }
    InfoList job;
    job.add_regex(PMIX_NODE_MAP, nodes);
    job.add_regex(PMIX_PROC_MAP, processes);
    std::free(nodes);
    std::free(processes);
    job.add(PMIX_JOBID, options_.job);
    job.add(PMIX_JOB_SIZE, size);
    job.add(PMIX_UNIV_SIZE, size);
    job.add(PMIX_MAX_PROCS, size);
    job.add(PMIX_LOCAL_SIZE, size);
    job.add(PMIX_NODE_SIZE, size);
    job.add(PMIX_LOCAL_PEERS, ranks);
    job.add_rank(PMIX_LOCALLDR, 0);
    job.add(PMIX_NUM_NODES, std::uint32_t{1});
    job.add(PMIX_NODE_LIST, options_.host);
    job.add(PMIX_ANL_MAP, "(vector,(0,1," + std::to_string(size) + "))");
    job.add(PMIX_JOB_NUM_APPS, std::uint32_t{1});
    job.add(PMIX_APP_SIZE, size);
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      InfoList process;
      process.add_rank(PMIX_RANK, rank);
      process.add(PMIX_LOCAL_RANK, static_cast<std::uint16_t>(rank));
      process.add(PMIX_NODE_RANK, static_cast<std::uint16_t>(rank));
      process.add(PMIX_NODEID, std::uint32_t{0});
      process.add(PMIX_HOSTNAME, options_.host);
      process.add(PMIX_APPNUM, std::uint32_t{0});
      process.add_rank(PMIX_GLOBAL_RANK, rank);
      process.add_rank(PMIX_APP_RANK, rank);
      job.add_array(PMIX_PROC_DATA, std::move(process));
    }
    Completion registered;
    auto status = registered.wait(PMIx_server_register_nspace(name_space_, options_.size, job.data(), job.size(),
                                                              Completion::callback, &registered));
    if (status != PMIX_SUCCESS) return refused("PMIx_server_register_nspace", status);
    return {};
  }

  ServerOptions options_;
  pmix_nspace_t name_space_{};
};

}  // namespace

std::unique_ptr<Server> make_server() {
  return std::make_unique<LibraryServer>();
}

}  // namespace hvd::pmix
