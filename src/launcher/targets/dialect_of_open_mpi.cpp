#include "base/text/number.hpp"
#include "launcher/targets/dialects.hpp"

namespace hvd::launcher {
namespace {

std::optional<LabelledLine> tagged_line(std::string_view line, bool has_blank) {
  if (!line.starts_with('[')) return std::nullopt;
  std::size_t bracket = line.find(']');
  if (bracket == std::string_view::npos) return std::nullopt;
  std::size_t comma = line.substr(0, bracket).rfind(',');
  if (comma == std::string_view::npos) return std::nullopt;
  auto rank = leading_number<int>(line.substr(comma + 1));
  std::string_view rest = line.substr(bracket + 1);
  for (std::string_view tag : {"<stdout>:", "<stderr>:", "<stddiag>:"}) {
    if (!rank || !rest.starts_with(tag)) continue;
    rest.remove_prefix(tag.size());
    if (has_blank && rest.starts_with(' ')) rest.remove_prefix(1);
    return LabelledLine{Rank{*rank}, rest};
  }
  return std::nullopt;
}

// Finds the next tag of the same job. A rank may print tags of another job.
std::size_t find_tag(std::string_view line) {
  std::string_view job = line.substr(0, line.substr(0, line.find(']')).rfind(',') + 1);
  for (std::size_t at = 1; (at = line.find(job, at)) != std::string_view::npos; ++at)
    if (tagged_line(line.substr(at), false)) return at;
  return std::string_view::npos;
}

// Reads a line "[1,0]<stdout>:text".
std::optional<LabelledLine> label_of_open_mpi(std::string_view line) {
  return tagged_line(line, false);
}

// Reads a line "[prterun-n1-77@1,0]<stdout>: text".
std::optional<LabelledLine> label_of_prrte(std::string_view line) {
  return tagged_line(line, true);
}

// Reads "  Process name: [[7096,1],1]" and "  Exit code:    5"; or "… noticed that process rank 1 with PID 645 on node
// n2 exited on signal 9 (Killed).", which may be cut into two lines. Sometimes orterun prints none of these and only
// says that a process aborted the job. A PRRTE that does not find its texts prints their names instead.
bool failure_of_open_mpi(std::string_view line, FirstFailure& failure) {
  if (auto name = after(line, "Process name: "); name && failure.rank.value < 0) {
    if (std::size_t comma = name->rfind(','); comma != std::string_view::npos)
      failure.rank = Rank{leading_number<int>(name->substr(comma + 1)).value_or(-1)};
  }
  if (auto code = after(line, "Exit code: "); code && failure.end.wait_status == 0) {
    std::size_t at = code->find_first_of("0123456789");
    if (at != std::string_view::npos) failure.end.wait_status = leading_number<int>(code->substr(at)).value_or(1) << 8;
  }
  if (auto rank = after(line, "noticed that process rank "); rank && failure.rank.value < 0) {
    failure.rank = Rank{leading_number<int>(*rank).value_or(-1)};
    if (auto process = after(line, "with PID ")) failure.process = leading_number<int>(*process).value_or(0);
    if (auto host = after(line, "on node ")) failure.host = first_word(*host);
  }
  if (auto signal = line.starts_with("signal ") ? after(line, "signal ") : after(line, "exited on signal "))
    if (failure.rank.value >= 0 && failure.end.wait_status == 0)
      failure.end.wait_status = leading_number<int>(*signal).value_or(9);
  if (failure.rank.value >= 0) return true;
  return after(line, "Per user-direction, the job has been aborted") || after(line, "prun:proc-") ||
         after(line, "prun:non-zero-exit");
}

}  // namespace

const SiteDialect dialect_of_open_mpi{"Open MPI's launcher", &label_of_open_mpi, &find_tag, &failure_of_open_mpi};
const SiteDialect dialect_of_prrte{"PRRTE's launcher", &label_of_prrte, &find_tag, &failure_of_open_mpi};

}  // namespace hvd::launcher
