// A rank of an elastic job over virtual nodes: elastic_rank FOLDER STEPS. It adds up ones, and trains until it has made
// STEPS steps and FOLDER/go exists. For each world in which it has made a step it writes FOLDER/world.EPOCH.RANK: "SIZE
// HOST PROCESS". At the end it prints "done RANK of SIZE". A rank that adds up the ones of another world ends with 4.
// FOLDER/checkpoint has a recent step, from which the next job with this folder goes on.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "../multiprocess/allreduce_of.hpp"
#include "horovod.h"

namespace {

std::string folder;

void end_if(hvd_status status) {
  if (status == HVD_OK) return;
  std::fprintf(stderr, "%s\n", hvd_last_error());
  std::_Exit(3);
}

void write_file(const std::string& name, const std::string& text) {
  const std::string path = folder + "/" + name, unfinished = path + "." + std::to_string(::getpid()) + ".new";
  std::FILE* file = std::fopen(unfinished.c_str(), "w");
  if (file == nullptr) std::abort();
  std::fputs(text.c_str(), file);
  std::fclose(file);
  std::rename(unfinished.c_str(), path.c_str());
}

long checkpoint() {
  long step = 0;
  std::FILE* file = std::fopen((folder + "/checkpoint").c_str(), "r");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%ld", &step) != 1) std::abort();
  std::fclose(file);
  std::printf("begins at step %ld\n", step);
  std::fflush(stdout);
  return step;
}

// One start of this process, from one world to the next.
class World {
 public:
  World(hvd_elastic_cause cause, long step) {
    hvd_init_options options{};
    options.struct_size = sizeof options;
    options.elastic_cause = cause;
    options.elastic_step = cause == HVD_ELASTIC_FIRST ? 0 : 1 + step;
    end_if(hvd_init_with(&runtime_, &options));
    world_.struct_size = sizeof world_;
    facts_.struct_size = sizeof facts_;
    end_if(hvd_get_world(runtime_, &world_));
    end_if(hvd_get_elastic_facts(&facts_));
  }
  ~World() { hvd_shutdown(runtime_); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // The sum over all ranks; false if it failed.
  bool sum(const char* name, float& value) {
    constexpr int64_t one = 1;
    hvd_op_description description = hvd::testing::allreduce_of(name, one, HVD_FLOAT32, HVD_SUM);
    hvd_op* op = nullptr;
    if (hvd_prepare(runtime_, &description, &op) != HVD_OK) return false;
    hvd_start_arguments arguments = hvd_use_of(op, &value, &value);
    hvd_handle handle = 0;
    bool is_done = hvd_start(runtime_, &arguments, 1, &handle) == HVD_OK;
    if (is_done) {
      is_done = hvd_wait(runtime_, handle, -1) == HVD_OK;
      hvd_release(runtime_, handle);
    }
    hvd_op_release(runtime_, op);
    return is_done;
  }
  int rank() const { return world_.rank; }
  int size() const { return world_.size; }
  void tell() const {
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    write_file("world." + std::to_string(facts_.epoch) + "." + std::to_string(rank()),
               std::to_string(size()) + " " + host + " " + std::to_string(::getpid()));
  }

 private:
  hvd_runtime* runtime_ = nullptr;
  hvd_world world_{};
  hvd_elastic_facts facts_{};
};

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  folder = words[1];
  const long steps = std::strtol(words[2], nullptr, 10);
  hvd_elastic_cause cause = HVD_ELASTIC_FIRST;
  long step = checkpoint();
  for (;;) {
    World world(cause, step);
    cause = HVD_ELASTIC_FAILED;
    float furthest = world.rank() == 0 ? static_cast<float>(step) : 0;
    if (!world.sum("step", furthest)) continue;
    step = static_cast<long>(furthest);
    for (bool has_told = false;;) {
      // Rank 0 decides for all: go on, begin anew with other hosts, or end.
      float what = 0, one = 1;
      if (world.rank() == 0) {
        if (hvd_take_hosts_updated(nullptr) != 0) what = 1;
        else if (step >= steps && ::access((folder + "/go").c_str(), F_OK) == 0) what = 2;
      }
      if (!world.sum("what", what) || !world.sum("ones", one)) break;
      if (one != static_cast<float>(world.size())) return 4;  // a rank of another world has added
      ++step;
      if (world.rank() == 0 && step % 20 == 0) write_file("checkpoint", std::to_string(step));
      if (!has_told) world.tell();
      has_told = true;
      if (what == 1) cause = HVD_ELASTIC_HOSTS_UPDATED;
      if (what == 1) break;
      if (what == 2) {
        std::printf("done %d of %d\n", world.rank(), world.size());
        std::fflush(stdout);
        return 0;
      }
      ::usleep(2000);
    }
  }
}
