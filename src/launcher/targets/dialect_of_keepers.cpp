// For launchers whose labels do not matter, because the keepers of the ranks label their packets.
#include "launcher/targets/dialects.hpp"
#include "launcher/wire/keeper_protocol.hpp"

namespace hvd::launcher {
namespace {

std::optional<LabelledLine> label_of_keeper(std::string_view line) {
  auto read = read_label(line);
  if (!read) return std::nullopt;
  return LabelledLine{Rank{read->rank}, read->text};
}

// The keepers report failures, so nothing is read from the launcher's lines.
bool no_failure(std::string_view, FirstFailure&) {
  return false;
}

}  // namespace

const SiteDialect dialect_of_jsrun{"jsrun", &label_of_keeper, nullptr, &no_failure};
const SiteDialect dialect_of_pals{"PALS's mpiexec", &label_of_keeper, nullptr, &no_failure};
const SiteDialect dialect_of_flux{"flux run", &label_of_keeper, nullptr, &no_failure};

}  // namespace hvd::launcher
