#include "launcher/job/site_launcher.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace hvd::launcher {
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
  if (std::string advice = dialect_.advice ? dialect_.advice(line) : ""; !advice.empty()) say("horovodrun: " + advice);
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
  if (unpacked.report) handle(rank, *unpacked.report);
  if (unpacked.taken) {
    input_taken_.bytes += unpacked.taken->bytes;
    input_taken_.is_closed = input_taken_.is_closed || unpacked.taken->is_closed;
  }
  if (!unpacked.bytes.empty()) print({rank, stream, std::move(unpacked.bytes)});
}

void SiteOutput::handle(Rank rank, const RankReport& report) {
  ++ranks_ended_;
  want_another_run_ = want_another_run_ || wants_another_run(report.wait_status);
  if (report.wait_status == 0 && !report.was_asked && (!left_first_ || report.at_ns < left_first_->first))
    left_first_ = {report.at_ns, "rank " + std::to_string(rank.value) + " on host " + report.host};
  if (report.was_asked || report.wait_status == 0 || wants_another_run(report.wait_status)) return;
  FirstFailure failure;
  failure.rank = rank;
  failure.host = report.host;
  failure.process = report.process;
  failure.end.wait_status = report.wait_status;
  failure.end.at_ns = report.at_ns;
  reported_.push_back(std::move(failure));
}

std::optional<FirstFailure> SiteOutput::failure() const {
  if (reported_.empty()) return failure_;
  FirstFailure cause = likely_cause(reported_);
  if (left_first_ && left_first_->first < cause.end.at_ns) cause.left_before = left_first_->second;
  return cause;
}

void SiteOutput::add(const Output& output, const std::function<void(const Output&)>& print,
                     const std::function<void(std::string_view)>& say) {
  // Lines do not end at '\r' here, because launchers put no label after it.
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

Result<StartRank> order_for_site(const SiteLauncher& site, Environment environment,
                                 const std::map<std::string, std::string>& variables,
                                 const std::function<Result<std::string>()>& make_folder) {
  StartRank order;
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
  order.title = order.program = order.command[0];
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
