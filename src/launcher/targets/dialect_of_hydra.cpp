#include <signal.h>

#include "base/text/number.hpp"
#include "launcher/targets/dialects.hpp"

namespace hvd::launcher {
namespace {

// Reads a line "[3] text".
std::optional<LabelledLine> label_of_hydra(std::string_view line) {
  std::size_t end = line.find("] ");
  if (!line.starts_with('[') || end == std::string_view::npos) return std::nullopt;
  if (end == 1 || line.substr(1, end - 1).find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  return LabelledLine{Rank{*leading_number<int>(line.substr(1))}, line.substr(end + 2)};
}

// Reads lines like "=   PID 664 RUNNING AT n2" and "=   EXIT CODE: 9". The number is a wait status or something
// similar. Hydra does not tell the rank.
bool failure_of_hydra(std::string_view line, FirstFailure& failure) {
  if (!line.starts_with("=")) return false;
  if (auto process = after(line, "PID "); process && failure.host.empty()) {
    failure.process = leading_number<int>(*process).value_or(0);
    if (auto host = after(line, "RUNNING AT ")) failure.host = first_word(*host);
  }
  if (auto code = after(line, "EXIT CODE: "); code && failure.end.wait_status == 0) {
    int value = leading_number<int>(*code).value_or(1);
    failure.end.wait_status = value << 8;
    // If the rank was killed, the number is that of the signal. No program exits with these codes by itself.
    if (value == SIGKILL || value == SIGSEGV || value == SIGABRT || value == SIGTERM || value == SIGBUS)
      failure.end.wait_status = value;
  }
  return failure.process > 0;
}

}  // namespace

const SiteDialect dialect_of_hydra{"mpiexec (Hydra)", &label_of_hydra, nullptr, &failure_of_hydra};

}  // namespace hvd::launcher
