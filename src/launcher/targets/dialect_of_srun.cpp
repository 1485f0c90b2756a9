#include <cstring>

#include "base/text/number.hpp"
#include "launcher/targets/dialects.hpp"

namespace hvd::launcher {
namespace {

// Returns the number of the signal whose name begins the text, such as "Killed" or "Segmentation fault (core dumped)".
// Returns 0 if there is none.
int signal_called(std::string_view text) {
  for (int signal = 1; signal < 32; ++signal) {
    const char* name = ::strsignal(signal);  // NOLINT(concurrency-mt-unsafe): there is a single thread
    if (name != nullptr && text.starts_with(name)) return signal;
  }
  return 0;
}

// Reads a line "12: text". Blanks before the number make all numbers of one width.
std::optional<LabelledLine> label_of_srun(std::string_view line) {
  std::size_t at = std::min(line.find_first_not_of(' '), line.size());
  std::size_t end = line.find(": ", at);
  // If the rank's line is empty, srun may leave out the blank after the colon.
  if (end == std::string_view::npos) end = line.find(':', at);
  if (end == std::string_view::npos || end == at) return std::nullopt;
  if (line.substr(at, end - at).find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return LabelledLine{Rank{*leading_number<int>(line.substr(at))}, line.substr(std::min(end + 2, line.size()))};
}

// Reads "srun: error: n1: task 2: Exited with exit code 7" and "srun: error: n1: tasks 0-1: Killed".
bool failure_of_srun(std::string_view line, FirstFailure& failure) {
  auto rest = after(line, "srun: error: ");
  if (!rest || failure.rank.value >= 0) return false;
  std::size_t colon = rest->find(": task");
  if (colon == std::string_view::npos) return false;
  auto number = leading_number<int>(rest->substr(rest->find_first_of("0123456789", colon)));
  std::size_t what = rest->find(": ", colon + 2);
  if (!number || what == std::string_view::npos) return false;
  auto code = after(*rest, "Exited with exit code ");
  int signal = signal_called(rest->substr(what + 2));
  if (!code && signal == 0) return false;
  failure.rank = Rank{*number};
  failure.host = std::string(rest->substr(0, colon));
  failure.end.wait_status = code ? leading_number<int>(*code).value_or(1) << 8 : signal;
  return true;
}

// Reads "srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)".
std::string advice_on_srun(std::string_view line) {
  auto rest = after(line, "srun: Job ");
  if (!rest || !after(*rest, "step creation temporarily disabled") || !after(*rest, "are busy")) return "";
  const std::string job = first_word(*rest);
  return "the ranks wait until another step of Slurm's job " + job +
         " ends, since it has these nodes (`squeue --steps " + "--jobs " + job +
         "` lists the steps). For several horovodruns side by side give each its part: --share "
         "cores=2,memory=4G,gpus=1 for each rank";
}

}  // namespace

const SiteDialect dialect_of_srun{"srun", &label_of_srun, nullptr, &failure_of_srun, &advice_on_srun};

}  // namespace hvd::launcher
