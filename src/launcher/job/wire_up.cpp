#include "launcher/job/wire_up.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "bootstrap/pmix/plugin.hpp"
#include "native/posix/files/random.hpp"

namespace hvd::launcher {

namespace {

Result<const bootstrap::PmixPlugin*> plugin_with_server(const Environment& environment) {
  auto plugin = posix::open_plugin<bootstrap::PmixPlugin>("pmix", environment);
  if (plugin && (*plugin)->make_server == nullptr)
    return Error(ErrorCode::unsupported, "the PMIx plugin was built without the server");
  return plugin;
}

}  // namespace

WayToMeet way_to_meet(bool is_on_several_hosts, const Environment& environment) {
  if (is_on_several_hosts)
    return {"rendezvous", "there are several hosts; the ranks meet at a store of horovodrun's over TCP"};
  auto plugin = plugin_with_server(environment);
  if (plugin) return {"pmix", "horovodrun is a PMIx server for the ranks of one machine"};
  return {"environment", "the ranks meet at a store of horovodrun's on this machine", plugin.error().message};
}

Result<std::unique_ptr<WireUp>> WireUp::start(const WireUpOptions& options, const Environment& environment,
                                              std::vector<std::string>& notices) {
  std::unique_ptr<WireUp> wire_up(new WireUp);
  wire_up->abort_event_ = posix::FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wire_up->abort_event_) return system_error("cannot watch for the ends of ranks (eventfd)", errno);
  if (options.is_on_several_hosts || options.is_elastic) {
    HVD_RETURN_IF_ERROR(wire_up->start_tcp_store(options));
    return wire_up;
  }
  auto store = bootstrap::LocalStoreServer::open(
      {options.job, options.size, [raw = wire_up.get()](Rank rank, std::string_view reason) {
         raw->request({rank, 1, std::string(reason)});
       }});
  if (!store) return std::move(store.error());
  wire_up->store_ = std::move(*store);

  std::string forced = environment.get("HOROVOD_BOOTSTRAP").value_or("");
  if (!forced.empty() && forced != "pmix") return wire_up;
  if (auto started = wire_up->start_pmix(options, environment); !started) {
    if (forced == "pmix")
      return Error(started.error().code,
                   "HOROVOD_BOOTSTRAP=pmix, but there is no PMIx server: " + started.error().message);
    notices.push_back("no PMIx here, the ranks meet over horovodrun's own store: " + started.error().message);
  }
  return wire_up;
}

Status WireUp::start_tcp_store(const WireUpOptions& options) {
  auto store =
      bootstrap::TcpStoreServer::open({options.job, options.is_elastic ? 0 : options.size, posix::random_hex(32),
                                       options.ports.first, options.ports.last, options.interfaces,
                                       [this](Rank rank, std::string_view reason) {
                                         request({rank, 1, std::string(reason)});
                                       },
                                       [this](const bootstrap::AskForPlace& ask) { asks_.push_back(ask); }});
  if (!store) return std::move(store.error());
  tcp_store_ = std::move(*store);
  return {};
}

Status WireUp::start_pmix(const WireUpOptions& options, const Environment& environment) {
  auto plugin = plugin_with_server(environment);
  if (!plugin) return std::move(plugin.error());
  if (!options.folder) return Error(options.folder.error());
  auto server = (*plugin)->make_server();
  HVD_RETURN_IF_ERROR(server->start(
      {options.job, options.size, options.host, *options.folder, [this](Rank rank, int status, std::string message) {
         request({rank, status, std::move(message)});
       }}));
  server_ = std::move(server);
  return {};
}

WireUp::~WireUp() {
  server_.reset();
}

Result<std::vector<std::pair<std::string, std::string>>> WireUp::variables_for(Rank rank) {
  auto variables = store_ != nullptr ? store_->variables() : tcp_store_->variables();
  if (server_ != nullptr) {
    auto more = server_->variables_for(rank);
    if (!more) return more;
    variables.insert(variables.end(), more->begin(), more->end());
  }
  return variables;
}

void WireUp::request(AbortRequest request) {
  std::lock_guard lock(mutex_);
  requests_.push_back(std::move(request));
  std::uint64_t one = 1;
  (void)!::write(abort_event_.get(), &one, sizeof one);
}

void WireUp::rank_ended(Rank rank, const std::string& how) {
  if (store_ != nullptr) store_->rank_ended(rank, how);
  else tcp_store_->rank_ended(rank, how);
}

std::vector<AbortRequest> WireUp::serve() {
  if (store_ != nullptr) store_->serve();
  else tcp_store_->serve();
  std::uint64_t count = 0;
  (void)!::read(abort_event_.get(), &count, sizeof count);
  std::lock_guard lock(mutex_);
  return std::exchange(requests_, {});
}

}  // namespace hvd::launcher
