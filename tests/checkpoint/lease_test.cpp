#include "checkpoint/lease.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "in_own_folder.hpp"

namespace hvd::checkpoint {
namespace {

using namespace std::chrono_literals;

class LeaseOfAPath : public testing::InOwnFolder {
 protected:
  Result<std::unique_ptr<Lease>> acquire(LeaseTimes times = {}) {
    return Lease::acquire(folder_ + "/run.h5", "", times, [&](const std::string& why) { told_ += why + "\n"; });
  }
  std::string file() const { return folder_ + "/.run.h5.lease"; }
  std::string text_of_file() const {
    std::ifstream in(file());
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Leaves a lease like one that a process on another host holds.
  void claim_from_elsewhere() {
    auto lease = acquire();
    ASSERT_TRUE(lease);
    std::string text = text_of_file();
    std::size_t at = text.find("machine ") + 8;
    text.replace(at, 4, "????");
    lease->reset();
    std::ofstream(file()) << text;
  }
  // Returns a child that holds the lease until it is killed.
  pid_t fork_holder() {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_t child = ::fork();
    if (child == 0) {
      auto lease = acquire();
      char byte = lease ? 1 : 0;
      if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    EXPECT_EQ(byte, 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return child;
  }
  std::string told_;
};

TEST_F(LeaseOfAPath, is_given_to_one_and_refused_to_the_second_by_name) {
  auto first = acquire();
  ASSERT_TRUE(first) << first.error().message;
  auto second = acquire();
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("process " + std::to_string(::getpid()) + " on host"), std::string::npos)
      << second.error().message;
  EXPECT_TRUE((*first)->check());
  first->reset();
  EXPECT_FALSE(std::filesystem::exists(file()));
  EXPECT_TRUE(acquire());
}

TEST_F(LeaseOfAPath, is_taken_over_at_once_when_its_process_was_killed) {
  pid_t child = fork_holder();
  auto refused = acquire();
  ASSERT_FALSE(refused);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  auto taken = acquire();
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_TRUE(told_.empty()) << told_;
  EXPECT_TRUE((*taken)->check());
}

TEST_F(LeaseOfAPath, is_taken_over_although_nobody_has_waited_for_the_killed_process) {
  pid_t child = fork_holder();
  ::kill(child, SIGKILL);
  siginfo_t about{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &about, WEXITED | WNOWAIT), 0);  // it stays a zombie
  auto taken = acquire();
  EXPECT_TRUE(taken) << taken.error().message;
  EXPECT_TRUE(told_.empty()) << told_;
  ::waitpid(child, nullptr, 0);
}

TEST_F(LeaseOfAPath, that_cannot_be_written_leaves_no_file) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  auto refused = acquire();
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_FALSE(refused);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(LeaseOfAPath, of_a_host_elsewhere_is_taken_over_when_it_is_not_renewed) {
  claim_from_elsewhere();
  auto taken = acquire({10ms, 50ms});
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_NE(told_.find("cannot be asked from here"), std::string::npos) << told_;
}

TEST_F(LeaseOfAPath, of_a_host_elsewhere_is_refused_when_it_is_renewed) {
  claim_from_elsewhere();
  std::string text = text_of_file();
  auto renewed = [&](const std::string& why) {
    told_ += why;
    std::ofstream(file()) << text.substr(0, text.find("\nrenewals ")) << "\nrenewals 77\n";
  };
  auto refused = Lease::acquire(folder_ + "/run.h5", "", {10ms, 600000ms}, renewed);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("belongs to another job"), std::string::npos) << refused.error().message;
}

TEST_F(LeaseOfAPath, that_was_lost_to_another_is_noticed) {
  auto lease = acquire();
  ASSERT_TRUE(lease);
  std::string text = text_of_file();
  text.replace(text.find("mark ") + 5, 4, "????");
  std::ofstream(file()) << text;
  auto outcome = (*lease)->check();
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().message.find("this job has lost"), std::string::npos) << outcome.error().message;
  lease->reset();
  EXPECT_TRUE(std::filesystem::exists(file()));  // the file belongs to the other holder
}

TEST_F(LeaseOfAPath, is_held_again_after_somebody_removed_its_file) {
  auto lease = acquire();
  ASSERT_TRUE(lease);
  std::filesystem::remove(file());
  EXPECT_TRUE((*lease)->check());
  EXPECT_TRUE(std::filesystem::exists(file()));
}

TEST_F(LeaseOfAPath, whose_file_bars_the_place_is_refused_with_its_owner) {
  std::filesystem::create_symlink("/nonexistent", file());
  auto refused = acquire();
  ASSERT_FALSE(refused);
  for (std::string word : {file(), std::string("symbolic link"), "number " + std::to_string(::getuid())})
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
  EXPECT_EQ(refused.error().code, ErrorCode::system);
}

TEST_F(LeaseOfAPath, of_a_relative_path_is_renewed_after_the_program_has_gone_elsewhere) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  auto lease = Lease::acquire("run.h5", "", {}, [](const std::string&) {});
  std::filesystem::current_path(before);
  ASSERT_TRUE(lease) << lease.error().message;
  EXPECT_TRUE(std::filesystem::equivalent((*lease)->file(), file())) << (*lease)->file();
}

TEST_F(LeaseOfAPath, is_one_for_a_file_and_for_a_link_that_leads_to_it) {
  std::filesystem::create_symlink("run.h5", folder_ + "/link.h5");
  EXPECT_EQ(lease_file(folder_ + "/link.h5"), file());
}

TEST_F(LeaseOfAPath, says_why_it_cannot_be_had) {
  auto refused = Lease::acquire(folder_ + "/nowhere/run.h5", "", {}, [](const std::string&) {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("cannot write"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace hvd::checkpoint
