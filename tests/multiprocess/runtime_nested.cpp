// A rank that starts programs: `runtime_nested SIZE [WHEN COMMAND…]` joins a job of SIZE ranks. It runs the command
// before ("inside") or after ("outside") it leaves the job, and exits with the command's exit code. With "refused"
// instead of SIZE, it expects that joining fails, because it is a child of a rank.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "horovod.h"
#include "libpmix_leaks.hpp"

namespace {

int run(char** command) {
  pid_t child = ::fork();
  if (child == 0) {
    ::execvp(command[0], command);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int fail(const char* what) {
  std::printf("process %d: %s: %s\n", static_cast<int>(::getpid()), what, hvd_last_error());
  return 1;
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  hvd_runtime* runtime = nullptr;
  hvd_status status = hvd_init(&runtime);
  if (std::strcmp(words[1], "refused") == 0) {
    if (status == HVD_OK) return fail("took the place of a rank");
    return std::strstr(hvd_last_error(), "is a child of the rank") != nullptr ? 0 : fail("was refused otherwise");
  }
  if (status != HVD_OK) return fail("could not join");
  hvd_world world{};
  world.struct_size = sizeof world;
  hvd_get_world(runtime, &world);
  if (world.size != std::atoi(words[1])) return fail("is in a job of another size");
  int code = 0;
  bool is_inside = count > 3 && std::strcmp(words[2], "inside") == 0;
  if (is_inside) code = run(words + 3);
  hvd_shutdown(runtime);
  if (count > 3 && !is_inside) code = run(words + 3);
  // After leaving, the process can join again as the same rank.
  if (hvd_init(&runtime) != HVD_OK) return fail("could not join again");
  hvd_get_world(runtime, &world);
  if (world.size != std::atoi(words[1])) return fail("is in a job of another size the second time");
  hvd_shutdown(runtime);
  return code;
}
