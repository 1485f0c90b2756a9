// A rank of a job that loses a node: partition_rank PHASE VICTIM FOLDER. The rank writes FOLDER/ready.RANK when it has
// come to the phase, and writes to FOLDER/end.RANK how it ended. VICTIM is the host that will be lost.   PHASE
// agreement: the other ranks wait for an op that the victim's ranks do not submit · inside: collectives without
// a pause · between: no op is in flight · shutdown: all ranks shut down when FOLDER/go exists
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "../multiprocess/allreduce_of.hpp"
#include "horovod.h"

namespace {

std::string folder;
int rank = -1;

void write_file(const std::string& name, const std::string& text) {
  std::string path = folder + "/" + name + "." + std::to_string(rank), unfinished = path + ".new";
  std::FILE* file = std::fopen(unfinished.c_str(), "w");
  if (file == nullptr) std::abort();
  std::fputs(text.c_str(), file);
  std::fclose(file);
  std::rename(unfinished.c_str(), path.c_str());
}

void end_if(hvd_status status) {
  if (status == HVD_OK) return;
  write_file("end", hvd_last_error());
  std::_Exit(3);
}

hvd_op* prepare(hvd_runtime* runtime, const char* name, int64_t count) {
  hvd_op_description description = hvd::testing::allreduce_of(name, count, HVD_FLOAT32, HVD_SUM);
  hvd_op* op = nullptr;
  end_if(hvd_prepare(runtime, &description, &op));
  return op;
}

void run(hvd_runtime* runtime, hvd_op* op, std::vector<float>& data) {
  hvd_start_arguments arguments = hvd_use_of(op, data.data(), data.data());
  hvd_handle handle = 0;
  end_if(hvd_start(runtime, &arguments, 1, &handle));
  end_if(hvd_wait(runtime, handle, -1));
  hvd_release(runtime, handle);
}

// Stands for a program that computes and now and then asks whether the job still runs.
void compute_until_the_end(hvd_runtime* runtime) {
  while (hvd_is_running(runtime)) ::usleep(1000);
  std::vector<float> data(1);
  run(runtime, prepare(runtime, "too late", 1), data);
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  const std::string phase = words[1], victim = words[2];
  folder = words[3];
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  hvd_runtime* runtime = nullptr;
  hvd_world world{};
  world.struct_size = sizeof world;
  end_if(hvd_init(&runtime));
  end_if(hvd_get_world(runtime, &world));
  rank = world.rank;
  std::vector<float> data(phase == "inside" ? 1 << 20 : 100, 1.0f);
  hvd_op* together = prepare(runtime, "together", static_cast<int64_t>(data.size()));
  for (int i = 0; i < 3; ++i) run(runtime, together, data);
  write_file("ready", std::to_string(::getpid()));

  if (phase == "agreement") {
    if (host == victim) compute_until_the_end(runtime);
    else run(runtime, prepare(runtime, "not by the victim", 100), data);
  } else if (phase == "inside") {
    for (;;) run(runtime, together, data);
  } else if (phase == "between") {
    compute_until_the_end(runtime);
  } else if (phase == "shutdown") {
    while (::access((folder + "/go").c_str(), F_OK) != 0) ::usleep(1000);
  }
  hvd_shutdown(runtime);
  write_file("end", "shut down");
  return 0;
}
