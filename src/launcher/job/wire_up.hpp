#pragma once
// Provides what the ranks need to find each other. On one host: a PMIx server if the plugin and its library are there,
// and always our own store, because a rank in another container or another Python may lack PMIx. On several hosts: our
// store over TCP.
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "base/settings/environment.hpp"
#include "bootstrap/store/local_store.hpp"
#include "bootstrap/store/tcp_server.hpp"
#include "launcher/job/way_to_meet.hpp"
#include "native/pmix/server.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::launcher {

// Returns the way in which the ranks will meet if WireUp opens it; HOROVOD_BOOTSTRAP may force another one. May open
// libpmix.
WayToMeet way_to_meet(bool is_on_several_hosts, const Environment& environment);

struct AbortRequest {
  Rank rank;
  int status = 1;
  std::string reason;
};

struct WireUpOptions {
  std::string job;
  int size = 1;
  std::string host;
  Result<std::string> folder;  // the folder for files of the PMIx server; an error says why there is none
  bool is_on_several_hosts = false;
  bool is_elastic = false;                // the ranks come and go: our store over TCP, also on one host, and no PMIx
  std::vector<std::string> interfaces{};  // interfaces to listen on, for several hosts; empty: all
  PortRange ports{};
};

// Used by one thread. Start it after the agent was forked, because the PMIx server has threads.
class WireUp {
 public:
  // `notices` gets a line if there is no PMIx server.
  static Result<std::unique_ptr<WireUp>> start(const WireUpOptions& options, const Environment& environment,
                                               std::vector<std::string>& notices);
  ~WireUp();

  Result<std::vector<std::pair<std::string, std::string>>> variables_for(Rank rank);
  bool has_pmix() const noexcept { return server_ != nullptr; }

  // For the owner's poll(): each of the two is readable when serve() has something to do.
  int store_descriptor() const { return store_ != nullptr ? store_->descriptor() : tcp_store_->descriptor(); }
  int abort_descriptor() const { return abort_event_.get(); }
  // Serves the store. Returns what ranks asked for since the last call.
  std::vector<AbortRequest> serve();
  void rank_ended(Rank rank, const std::string& how);
  // For ranks that come and go: which processes have asked for a place since the last call, and the store that answers.
  std::vector<bootstrap::AskForPlace> take_asks() { return std::exchange(asks_, {}); }
  bootstrap::StoreGenerations& generations() { return tcp_store_->generations(); }

 private:
  WireUp() = default;
  void request(AbortRequest request);  // may be called by any thread
  Status start_tcp_store(const WireUpOptions& options);
  Status start_pmix(const WireUpOptions& options, const Environment& environment);

  std::unique_ptr<bootstrap::LocalStoreServer> store_;  // exactly one of the two stores exists
  std::unique_ptr<bootstrap::TcpStoreServer> tcp_store_;
  posix::FileDescriptor abort_event_;
  std::mutex mutex_;
  std::vector<AbortRequest> requests_;
  std::vector<bootstrap::AskForPlace> asks_;
  std::unique_ptr<pmix::Server> server_;  // this member is destroyed first, because its threads use the members above
};

}  // namespace hvd::launcher
