#pragma once
// What libhorovod_mpi-ABI.so hands over: the calls of an MPI library that we need, without its header. There is one
// source (calls.cpp). It is built once for every ABI; process.hpp opens the result.
//
// The calls may be made by as many threads as MPI's level allows. They have no state of their own.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.hpp"
#include "base/collective.hpp"
#include "base/deadline.hpp"
#include "base/result.hpp"
#include "native/posix/plugins/plugin.hpp"

namespace hvd::mpi {

// The numbers are ours, in MPI's order.
enum class ThreadLevel : int { single, funneled, serialized, multiple };
const char* name_of(ThreadLevel level) noexcept;

// Holds a handle of MPI's, which has another type in each ABI.
enum class Request : std::uintptr_t {};

enum class Completion : std::uint8_t { pending, done, cancelled, failed };

// A call of one of MPI's own collectives, over contiguous memory.
struct CollectiveCall {
  Verb verb = Verb::barrier;
  DataType dtype = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  const void* input = nullptr;  // unused for allreduce and broadcast, which work in the output
  void* output = nullptr;
  std::int64_t count = 0;  // number of elements for allreduce and broadcast, below 2^31
  // The numbers of elements by rank. They are borrowed until the call is done. For allgather, reduce_scatter, and the
  // input of an alltoall.
  std::span<const int> counts;
  std::span<const int> displacements;  // where each rank's part begins, for allgather and alltoall
  // For the output of an alltoall.
  std::span<const int> received_counts, received_displacements;
};

// A communicator that belongs to us. Its errors are returned with the texts of the MPI library.
class Communicator {
 public:
  virtual ~Communicator() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }
  int highest_tag() const { return highest_tag_; }

  // `bytes` has less than 2^31 bytes. The memory is borrowed until test() says that the request is over.
  virtual Status isend(int to, ConstBytes bytes, int tag, Request& request) = 0;
  virtual Status irecv(int from, Bytes bytes, int tag, Request& request) = 0;
  // Never blocks. Lets MPI make progress. Sets `received` when a receive is done.
  virtual Completion test(Request& request, std::size_t& received) = 0;
  virtual void cancel(Request& request) noexcept = 0;
  virtual Status start(const CollectiveCall& call, Request& request) = 0;
  // Lets MPI make progress with what is under way, when there is nothing to test.
  virtual void progress() noexcept = 0;
  // The reason why test() failed.
  virtual const Error& failure() const = 0;

  // Blocking and collective over the communicator. All ranks give equal lengths.
  virtual Status allgather(ConstBytes mine, Bytes all) = 0;
  // Blocking, and collective over the members only. `members` are ranks of this communicator, in the order of the new
  // one. Members that make several communicators at the same time need different tags.
  virtual Result<std::unique_ptr<Communicator>> subgroup(std::span<const int> members, int tag) = 0;
  // Frees the communicator. The destructor does not do this, because freeing is collective, and after a failure it is
  // better not done.
  virtual void release() noexcept = 0;

 protected:
  int rank_ = 0, size_ = 1, highest_tag_ = 0;
};

struct MpiPlugin {
  posix::PluginStamp stamp;
  const char* abi;           // name of the ABI: "mpich", "openmpi", "abi"
  std::size_t handle_bytes;  // sizeof(MPI_Comm)
  const void* (*where)();    // a function of the MPI library that the plugin was bound to
  std::string (*version)();  // first line of the library's version; callable at any time
  bool (*is_initialized)();
  bool (*is_finalized)();
  // Calls MPI_Init_thread and returns the level that it provides.
  Result<ThreadLevel> (*initialize)(ThreadLevel wanted);
  ThreadLevel (*thread_level)();
  void (*finalize)();
  // From now on MPI_Finalize, no matter who calls it, calls `hook` before it ends anything. Once per process.
  void (*before_finalize)(void (*hook)());
  // Makes a communicator of ours with the processes of the world, or of the MPI_Comm at that address. Blocking and
  // collective over these processes. Fails with ErrorCode::timeout if some do not come: MPI is still working on the
  // call then, and must not be closed.
  Result<std::unique_ptr<Communicator>> (*duplicate)(const void* communicator, Deadline deadline);
  bool (*is_world)(const void* communicator);  // true if the MPI_Comm at that address is MPI_COMM_WORLD
  // Returns the world itself, for making subgroups of it. A local call. Nothing is ever sent over this communicator.
  Result<std::unique_ptr<Communicator>> (*world)();
  // True if MPI reduces this type as our own kernels do.
  bool (*reduces)(DataType dtype, ReduceOp op);
};

}  // namespace hvd::mpi
