/* libhorovod_pmi_bridge.so is for LD_PRELOAD. It helps programs that start MPI themselves under a launcher whose
 * protocol their MPI does not know, for example `from mpi4py import MPI` with MPICH in a rank of horovodrun or of
 * `srun --mpi=pmix`.
 *
 * An MPI library calls getenv("PMI_FD") to find its PMI server. This library replaces the C library's getenv. If the
 * caller is an MPI library, the answer names a bridge (bridge.hpp, in libhorovod_bridge.so, which is opened at that
 * moment). The bridge leads to the launcher's PMIx server or to horovodrun's store. All other callers get the answer
 * of the C library's getenv. So it does not matter whether the MPI was linked or loaded by mpi4py. Nothing happens
 * before MPI_Init, and the environment, which children inherit, stays as it is.
 *
 * The library is written in C and needs no other library, because it is loaded into every program that a rank
 * starts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

static char pmi_fd[16], pmi_rank[16], pmi_size[16]; /* the values of these variables; empty without a bridge */
static volatile int under_way, is_alone; /* is_alone: this is a job of one rank, which needs no server but must not
                                            see PMIx */

static char* system_getenv(const char* name) {
  static char* (*next)(const char*);
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "getenv");
  return next == NULL ? NULL : next(name);
}

static int begins(const char* text, const char* with) {
  return strncmp(text, with, strlen(with)) == 0;
}

/* True if the ranks of the job can meet through a PMIx server or through horovodrun's own store. */
static int is_launched(void) {
  if (system_getenv("PMIX_NAMESPACE") != NULL) return 1;
  return system_getenv("HOROVOD_RANK") != NULL &&
         (system_getenv("HOROVOD_LOCAL_STORE") != NULL || system_getenv("HOROVOD_GLOO_RENDEZVOUS_ADDR") != NULL);
}

static int tells_of_pmix(const char* name) {
  return begins(name, "PMIX_") || begins(name, "PRTE_");
}

/* True if the caller is an MPI library that can find its peers only through PMI. */
static int is_mpi_without_pmix(const char* path) {
  const char* file = path == NULL ? NULL : strrchr(path, '/');
  file = file == NULL ? path : file + 1;
  if (file == NULL || !(begins(file, "libmpi.so") || begins(file, "libmpich.so") || begins(file, "libmpi_abi.so")))
    return 0;
  void* library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == NULL) return 0;
  int has_pmix = dlsym(library, "PMIx_Init") != NULL || dlsym(library, "ompi_mpi_comm_world") != NULL;
  dlclose(library);
  return !has_pmix;
}

/* Takes this library out of LD_PRELOAD, because programs that the rank starts are no ranks. What the site preloads
 * stays. */
static void stay_out_of_children(void) {
  const char* before = system_getenv("LD_PRELOAD");
  if (before == NULL) return;
  char* after = malloc(strlen(before) + 1);
  if (after == NULL) return;
  after[0] = '\0';
  for (const char* at = before; *at != '\0';) {
    size_t length = strcspn(at, ": ");
    char entry[PATH_MAX];
    snprintf(entry, sizeof entry, "%.*s", (int)(length < sizeof entry ? length : sizeof entry - 1), at);
    if (length > 0 && strstr(entry, "libhorovod_pmi_bridge.so") == NULL) {
      if (after[0] != '\0') strcat(after, ":");
      strncat(after, at, length);
    }
    at += length;
    at += strspn(at, ": ");
  }
  if (after[0] == '\0') unsetenv("LD_PRELOAD");
  else setenv("LD_PRELOAD", after, 1);
  free(after);
}

/* As is_on() of base/settings/config.hpp, which this library of C lacks. hvd.init() refuses other words. */
static int may_be_alone(void) {
  const char* value = system_getenv("HOROVOD_ALLOW_SINGLETON");
  if (value == NULL) return 0;
  value += strspn(value, " \t\r\n");
  return strtol(value, NULL, 10) > 0 || strncasecmp(value, "true", 4) == 0 || strncasecmp(value, "on", 2) == 0 ||
         strncasecmp(value, "yes", 3) == 0;
}

static void stop(const char* why) {
  fprintf(
      stderr,
      "horovod: MPI cannot find the other ranks: %s. HOROVOD_ALLOW_SINGLETON=1 lets every process be an MPI world of "
      "its own\n",
      why);
  _exit(1);
}

/* Collective over the job: every rank calls this in its MPI_Init. */
static void build_bridge(void) {
  if (!is_launched() || system_getenv("PMI_FD") != NULL || system_getenv("PMI_PORT") != NULL) return;
  /* Intel's MPI was already told which server to ask. */
  if (system_getenv("I_MPI_PMI_LIBRARY") != NULL || system_getenv("I_MPI_PMI") != NULL) return;
  Dl_info own;
  char path[PATH_MAX];
  if (dladdr((void*)&pmi_fd, &own) == 0 || own.dli_fname == NULL) return;
  const char* slash = strrchr(own.dli_fname, '/');
  int folder = slash == NULL ? 0 : (int)(slash - own.dli_fname) + 1;
  snprintf(path, sizeof path, "%.*slibhorovod_bridge.so", folder, own.dli_fname);
  stay_out_of_children();
  void (*open_bridge)(char*, char*, char*, size_t, const char**) = NULL;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library != NULL) *(void**)&open_bridge = dlsym(library, "horovod_open_bridge");
  const char* failure = NULL;
  if (open_bridge == NULL) failure = dlerror();
  else open_bridge(pmi_fd, pmi_rank, pmi_size, sizeof pmi_fd, &failure);
  is_alone = failure == NULL && pmi_fd[0] == '\0';
  if (failure == NULL) return;
  pmi_fd[0] = '\0';
  if (!may_be_alone()) stop(failure);
}

static void build_bridge_once(void) {
  under_way = 1;
  build_bridge();
  under_way = 0;
}

/* True if this library answers in place of the C library. */
static int answers(const char* name, char** answer) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (under_way) return 0; /* while the bridge is built, the real values are needed */
  pthread_once(&once, build_bridge_once);
  if (pmi_fd[0] == '\0' && !is_alone) return 0;
  if (is_alone && !tells_of_pmix(name)) return 0;
  /* In a job of one rank MPICH 5 fails if it sees PRTE_LAUNCHED. In other jobs MPICH 5's progress between nodes is
   * slow without this variable. */
  if (!is_alone && begins(name, "PRTE_")) return 0;
  if (strcmp(name, "PMI_FD") == 0) *answer = pmi_fd;
  else if (strcmp(name, "PMI_RANK") == 0) *answer = pmi_rank;
  else if (strcmp(name, "PMI_SIZE") == 0) *answer = pmi_size;
  else if (tells_of_pmix(name)) *answer = NULL; /* MPICH 5 accepts either PMI or PMIx, not both */
  else return 0;
  return 1;
}

PUBLIC char* getenv(const char* name) {
  if (begins(name, "PMI_") || tells_of_pmix(name)) {
    Dl_info asking;
    char* answer = NULL;
    if (dladdr(__builtin_return_address(0), &asking) != 0 && is_mpi_without_pmix(asking.dli_fname) &&
        answers(name, &answer))
      return answer;
  }
  return system_getenv(name);
}
