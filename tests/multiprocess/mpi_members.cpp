// A program that uses MPI itself and also horovod.h: `mpiexec -n 4 mpi_members SCENE`. For each mistake that it finds
// it prints a line, and it exits with 1 if there are any.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "allreduce_of.hpp"
#include "horovod.hpp"

namespace {

int failures = 0;
int world_rank = -1, world_size = 0;
bool has_begun = false;  // then the program must end MPI, not the library

void expect(bool truth, const std::string& what) {
  if (truth) return;
  ++failures;
  std::printf("process %d: %s\n", world_rank, what.c_str());
}
void expect_equal(double found, double expected, const std::string& what) {
  expect(found == expected, what + ": expected " + std::to_string(expected) + ", found " + std::to_string(found));
}

// MPI_Abort is not used, because Hydra may then drop the last output of the process.
[[noreturn]] void end_at_once() {
  std::fflush(nullptr);
  ::_exit(1);
}

class Job {
 public:
  explicit Job(const MPI_Comm* communicator = nullptr, const std::vector<int>& ranks = {}) {
    hvd_init_options options{};
    options.struct_size = sizeof options;
    options.mpi_comm = communicator;
    options.mpi_comm_size = sizeof(MPI_Comm);
    options.ranks = ranks.empty() ? nullptr : ranks.data();
    options.rank_count = ranks.size();
    horovod::check(hvd_init_with(&runtime_, &options));
    place.struct_size = sizeof place;
    horovod::check(hvd_get_world(runtime_, &place));
  }
  ~Job() { hvd_shutdown(runtime_); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  double sum(const char* name, double mine, int64_t elements = 1) {
    std::vector<double> values(static_cast<std::size_t>(elements), mine);
    hvd_op_description description = hvd::testing::allreduce_of(name, elements, HVD_FLOAT64, HVD_SUM);
    hvd_op* op = nullptr;
    horovod::check(hvd_prepare(runtime_, &description, &op));
    hvd_start_arguments arguments = hvd_use_of(op, values.data(), values.data());
    hvd_handle handle = 0;
    horovod::check(hvd_start(runtime_, &arguments, 1, &handle));
    horovod::check(hvd_wait(runtime_, handle, -1));
    hvd_release(runtime_, handle);
    for (double value : values)
      if (value != values[0]) return -1;
    return values[0];
  }
  // Returns the error of a sum over all ranks; "" if it succeeds.
  std::string error_of_sum(const char* name, int64_t elements) {
    try {
      sum(name, 1, elements);
    } catch (const horovod::Failure& failure) {
      return failure.what();
    }
    return "";
  }
  // True if SIGUSR1 to rank 0 stops all ranks. MPICH has a handler of its own for it.
  bool stops_upon_a_warning() {
    bool stops = hvd_should_stop(runtime_, 0) > 0;
    if (place.rank == 0) std::raise(SIGUSR1);
    for (int step = 0; step < 10000 && !stops; ++step) {
      sum("step", 1);
      stops = hvd_should_stop(runtime_, 0) > 0;
    }
    return stops;
  }
  int thread_level() const { return hvd_mpi_thread_level(runtime_); }

  hvd_world place{};

 private:
  hvd_runtime* runtime_ = nullptr;
};

void begin(int wanted) {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, wanted, &provided);
  has_begun = true;
  expect(provided >= wanted, "MPI provides thread level " + std::to_string(provided));
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
}

std::string error_of(const hvd_init_options& options) {
  hvd_runtime* runtime = nullptr;
  if (hvd_init_with(&runtime, &options) != HVD_OK) return hvd_last_error();
  hvd_shutdown(runtime);
  return "";
}

// The job has all processes of the world as ranks. Meanwhile another thread of the program runs its own MPI
// collectives.
void whole_world() {
  begin(MPI_THREAD_MULTIPLE);
  Job job;
  expect_equal(job.place.rank, world_rank, "rank");
  expect_equal(job.place.size, world_size, "size");
  expect_equal(job.thread_level(), 3, "thread level");
  std::atomic<bool> done{false};
  std::thread own([&] {
    std::vector<int> out(static_cast<std::size_t>(world_size)), in(out.size());
    for (int turn = 0; turn < 50; ++turn) {
      for (std::size_t to = 0; to < out.size(); ++to) out[to] = world_rank * 1000 + turn;
      MPI_Alltoall(out.data(), 1, MPI_INT, in.data(), 1, MPI_INT, MPI_COMM_WORLD);
      for (std::size_t from = 0; from < in.size(); ++from)
        expect_equal(in[from], static_cast<int>(from) * 1000 + turn, "the program's own alltoall");
    }
    done = true;
  });
  for (int turn = 0; turn < 50; ++turn)
    expect_equal(job.sum("gradient", world_rank + turn, 1000), world_size * (world_size - 1) / 2 + world_size * turn,
                 "sum beside an alltoall");
  own.join();
  expect(job.stops_upon_a_warning(), "SIGUSR1 does not stop a job that started MPI itself");
}

// Two disjoint halves of the world are separate jobs with different numbers of steps. Then the whole world is a job
// again.
void halves() {
  begin(MPI_THREAD_MULTIPLE);
  MPI_Comm half = MPI_COMM_NULL;
  int mine = world_rank % 2;
  MPI_Comm_split(MPI_COMM_WORLD, mine, -world_rank, &half);  // the highest process becomes rank 0
  int half_rank = -1, half_size = 0;
  MPI_Comm_rank(half, &half_rank);
  MPI_Comm_size(half, &half_size);
  for (int again = 0; again < 3; ++again) {
    Job job(&half);
    if (again == 2) MPI_Comm_free(&half);  // the library uses its own copy
    expect_equal(job.place.rank, half_rank, "rank in the half");
    expect_equal(job.place.size, half_size, "size of the half");
    double expected = 0;
    for (int process = mine; process < world_size; process += 2) expected += process;
    for (int turn = 0; turn < 20 + 30 * mine; ++turn)
      expect_equal(job.sum("gradient", world_rank, 5000), expected, "sum of a half");
  }
  MPI_Comm everybody = MPI_COMM_WORLD;
  Job job(&everybody);
  expect_equal(job.sum("all", 1), world_size, "sum of all, after the halves");
}

void list_of_ranks() {
  begin(MPI_THREAD_MULTIPLE);
  std::vector<int> ranks = {world_size - 1, 0};
  if (world_rank == 0 || world_rank == world_size - 1) {
    Job job(nullptr, ranks);
    expect_equal(job.place.rank, world_rank == 0 ? 1 : 0, "rank by the place in the list");
    expect_equal(job.place.size, 2, "size of the list");
    expect_equal(job.sum("listed", 1), 2, "sum of the listed");
  } else {
    hvd_init_options options{};
    options.struct_size = sizeof options;
    options.ranks = ranks.data();
    options.rank_count = ranks.size();
    std::string error = error_of(options);
    expect(error.find("not in the list") != std::string::npos, "error of one who is not in the list: " + error);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  std::vector<int> all;
  for (int rank = 0; rank < world_size; ++rank) all.push_back(rank);
  Job job(nullptr, all);
  expect_equal(job.sum("all", 1), world_size, "sum of a list of all");
}

void refusals() {
  begin(MPI_THREAD_MULTIPLE);
  MPI_Comm none = MPI_COMM_NULL;
  hvd_init_options options{};
  options.struct_size = sizeof options;
  options.mpi_comm = &none;
  options.mpi_comm_size = sizeof none;
  std::string error = error_of(options);
  expect(error.find("MPI_COMM_NULL") != std::string::npos, "error of the null communicator: " + error);
  options.mpi_comm_size = sizeof none == 4 ? 8 : 4;
  error = error_of(options);
  expect(error.find("another MPI") != std::string::npos, "error of another MPI's handle: " + error);
  int twice[] = {0, 0}, far[] = {0, 1000};
  for (int* ranks : {twice, far}) {
    options = {};
    options.struct_size = sizeof options;
    options.ranks = ranks;
    options.rank_count = 2;
    error = error_of(options);
    expect(error.find("different ranks") != std::string::npos, "error of an impossible list: " + error);
  }
  MPI_Comm alone = MPI_COMM_SELF;
  Job job(&alone);
  expect_equal(job.place.size, 1, "size of a communicator of one");
  expect_equal(job.sum("alone", 7), 7, "sum of one");
}

// This MPI does not allow calls from threads. The ranks meet by MPI, but communicate without it.
void without_threads() {
  begin(MPI_THREAD_SINGLE);
  Job job;
  int level = 0;
  MPI_Query_thread(&level);
  expect_equal(job.thread_level(), level == MPI_THREAD_MULTIPLE ? 3 : -1, "thread level");
  expect_equal(job.sum("gradient", 1), world_size, "sum without MPI");
}

// The program does not initialise MPI. The library does, and it finalises MPI when the process exits.
void library_starts_it() {
  Job job;
  int is_there = 0;
  MPI_Initialized(&is_there);
  expect(is_there != 0, "HOROVOD_MPI did not start MPI");
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  expect_equal(job.place.rank, world_rank, "rank");
  expect_equal(job.place.size, world_size, "size");
  expect_equal(job.sum("gradient", 1), world_size, "sum");
  expect(job.stops_upon_a_warning(), "SIGUSR1 does not stop a job of which the library started MPI");
}

int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  expect(false, "the launcher does not tell this process's rank");
  return 0;
}

// One process starts MPI itself. In the others the library starts it.
void one_starts_it() {
  if (launched_rank() == 0) begin(MPI_THREAD_MULTIPLE);
  library_starts_it();
}

// Two processes are a job and let the library start MPI. The third is not part of the job. It ends its MPI when they
// are done.
void two_beside_a_third() {
  if (launched_rank() == 2) {
    begin(MPI_THREAD_MULTIPLE);
    int done = 0;
    MPI_Recv(&done, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return;
  }
  Job job(nullptr, {0, 1});
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  expect_equal(job.sum("gradient", 1), 2, "sum of two");
  int done = 1;
  if (world_rank == 0) MPI_Send(&done, 1, MPI_INT, 2, 0, MPI_COMM_WORLD);
}

// The program ends MPI before the runtime ends. This happens when the runtime is a local variable of main().
void ends_mpi_first() {
  begin(MPI_THREAD_MULTIPLE);
  std::vector<int> ranks(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) ranks[static_cast<std::size_t>(rank)] = world_size - 1 - rank;
  for (const std::vector<int>& members : {std::vector<int>{}, ranks}) {
    Job before(nullptr, members);
    expect_equal(before.sum("gradient", 1), world_size, "sum");
  }
  Job job(nullptr, ranks);
  expect_equal(job.sum("gradient", 1, 100'000), world_size, "sum");
  const char* hosts = std::getenv("HVD_HOSTS");
  bool is_over_mpi = hosts != nullptr && std::strchr(hosts, ',') != nullptr;
  std::string waited;
  // If MPI is the transport, only rank 0 submits this sum. Therefore rank 0 still waits for it when MPI ends.
  std::thread waiting([&] {
    if (world_rank == 0) waited = job.error_of_sum("never", 1000);
  });
  if (!is_over_mpi && world_rank == 1) (void)job.error_of_sum("never", 1000);  // MPI_Finalize does not end it here
  if (!is_over_mpi) waiting.join();
  MPI_Finalize();
  has_begun = false;
  if (is_over_mpi) {
    waiting.join();
    for (const std::string& error :
         {world_rank == 0 ? waited : job.error_of_sum("late", 1), job.error_of_sum("later", 1)})
      expect(error.find("MPI_Finalize") != std::string::npos, "an operation failed of '" + error + "'");
  } else {
    expect_equal(job.sum("gradient", 1), world_size, "sum without MPI");
  }
}

// Only process 0 joins the job. A process that waits in MPI for the others waits forever, and then cannot end MPI.
void only_one_comes(const std::vector<int>& ranks) {
  begin(MPI_THREAD_MULTIPLE);
  if (world_rank != 0) {
    int nothing = 0;
    MPI_Recv(&nothing, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  hvd_init_options options{};
  options.struct_size = sizeof options;
  options.ranks = ranks.empty() ? nullptr : ranks.data();
  options.rank_count = ranks.size();
  std::printf("init said: %s\n", error_of(options).c_str());
  std::printf("then it said: %s\n", error_of(options).c_str());
  end_at_once();
}
void one_comes() {
  only_one_comes({});
}
void one_of_a_list_comes() {
  only_one_comes({1, 0});
}

// Runs under any launcher, on the hosts of HVD_HOSTS (by rank, "n1,n1,n2"). Checks that MPI knows all processes and
// which of them share a node, whether the program or the library initialises MPI, and that the library works with this
// MPI.
void check_hosts() {
  std::vector<std::string> hosts;
  const char* text = std::getenv("HVD_HOSTS");
  std::istringstream in(text != nullptr ? text : "");
  for (std::string host; std::getline(in, host, ',');) hosts.push_back(host);
  if (hosts.empty()) return;
  expect_equal(world_size, static_cast<double>(hosts.size()), "size of MPI_COMM_WORLD");
  if (world_size != static_cast<int>(hosts.size())) return;
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  int here = 0;
  MPI_Comm_size(node, &here);
  auto mine = std::count(hosts.begin(), hosts.end(), hosts[static_cast<std::size_t>(world_rank)]);
  expect_equal(here, static_cast<double>(mine), "processes that MPI takes to share the node");
}

void on_hosts() {
  begin(MPI_THREAD_MULTIPLE);
  check_hosts();
  for (int again = 0; again < 3; ++again) {
    Job job;
    expect_equal(job.place.rank, world_rank, "rank");
    expect_equal(job.place.size, world_size, "size");
    if (world_size > 1) expect_equal(job.thread_level(), 3, "thread level");
    for (int turn = 0; turn < 20; ++turn)
      expect_equal(job.sum("gradient", world_rank + turn, 100'000),
                   world_size * (world_size - 1) / 2 + world_size * turn, "sum");
  }
}

// A rank's program that uses MPI but not the library.
void only_mpi_on_hosts() {
  begin(MPI_THREAD_SINGLE);
  check_hosts();
}

// Between nodes, MPI_Finalize of MPICH 4 hangs in every other job of any program when ranks call it one after another
// (UCX over TCP). If the library itself talks to the launcher, it cannot avoid this. Therefore this rank only tells the
// launcher that it leaves.
void end_without_finalize() {
  const char* descriptor = std::getenv("PMI_FD");
  const char* hosts = std::getenv("HVD_HOSTS");
  if (descriptor == nullptr || hosts == nullptr || std::strchr(hosts, ',') == nullptr) return;
  MPI_Barrier(MPI_COMM_WORLD);
  const char leave[] = "cmd=finalize\n";
  char answer[256];
  if (::write(std::atoi(descriptor), leave, sizeof leave - 1) > 0)
    (void)!::read(std::atoi(descriptor), answer, sizeof answer);
  std::fflush(nullptr);
  ::_exit(0);
}

void library_starts_it_on_hosts() {
  library_starts_it();
  check_hosts();
}

}  // namespace

int main(int count, char** words) {
  const struct {
    const char* name;
    void (*play)();
  } scenes[] = {{"whole_world", &whole_world},
                {"halves", &halves},
                {"list_of_ranks", &list_of_ranks},
                {"refusals", &refusals},
                {"without_threads", &without_threads},
                {"library_starts_it", &library_starts_it},
                {"one_starts_it", &one_starts_it},
                {"two_beside_a_third", &two_beside_a_third},
                {"ends_mpi_first", &ends_mpi_first},
                {"one_comes", &one_comes},
                {"one_of_a_list_comes", &one_of_a_list_comes},
                {"on_hosts", &on_hosts},
                {"only_mpi_on_hosts", &only_mpi_on_hosts},
                {"library_starts_it_on_hosts", &library_starts_it_on_hosts}};
  for (const auto& scene : scenes) {
    if (count != 2 || std::strcmp(words[1], scene.name) != 0) continue;
    try {
      scene.play();
    } catch (const horovod::Failure& failure) {
      expect(false, failure.what());
    }
    if (failures != 0) end_at_once();
    if (scene.play == &on_hosts) end_without_finalize();
    if (has_begun) MPI_Finalize();
    return 0;
  }
  std::fprintf(stderr, "usage: mpiexec -n N mpi_members SCENE, one of");
  for (const auto& scene : scenes) std::fprintf(stderr, " %s", scene.name);
  std::fprintf(stderr, "\n");
  return 2;
}
