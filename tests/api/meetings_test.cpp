// Meetings of the C interface: the program that opens one, and processes that enter it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <string>
#include <thread>

#include "horovod.hpp"

namespace {

using horovod::Failure;
using horovod::Meeting;

std::string failure_of(const auto& call) {
  try {
    call();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

TEST(Meetings, carry_values_between_their_program_and_others) {
  Meeting meeting(2, "lo");
  std::map<std::string, std::string> of_rank_1;
  for (auto& [name, value] : meeting.variables(1)) of_rank_1[name] = value;
  EXPECT_EQ(of_rank_1["HOROVOD_RANK"], "1");
  EXPECT_EQ(of_rank_1["HOROVOD_SIZE"], "2");
  EXPECT_EQ(of_rank_1["HOROVOD_BOOTSTRAP"], "rendezvous");
  std::jthread rank([&] {
    Meeting entered(of_rank_1["HOROVOD_GLOO_RENDEZVOUS_ADDR"], of_rank_1["HOROVOD_GLOO_RENDEZVOUS_PORT"],
                    of_rank_1["HOROVOD_SECRET_KEY"]);
    entered.put("result of 1", entered.get("task") + " is done");
    EXPECT_NE(failure_of([&] { entered.variables(0); }).find("that this process has opened"), std::string::npos);
  });
  const std::string task(1 << 20, 't');
  meeting.put("task", task);
  EXPECT_EQ(meeting.get("result of 1", true), task + " is done");
  meeting.rank_ended(0, "exited with code 1");
}

TEST(Meetings, are_refused_to_forked_children_which_may_enter_anew) {
  Meeting meeting(1, "lo");
  auto variables = meeting.variables(0);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = hvd_meeting_put(meeting.get(), "key", nullptr, 0) == HVD_INVALID_ARGUMENT;
    hvd_meeting_close(meeting.get());  // does nothing
    Meeting entered(variables[0].second, variables[1].second, variables[2].second);
    entered.put("refused", refused ? "yes" : "no");
    hvd_meeting_close(entered.get());
    ::_exit(0);
  }
  EXPECT_EQ(meeting.get("refused"), "yes");
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
}

TEST(Meetings, refuse_wrong_arguments_by_name) {
  hvd_meeting* meeting = nullptr;
  hvd_meeting_options options{};
  options.struct_size = sizeof options;
  EXPECT_EQ(hvd_meeting_open(&options, &meeting), HVD_INVALID_ARGUMENT);
  EXPECT_NE(std::string(hvd_last_error()).find("found 0 ranks"), std::string::npos);
  EXPECT_EQ(hvd_meeting_open(nullptr, &meeting), HVD_INVALID_ARGUMENT);
  EXPECT_NE(failure_of([] { Meeting on(1, "no-such-interface"); }).find("no-such-interface"), std::string::npos);
  options.size = 1;
  options.interfaces = "lo";
  horovod::check(hvd_meeting_open(&options, &meeting));
  EXPECT_EQ(hvd_meeting_put(meeting, nullptr, nullptr, 0), HVD_INVALID_ARGUMENT);
  EXPECT_EQ(hvd_meeting_rank_ended(meeting, 1, ""), HVD_INVALID_ARGUMENT);
  size_t bytes = 0;
  EXPECT_EQ(hvd_meeting_wait(meeting, "never put", 10, &bytes), HVD_TIMEOUT);
  hvd_meeting_close(meeting);
  EXPECT_EQ(hvd_meeting_enter("127.0.0.1", "1", "a secret of 16 bytes", 1000, &meeting), HVD_PEER_LOST);
  EXPECT_EQ(meeting, nullptr);
  hvd_meeting_close(nullptr);
}

}  // namespace
