// A writer is killed at a random instant. Afterwards the last save that it acknowledged, or a newer one, can be read.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>

#include "checkpoint/generations.hpp"
#include "checkpoint/lease.hpp"
#include "checkpoint_files.hpp"

namespace hvd::checkpoint {
namespace {

class KilledWriter : public WithCheckpoints {
 protected:
  struct Place {
    bool is_folder;
    std::string path;
  };

  // Runs in the child: saves step after step, and writes the number of each safe step to `acknowledged`.
  [[noreturn]] void save_for_ever(const Place& place, std::int64_t step, int acknowledged) {
    auto lease = Lease::acquire(place.path, "", {}, [](const std::string&) {});
    if (!lease) ::_exit(3);
    State state = everything();
    for (;; ++step) {
      for (Entry& entry : state)
        if (entry.path == "/step") entry.content = step;
      floats_[0] = static_cast<float>(step);
      std::string path = place.is_folder ? path_for_step(place.path, step) : place.path;
      WriteOptions options;
      options.step = step;
      options.sequence = next_sequence(path);
      if (step % 3 == 0) options.compression = *compression_of("gzip:1");
      if (!write_file(*library_, path, state, options)) ::_exit(4);
      if (::write(acknowledged, &step, sizeof step) != sizeof step) ::_exit(5);
      if (place.is_folder && !remove_old(place.path, 2, [] { return Status(); })) ::_exit(6);
    }
  }

  // Kills a child at a random instant after its first save. Returns the last step that it acknowledged.
  std::int64_t kill_one(const Place& place, std::int64_t first, int delay_us) {
    int pipe[2];
    if (::pipe(pipe) != 0) return -1;
    pid_t child = ::fork();
    if (child == 0) save_for_ever(place, first, pipe[1]);
    ::close(pipe[1]);
    std::int64_t last = -1;
    std::int64_t step = 0;
    if (::read(pipe[0], &step, sizeof step) == sizeof step) last = step;
    ::usleep(static_cast<useconds_t>(delay_us));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself with exit code " << WEXITSTATUS(status);
    while (::read(pipe[0], &step, sizeof step) == sizeof step) last = step;
    ::close(pipe[0]);
    return last;
  }

  void kill_often(int rounds) {
    std::mt19937 random(20);
    std::filesystem::create_directory(path("run"));
    std::vector<float> memory(floats_.size());
    std::int64_t next[2] = {1, 1};
    for (int round = 0; round < rounds; ++round) {
      Place place{round % 2 == 0, path(round % 2 == 0 ? "run" : "one.h5")};
      std::int64_t& first = next[round % 2];
      std::int64_t acknowledged = kill_one(place, first, std::uniform_int_distribution<int>(0, 60000)(random));
      ASSERT_GE(acknowledged, first);
      std::string told;
      auto reader = open_newest(*library_, place.path, true, [&](const std::string& why) { told += why; });
      ASSERT_TRUE(reader) << reader.error().message;
      EXPECT_EQ(told, "");
      std::int64_t found = reader->header().step;
      EXPECT_GE(found, acknowledged);
      auto outcome = reader->read("/model/large", memory.data(), memory.size() * sizeof(float));
      ASSERT_TRUE(outcome) << outcome.error().message;
      EXPECT_EQ(memory[0], static_cast<float>(found));
      first = found + 1;
    }
  }
};

TEST_F(KilledWriter, leaves_a_whole_checkpoint) {
  kill_often(10);
}

TEST_F(KilledWriter, leaves_a_whole_checkpoint_200_times_soak) {
  kill_often(200);
}

}  // namespace
}  // namespace hvd::checkpoint
