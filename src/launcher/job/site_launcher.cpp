#include "launcher/job/site_launcher.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/number.hpp"

namespace hvd::launcher {
namespace {

// What comes after the word, if it is there.
std::optional<std::string_view> after(std::string_view line, std::string_view word) {
  std::size_t at = line.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at + word.size());
}

std::string first_word(std::string_view text) {
  return std::string(text.substr(0, text.find_first_of(" \r\n")));
}

// "Killed", "Segmentation fault (core dumped)"
int signal_called(std::string_view text) {
  for (int signal = 1; signal < 32; ++signal) {
    const char* name = ::strsignal(signal);  // NOLINT(concurrency-mt-unsafe): there is a single thread
    if (name != nullptr && text.starts_with(name)) return signal;
  }
  return 0;
}

// "12: text", with blanks before it so that all are of one width.
std::optional<LabelledLine> label_of_srun(std::string_view line) {
  std::size_t at = std::min(line.find_first_not_of(' '), line.size());
  std::size_t end = line.find(": ", at);
  // An empty line of a rank has no blank at its end where srun took that for the line's.
  if (end == std::string_view::npos) end = line.find(':', at);
  if (end == std::string_view::npos || end == at) return std::nullopt;
  if (line.substr(at, end - at).find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return LabelledLine{Rank{*leading_number<int>(line.substr(at))}, line.substr(std::min(end + 2, line.size()))};
}

// "srun: error: n1: task 2: Exited with exit code 7", "srun: error: n1: tasks 0-1: Killed"
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

// "[3] text"
std::optional<LabelledLine> label_of_hydra(std::string_view line) {
  std::size_t end = line.find("] ");
  if (!line.starts_with('[') || end == std::string_view::npos) return std::nullopt;
  if (end == 1 || line.substr(1, end - 1).find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  return LabelledLine{Rank{*leading_number<int>(line.substr(1))}, line.substr(end + 2)};
}

// "=   PID 664 RUNNING AT n2", "=   EXIT CODE: 9", which is a wait status or its like. No rank is told.
bool failure_of_hydra(std::string_view line, FirstFailure& failure) {
  if (!line.starts_with("=")) return false;
  if (auto process = after(line, "PID "); process && failure.host.empty()) {
    failure.process = leading_number<int>(*process).value_or(0);
    if (auto host = after(line, "RUNNING AT ")) failure.host = first_word(*host);
  }
  if (auto code = after(line, "EXIT CODE: "); code && failure.end.wait_status == 0) {
    int value = leading_number<int>(*code).value_or(1);
    failure.end.wait_status = value << 8;
    // Of a rank that was killed it is the signal's number; nobody exits with these by himself.
    if (value == SIGKILL || value == SIGSEGV || value == SIGABRT || value == SIGTERM || value == SIGBUS)
      failure.end.wait_status = value;
  }
  return failure.process > 0;
}

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

// A tag of the same job; a rank may print those of another.
std::size_t find_tag(std::string_view line) {
  std::string_view job = line.substr(0, line.substr(0, line.find(']')).rfind(',') + 1);
  for (std::size_t at = 1; (at = line.find(job, at)) != std::string_view::npos; ++at)
    if (tagged_line(line.substr(at), false)) return at;
  return std::string_view::npos;
}

// "[1,0]<stdout>:text"
std::optional<LabelledLine> label_of_open_mpi(std::string_view line) {
  return tagged_line(line, false);
}

// "[prterun-n1-77@1,0]<stdout>: text"
std::optional<LabelledLine> label_of_prrte(std::string_view line) {
  return tagged_line(line, true);
}

// "  Process name: [[7096,1],1]" and "  Exit code:    5"; or "… noticed that process rank 1 with PID 645 on node n2 exited
// on signal 9 (Killed).", which may be cut in two. Now and then orterun leaves all of this out and only says that the job was
// aborted because of a process; a PRRTE that does not find its texts says the name of that one.
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

const SiteDialect dialect_of_srun{"srun", &label_of_srun, nullptr, &failure_of_srun};
const SiteDialect dialect_of_hydra{"mpiexec (Hydra)", &label_of_hydra, nullptr, &failure_of_hydra};
const SiteDialect dialect_of_open_mpi{"Open MPI's launcher", &label_of_open_mpi, &find_tag, &failure_of_open_mpi};
const SiteDialect dialect_of_prrte{"PRRTE's launcher", &label_of_prrte, &find_tag, &failure_of_open_mpi};

void SiteOutput::take(Stream stream, std::string_view line, const std::function<void(const Output&)>& print,
                      const std::function<void(std::string_view)>& say) {
  auto labelled = dialect_.read_label(line);
  if (labelled && labelled->rank.value < ranks_) {
    std::size_t next = dialect_.find_next_label ? dialect_.find_next_label(line) : std::string_view::npos;
    if (next == std::string_view::npos) return take_of_rank(stream, labelled->rank, labelled->text, print);
    take_of_rank(stream, labelled->rank, labelled->text.substr(0, next - (line.size() - labelled->text.size())), print);
    return take(stream, line.substr(next), print, say);
  }
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  if (!line.empty()) say(line);
  if (!line.empty() && line.find_first_not_of("-= ") != std::string_view::npos) last_line_ = line;
  if (failure_ && failure_->end.wait_status != 0) return;
  if (!failure_) reading_.rank = Rank{-1};
  FirstFailure read = failure_.value_or(reading_);
  if (dialect_.read_failure(line, read) || failure_) failure_ = std::move(read);
}

void SiteOutput::take_of_rank(Stream stream, Rank rank, std::string_view piece,
                              const std::function<void(const Output&)>& print) {
  std::string& begun = of_ranks_[static_cast<std::size_t>(stream)][static_cast<std::size_t>(rank.value)];
  begun += piece;
  if (!begun.ends_with('\n') && begun.size() < LineCutter::longest) return;
  Unpacked unpacked = unpack(std::exchange(begun, {}));
  if (unpacked.report) hear(rank, *unpacked.report);
  if (unpacked.taken) {
    input_taken_.bytes += unpacked.taken->bytes;
    input_taken_.is_closed = input_taken_.is_closed || unpacked.taken->is_closed;
  }
  if (!unpacked.bytes.empty()) print({rank, stream, std::move(unpacked.bytes)});
}

void SiteOutput::hear(Rank rank, const RankReport& report) {
  ++ranks_ended_;
  if (report.was_asked || report.wait_status == 0) return;
  FirstFailure failure;
  failure.rank = rank;
  failure.host = report.host;
  failure.process = report.process;
  failure.end.wait_status = report.wait_status;
  failure.end.at_ns = report.at_ns;
  reported_.push_back(std::move(failure));
}

std::optional<FirstFailure> SiteOutput::failure() const {
  return reported_.empty() ? failure_ : likely_cause(reported_);
}

void SiteOutput::add(const Output& output, const std::function<void(const Output&)>& print,
                     const std::function<void(std::string_view)>& say) {
  // Not at '\r', which has no label after it.
  std::string& text = unfinished_[static_cast<std::size_t>(output.stream)];
  text += output.bytes;
  std::size_t at = 0;
  for (std::size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    take(output.stream, std::string_view(text).substr(at, end + 1 - at), print, say);
  text.erase(0, at);
  if (text.size() < LineCutter::longest) return;
  take(output.stream, text, print, say);
  text.clear();
}

void SiteOutput::finish(const std::function<void(const Output&)>& print,
                        const std::function<void(std::string_view)>& say) {
  for (Stream stream : {Stream::standard_output, Stream::standard_error})
    if (std::string rest = std::exchange(unfinished_[static_cast<std::size_t>(stream)], {}); !rest.empty())
      take(stream, rest, print, say);
  for (Stream stream : {Stream::standard_output, Stream::standard_error})
    for (int rank = 0; rank < ranks_; ++rank) {
      std::string& begun = of_ranks_[static_cast<std::size_t>(stream)][static_cast<std::size_t>(rank)];
      if (!begun.empty()) print({Rank{rank}, stream, unpack(std::exchange(begun, {})).bytes});
    }
}

Result<Launch> order_for_site(const SiteLauncher& site, Environment environment,
                              const std::map<std::string, std::string>& variables,
                              const std::function<Result<std::string>()>& make_folder) {
  Launch order;
  order.command = site.command;
  for (std::string& word : order.command) {
    if (word != host_file_word) continue;
    auto folder = make_folder();
    if (!folder) return folder.error();
    word = *folder + "/hosts";
    posix::FileDescriptor file(::open(word.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (!file || ::write(file.get(), site.host_file.data(), site.host_file.size()) !=
                     static_cast<ssize_t>(site.host_file.size()))
      return system_error("the file " + word + " cannot be written", errno);
  }
  order.program = order.command[0];
  for (const auto& [name, value] : variables) environment.set(name, value);
  for (const auto& [name, value] : site.set)
    if (!environment.has(name)) environment.set(name, value);
  for (const std::string& name : site.unset) environment.erase(name);
  environment.set("PYTHONUNBUFFERED", "1");
  for (const auto& [name, value] : environment.variables()) order.environment.push_back(name + "=" + value);
  order.input = InputFrom::agent;
  order.is_site_launcher = true;
  return order;
}

}  // namespace hvd::launcher
