// A rank that uses PMIx as any program may. "meet": init, put, fence, get of all ranks' values, finalize, several
// times, and a look at the keys that programs rely on. "abort": asks for the end of the job. "lose": its children
// connect to the server and are killed at various times.
#include <pmix.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

int fail(const char* what, pmix_status_t status) {
  std::fprintf(stderr, "%s: %s\n", what, PMIx_Error_string(status));
  return 1;
}

// Returns the value as a number, whatever its width; -1 if there is none.
long number(const pmix_proc_t& who, const char* key) {
  pmix_value_t* value = nullptr;
  if (PMIx_Get(&who, key, nullptr, 0, &value) != PMIX_SUCCESS) return -1;
  long result = -1;
  if (value->type == PMIX_UINT32) result = value->data.uint32;
  if (value->type == PMIX_UINT16) result = value->data.uint16;
  if (value->type == PMIX_PROC_RANK) result = value->data.rank;
  PMIX_VALUE_RELEASE(value);
  return result;
}

std::string text(const pmix_proc_t& who, const char* key) {
  pmix_value_t* value = nullptr;
  if (PMIx_Get(&who, key, nullptr, 0, &value) != PMIX_SUCCESS) return "(none)";
  std::string result = value->type == PMIX_STRING ? value->data.string : "(no text)";
  PMIX_VALUE_RELEASE(value);
  return result;
}

int check(bool right, const char* what) {
  if (!right) std::fprintf(stderr, "wrong: %s\n", what);
  return right ? 0 : 1;
}

int check_keys(const pmix_proc_t& me, const pmix_proc_t& job, std::uint32_t size) {
  std::string peers;
  for (std::uint32_t rank = 0; rank < size; ++rank) peers += (rank == 0 ? "" : ",") + std::to_string(rank);
  int wrong = check(number(job, PMIX_UNIV_SIZE) == size, PMIX_UNIV_SIZE) +
              check(number(job, PMIX_LOCAL_SIZE) == size, PMIX_LOCAL_SIZE) +
              check(number(job, PMIX_NUM_NODES) == 1, PMIX_NUM_NODES) +
              check(text(job, PMIX_LOCAL_PEERS) == peers, PMIX_LOCAL_PEERS) +
              check(text(job, PMIX_ANL_MAP) == "(vector,(0,1," + std::to_string(size) + "))", PMIX_ANL_MAP) +
              check(number(me, PMIX_LOCAL_RANK) == me.rank, PMIX_LOCAL_RANK) +
              check(number(me, PMIX_NODE_RANK) == me.rank, PMIX_NODE_RANK) +
              check(number(me, PMIX_APPNUM) == 0, PMIX_APPNUM) + check(number(me, PMIX_NODEID) == 0, PMIX_NODEID);
  pmix_proc_t last = me;
  last.rank = size - 1;
  wrong += check(text(last, PMIX_HOSTNAME) == text(job, PMIX_NODE_LIST), PMIX_HOSTNAME);
  char* nodes = nullptr;
  wrong += check(PMIx_Resolve_nodes(me.nspace, &nodes) == PMIX_SUCCESS && nodes == text(job, PMIX_NODE_LIST),
                 "Resolve_nodes");
  pmix_proc_t* processes = nullptr;
  std::size_t count = 0;
  wrong +=
      check(PMIx_Resolve_peers(nodes, me.nspace, &processes, &count) == PMIX_SUCCESS && count == size, "Resolve_peers");
  std::free(nodes);
  PMIX_PROC_FREE(processes, count);
  return wrong;
}

int meet(int round) {
  pmix_proc_t me, job;
  if (auto status = PMIx_Init(&me, nullptr, 0); status != PMIX_SUCCESS) return fail("PMIx_Init", status);
  PMIX_LOAD_PROCID(&job, me.nspace, PMIX_RANK_WILDCARD);
  long size = number(job, PMIX_JOB_SIZE);
  if (size != std::atoi(std::getenv("HOROVOD_SIZE")) ||
      me.rank != std::strtoul(std::getenv("HOROVOD_RANK"), nullptr, 10)) {
    std::fprintf(stderr, "PMIx says rank %u of %ld\n", me.rank, size);
    return 1;
  }
  if (round == 0 && check_keys(me, job, static_cast<std::uint32_t>(size)) != 0) return 1;
  std::string key = "key-" + std::to_string(round);
  pmix_value_t mine;
  std::uint32_t number_of_mine = me.rank * 1000 + static_cast<std::uint32_t>(round);
  PMIX_VALUE_LOAD(&mine, &number_of_mine, PMIX_UINT32);
  if (auto status = PMIx_Put(PMIX_GLOBAL, key.c_str(), &mine); status != PMIX_SUCCESS) return fail("PMIx_Put", status);
  if (auto status = PMIx_Commit(); status != PMIX_SUCCESS) return fail("PMIx_Commit", status);
  bool collect = true;
  pmix_info_t info;
  PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
  pmix_status_t fenced = PMIX_ERR_PARTIAL_SUCCESS;
  // A rank may still be in the finalize of its last round. The library's server then takes it for lost. All ranks that
  // waited learn that and try again.
  for (int attempt = 0; fenced == PMIX_ERR_PARTIAL_SUCCESS && attempt < (round == 0 ? 1 : 100); ++attempt)
    fenced = PMIx_Fence(&job, 1, &info, 1);
  if (fenced != PMIX_SUCCESS) return fail("PMIx_Fence", fenced);
  for (pmix_rank_t other = 0; other < static_cast<pmix_rank_t>(size); ++other) {
    pmix_proc_t process = me;
    process.rank = other;
    if (number(process, key.c_str()) != static_cast<long>(other) * 1000 + round)
      return check(false, "value of another rank");
  }
  if (auto status = PMIx_Finalize(nullptr, 0); status != PMIX_SUCCESS) return fail("PMIx_Finalize", status);
  return 0;
}

// Each child is killed a little later in its life than the child before. Therefore many die while the server answers
// them.
int lose() {
  for (useconds_t delay_us = 0; delay_us < 10'000; delay_us += 100) {
    pid_t child = ::fork();
    if (child == 0) {
      pmix_proc_t me;
      PMIx_Init(&me, nullptr, 0);
      ::_exit(0);
    }
    if (child < 0) return check(false, "fork");
    ::usleep(delay_us);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  return 0;
}

}  // namespace

// A sanitizer that is built into the program calls these functions. libpmix leaks memory at every initialisation and is
// not compiled for sanitizers.
extern "C" {
__attribute__((visibility("default"))) int __lsan_is_turned_off();
__attribute__((visibility("default"))) const char* __tsan_default_suppressions();
int __lsan_is_turned_off() {
  return 1;
}
const char* __tsan_default_suppressions() {
  return "race:libpmix.so\nmutex:libpmix.so\ndeadlock:libpmix.so\nthread:libpmix.so";
}
}

int main(int, char** arguments) {
  if (std::strcmp(arguments[1], "abort") == 0) {
    pmix_proc_t me;
    if (auto status = PMIx_Init(&me, nullptr, 0); status != PMIX_SUCCESS) return fail("PMIx_Init", status);
    PMIx_Abort(9, "no more work", nullptr, 0);
    return 0;
  }
  if (std::strcmp(arguments[1], "lose") == 0) return lose();
  for (int round = 0; round < 10; ++round)
    if (int failed = meet(round); failed != 0) return failed;
  return 0;
}
