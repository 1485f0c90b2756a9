#pragma once
// What libhorovod_mpi-ABI.so hands over: the calls of an MPI library that we need, without its header. One source
// (calls.cpp), built once for every ABI; opened by process.hpp.
//
// Threads: as MPI's level allows. Nothing here has state of its own.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.hpp"
#include "base/collective.hpp"
#include "base/deadline.hpp"
#include "base/result.hpp"
#include "native/posix/plugin.hpp"

namespace hvd::mpi {

// The numbers are ours, in MPI's order.
enum class ThreadLevel : int { single, funneled, serialized, multiple };
const char* name_of(ThreadLevel level) noexcept;

// A handle of MPI's, of whatever type in this ABI.
enum class Request : std::uintptr_t {};

enum class Completion : std::uint8_t { pending, done, cancelled, failed };

// One of MPI's own collectives, over contiguous memory.
struct CollectiveCall {
  Verb verb = Verb::barrier;
  DataType dtype = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  const void* input = nullptr;  // allreduce, broadcast: unused, the output is where everything happens
  void* output = nullptr;
  std::int64_t count = 0;  // allreduce, broadcast: elements; below 2^31
  // Elements by rank, borrowed until the call is done; for allgather, reduce_scatter, and the input of an alltoall.
  std::span<const int> counts;
  std::span<const int> displacements;  // allgather, alltoall
  // Of an alltoall's output.
  std::span<const int> received_counts, received_displacements;
};

// A communicator of ours. Its errors are returned, in the words of the MPI library.
class Communicator {
 public:
  virtual ~Communicator() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }
  int highest_tag() const { return highest_tag_; }

  // Below 2^31 bytes. The memory is borrowed until test() says that it is over.
  virtual Status isend(int to, ConstBytes bytes, int tag, Request& request) = 0;
  virtual Status irecv(int from, Bytes bytes, int tag, Request& request) = 0;
  // Never blocks; lets MPI make progress. `received` is set when a receive is done.
  virtual Completion test(Request& request, std::size_t& received) = 0;
  virtual void cancel(Request& request) noexcept = 0;
  virtual Status start(const CollectiveCall& call, Request& request) = 0;
  // Lets MPI move what it still has under way, when there is nothing to test.
  virtual void progress() noexcept = 0;
  // What test() failed of.
  virtual const Error& failure() const = 0;

  // Blocking and collective over the communicator; all ranks give equal lengths.
  virtual Status allgather(ConstBytes mine, Bytes all) = 0;
  // Blocking and collective over the members alone; `members` are ranks of this communicator, in the order of the new
  // one. Members that make several at the same time need different tags.
  virtual Result<std::unique_ptr<Communicator>> subgroup(std::span<const int> members, int tag) = 0;
  // The destructor does not free it: freeing is collective, and after a failure it is better left alone.
  virtual void release() noexcept = 0;

 protected:
  int rank_ = 0, size_ = 1, highest_tag_ = 0;
};

struct MpiPlugin {
  posix::PluginStamp stamp;
  const char* abi;           // "mpich", "openmpi", "abi"
  std::size_t handle_bytes;  // sizeof(MPI_Comm)
  const void* (*where)();    // a function of the MPI library that the plugin was bound to
  std::string (*version)();  // of the library, first line; callable at any time
  bool (*is_initialized)();
  bool (*is_finalized)();
  // Calls MPI_Init_thread and returns the level that it provides.
  Result<ThreadLevel> (*initialize)(ThreadLevel wanted);
  ThreadLevel (*thread_level)();
  void (*finalize)();
  // From now on MPI_Finalize, whoever calls it, calls this before it ends anything. Once per process.
  void (*before_finalize)(void (*hook)());
  // Blocking and collective over it: a communicator of ours with the processes of the world, or of the MPI_Comm at that
  // address. ErrorCode::timeout if some do not come: MPI is still at it then, and must not be closed.
  Result<std::unique_ptr<Communicator>> (*duplicate)(const void* communicator, Deadline deadline);
  bool (*is_world)(const void* communicator);  // whether the MPI_Comm at that address is MPI_COMM_WORLD
  // The world itself, for making subgroups of it; local. Nothing is ever sent over it.
  Result<std::unique_ptr<Communicator>> (*world)();
  // Whether MPI reduces a type in the same way as our own kernels.
  bool (*reduces)(DataType dtype, ReduceOp op);
};

}  // namespace hvd::mpi
