#include "launcher/programs.hpp"

#include <chrono>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>

#include "base/settings/environment.hpp"
#include "base/text/number.hpp"
#include "launcher/agent/called_agent.hpp"
#include "launcher/agent/rank_in_image.hpp"
#include "launcher/agent/rank_keeper.hpp"
#include "launcher/agent/remote_agent.hpp"
#include "launcher/preflight/probe.hpp"
#include "launcher/staging/staged_rank.hpp"
#include "launcher/staging/stager.hpp"
#include "launcher/targets/target.hpp"

namespace hvd::launcher {

namespace {

constexpr int any = std::numeric_limits<int>::max();

std::chrono::milliseconds grace_of(const char* argument) {
  return std::chrono::milliseconds(number_in<int>(argument).value_or(0));
}

int answer_about_pmix() {
  std::string why_not;
  bool can = can_use_pmix(Environment::of_this_process(), &why_not);
  return std::printf("%s\n", can ? pmix_answer : why_not.c_str()), 0;
}

struct Program {
  std::string_view flag;
  int least, most;  // arguments after the flag
  int (*run)(int count, char** arguments);
};

constexpr Program programs[] = {
    {pmix_question_flag, 0, 0, [](int, char**) { return answer_about_pmix(); }},
    {remote_agent_flag, 1, 1, [](int, char** it) { return run_remote_agent(grace_of(it[0])); }},
    {called_agent_flag, 2, 2, [](int, char** it) { return run_called_agent(it[0], grace_of(it[1])); }},
    {pbsdsh_line_flag, 0, any, run_pbsdsh_line},
    {srun_line_flag, 0, any, run_srun_line},
    {outside_of_image_flag, 2, any, [](int, char** it) { return run_outside_of_image(it); }},
    {inside_of_image_flag, 2, any, [](int, char** it) { return run_inside_of_image(it); }},
    {preflight::probe_flag, 3, 3, [](int, char** it) { return preflight::run_probe(it); }},
    {staging::stager_flag, 4, 4, [](int, char** it) { return staging::run_stager(it); }},
    {staging::staged_rank_flag, 3, any, [](int, char** it) { return staging::run_staged_rank(it); }},
    {rank_keeper_flag, 3, any, [](int, char** it) { return run_rank_keeper(it); }},
};

}  // namespace

std::optional<int> run_inner_program(int count, char** arguments) {
  if (count < 2) return std::nullopt;
  const int left = count - 2;
  for (const Program& program : programs)
    if (arguments[1] == program.flag && left >= program.least && left <= program.most)
      return program.run(left, arguments + 2);
  return std::nullopt;
}

}  // namespace hvd::launcher
