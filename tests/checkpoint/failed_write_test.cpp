// A write of HDF5's fails where nothing is known beforehand, as under a quota on a parallel file system.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <utility>

#include "checkpoint/structure.hpp"
#include "checkpoint_files.hpp"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace hvd::checkpoint {
namespace {

class FailedWrite : public WithCheckpoints {
 protected:
  // Runs in a child: files may not grow beyond so many bytes.
  [[noreturn]] void fail_once_and_end(rlim_t bytes) {
#ifdef __SANITIZE_ADDRESS__
    __lsan_disable();  // HDF5 loses what belongs to a file that it could not close
#endif
    std::signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit {};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    const rlim_t before = std::exchange(limit.rlim_cur, bytes);
    ::setrlimit(RLIMIT_FSIZE, &limit);
    write_bytes("full.h5", "");
    auto failed = write_structure(*library_, path("full.h5"), everything(), {}, header_bytes);
    limit.rlim_cur = before;
    ::setrlimit(RLIMIT_FSIZE, &limit);
    auto next = write("next.h5", everything());
    std::exit(failed ? 3 : !next ? 4 : 0);  // runs what libraries do at the end
  }
};

TEST_F(FailedWrite, does_not_spoil_the_next_one_or_the_end_of_the_process) {
  for (rlim_t bytes : {600, 4000, 100000}) {
    pid_t child = ::fork();
    if (child == 0) fail_once_and_end(bytes);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status) << " after a failure at byte " << bytes;
    EXPECT_EQ(WEXITSTATUS(status), 0) << "after a failure at byte " << bytes;
  }
}

}  // namespace
}  // namespace hvd::checkpoint
