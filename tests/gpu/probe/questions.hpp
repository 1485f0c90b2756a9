#pragma once
// Each question is asked in a process of its own, prints its lines and returns. A hang ends with the process.

namespace probe {

struct Question {
  const char* name;
  int seconds;  // the process is killed after so many
  void (*ask)();
};

void ask_device();
void ask_events();
void ask_words();
void ask_launches();
void ask_contention();
void ask_capture();
void ask_ptx_70();
void ask_kill();
void ask_nccl_blocking();
void ask_nccl_nonblocking();
void ask_nccl_abort();
void ask_nccl_shared();
void ask_nccl_faked_hosts();
void ask_nccl_abort_faked_hosts();
void ask_processes();
void ask_mps();

// The longest times together stay below seven minutes.
inline constexpr Question questions[] = {
    {"device", 20, &ask_device},
    {"events", 20, &ask_events},
    {"words", 20, &ask_words},
    {"launches", 20, &ask_launches},
    {"contention", 20, &ask_contention},
    {"capture", 10, &ask_capture},
    {"ptx_70", 20, &ask_ptx_70},
    {"kill", 30, &ask_kill},
    {"nccl_blocking", 40, &ask_nccl_blocking},
    {"nccl_nonblocking", 40, &ask_nccl_nonblocking},
    {"nccl_abort", 40, &ask_nccl_abort},
    {"nccl_shared", 30, &ask_nccl_shared},
    {"nccl_faked_hosts", 20, &ask_nccl_faked_hosts},
    {"nccl_abort_faked_hosts", 20, &ask_nccl_abort_faked_hosts},
    {"processes", 20, &ask_processes},
    {"mps", 30, &ask_mps},
};

}  // namespace probe
