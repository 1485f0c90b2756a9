// The bootstrap of ranks whose launcher speaks PMI-1: MPICH's mpiexec, srun --mpi=pmi2, Flux.
#include <cstdlib>
#include <memory>
#include <mutex>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/launch/launch.hpp"
#include "bootstrap/pmi/connection.hpp"
#include "bootstrap/pmi/values.hpp"
#include "native/mpi/process.hpp"

namespace hvd::bootstrap {
namespace {

// limit for answers of the server that do not depend on another rank
constexpr auto answer_time = std::chrono::seconds(30);
constexpr std::size_t largest_value = 1 << 20;

using State = mpi::Mapped::State;

// Returns the state of that MPI in this process which asks a PMI server. It does not matter who loaded this MPI. Open
// MPI asks other servers and does not count here.
State state_of_mpi_over_pmi() {
  for (const mpi::Mapped& library : mpi::mapped_libraries())
    if (std::string_view(library.abi) != "openmpi" && library.state != State::loaded) return library.state;
  return State::loaded;
}

// A process has one connection in its life (connection.hpp) and finalizes it at exit. The connection is never
// destroyed.
Result<pmi::Connection*> connection_of_this_process(const Environment& environment, Deadline deadline) {
  static auto* mutex = new std::mutex;
  static pmi::Connection* connection = nullptr;
  std::lock_guard lock(*mutex);
  if (connection != nullptr) return connection;
  const State mpi = state_of_mpi_over_pmi();
  if (mpi == State::finalised)
    return Error(ErrorCode::unsupported,
                 "PMI: the MPI library of this process was finalised, and with it the connection to the launcher: "
                 "call hvd.init() before MPI_Finalize");
  auto opened = pmi::Connection::open(environment, mpi == State::running, deadline);
  if (!opened) return std::move(opened.error());
  connection = opened->release();
  // A launcher takes a process that ends without finalize for a process that died.
  std::atexit([] { connection->finalize(); });
  return connection;
}

class Pmi final : public Bootstrap {
 public:
  const char* name() const override { return "pmi"; }
  bool detected(const Environment& environment) const override { return has_pmi_server(environment); }

  Result<Identity> join(const Environment& environment, const Config& config) override {
    auto patience = milliseconds_of(config.start_timeout_s);
    auto connection = connection_of_this_process(environment, Deadline::after(patience));
    if (!connection) return std::move(connection.error());
    connection_ = *connection;
    return Identity{Rank{connection_->rank()}, connection_->size(), "pmi-" + connection_->key_value_space()};
  }

  Status put(std::string_view key, ConstBytes value) override {
    if (key.empty() || value.size() > largest_value)
      return Error(ErrorCode::invalid_argument,
                   "PMI: \"" + std::string(key) + "\" has " + std::to_string(value.size()) +
                       " bytes; expected a key, and up to " + std::to_string(largest_value));
    auto deadline = Deadline::after(answer_time);
    auto pieces = pmi::pieces_of(value, connection_->longest_value());
    for (std::size_t piece = 0; piece < pieces.size(); ++piece)
      HVD_RETURN_IF_ERROR(
          connection_->put(pmi::key_of(Rank{connection_->rank()}, key, piece), pieces[piece], deadline));
    return {};
  }

  Result<Buffer> get(Rank from, std::string_view key, Deadline deadline) override {
    std::vector<std::string> pieces;
    std::size_t count = 1;
    for (std::size_t piece = 0; piece < count; ++piece) {
      auto text = connection_->get(pmi::key_of(from, key, piece), deadline);
      if (!text) return std::move(text.error());
      if (piece == 0) count = pmi::number_of_pieces(*text).value_or(0);
      pieces.push_back(std::move(*text));
    }
    auto value = count > 0 ? pmi::value_of(pieces) : std::nullopt;
    if (value) return std::move(*value);
    return Error(ErrorCode::system, "PMI: the value \"" + std::string(key) + "\" of rank " +
                                        std::to_string(from.value) + " came damaged from the launcher's server");
  }

  Status fence(Deadline deadline) override { return connection_->barrier(deadline); }
  void abort(std::string_view) noexcept override { connection_->abort(); }

 private:
  pmi::Connection* connection_ = nullptr;  // null before join()
};

}  // namespace

std::unique_ptr<Bootstrap> make_pmi() {
  return std::make_unique<Pmi>();
}

}  // namespace hvd::bootstrap
