#include "launcher/targets/requeue.hpp"

#include <fstream>
#include <optional>

#include "base/text/comma_list.hpp"
#include "base/text/number.hpp"
#include "base/text/trimmed.hpp"
#include "launcher/wire/messages.hpp"
#include "native/posix/processes/ask_program.hpp"

namespace hvd::launcher {
namespace {

// Returns the path of a file beside the job's output. It holds the number of times that the job was put back into the
// queue. Without the file the number is 0.
std::string counter_of(const Requeuing& how, const std::string& job) {
  std::string name = job;
  for (char& letter : name)
    if (letter == '/') letter = '_';
  return how.counters + "/.horovodrun." + name + ".requeues";
}

int times_in(const std::string& counter) {
  std::ifstream file(counter);
  std::string text;
  std::getline(file, text);
  return number_in<int>(text).value_or(0);
}

bool write_times(const std::string& counter, int times) {
  std::ofstream file(counter, std::ios::trunc);
  file << times << '\n';
  file.close();
  return !file.fail();
}

}  // namespace

Requeued requeue(const JobAround& job, const Requeuing& how) {
  auto left = [](const std::string& why) {
    return Requeued{again_code, "the training is not done, but the job is not put back into the queue: " + why +
                                    ". Exit code " + std::to_string(again_code) +
                                    " tells the job script; the same command goes on"};
  };
  if (!job.is_a_job()) return left("this is no job of a scheduler");
  if (how.most <= 0) return left("--max-requeues (HOROVOD_MAX_REQUEUES) is 0");
  const std::string number = job.number();
  const std::string counter = counter_of(how, number);
  const std::optional<int> told = job.times_requeued();
  const bool is_counted = told.has_value();
  const int times = is_counted ? *told : times_in(counter);
  if (times >= how.most)
    return left("it has been put back " + std::to_string(times) + " times, and --max-requeues allows " +
                std::to_string(how.most));
  const schedulers::Requeue asked = job.requeue();
  const std::string scheduler = job.scheduler().name();
  if (asked.command.empty() && asked.exit_code == 0) return left(scheduler + " has no way to do that from a job");
  if (!is_counted && !write_times(counter, times + 1))
    return left("how often that was done cannot be counted, since " + counter + " cannot be written");
  const std::string which = std::to_string(times + 1) + " of at most " + std::to_string(how.most);
  if (asked.command.empty())
    return {asked.exit_code, "exit code " + std::to_string(asked.exit_code) + " asks " + scheduler +
                                 " to put the job " + number + " back into the queue (" + which + ")"};
  const Requeuing::Answer answer = how.run(asked.command);
  if (answer.is_done)
    return {0, "`" + joined(asked.command, " ") + "` has put the job back into the queue of " + scheduler + " (" +
                   which + ")"};
  if (!is_counted) (void)write_times(counter, times);
  return left("`" + joined(asked.command, " ") + "` was refused" +
              (answer.text.empty() ? "" : ": " + std::string(trimmed(answer.text))));
}

Requeuing::Answer run_requeue_command(const std::vector<std::string>& command) {
  const std::string mark = "horovodrun: done";
  std::vector<std::string> words = {"/bin/sh", "-c", "\"$@\" </dev/null && echo '" + mark + "'", "sh"};
  words.insert(words.end(), command.begin(), command.end());
  std::string text = posix::answer_of(words, std::chrono::seconds(60));
  std::size_t at = text.rfind(mark);
  return {at != std::string::npos, at == std::string::npos ? text : text.substr(0, at)};
}

}  // namespace hvd::launcher
