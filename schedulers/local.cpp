// The case without a scheduler: this machine, with the processors that this process may use.
#include "schedulers/grammar/host_lists.hpp"
#include "schedulers/scheduler.hpp"

namespace hvd::schedulers {
namespace {

class Local final : public Scheduler {
 public:
  Local()
      : Scheduler({.name = "this machine",
                   .job_variable = nullptr,
                   .prefixes = {},
                   .place = Place::without_others,
                   .output_files = {},
                   .remote_starter = {}}) {}

  std::optional<std::string> detected(const Environment&) const override { return "no scheduler's variables are set"; }

  std::string job(const Sources&) const override { return ""; }

  Result<Allocation> allocation(const Sources& sources) const override {
    Allocation found;
    found.source = "/proc/self/status";
    auto status = sources.read_file(found.source);
    if (!status) return std::move(status.error());
    constexpr std::string_view key = "Cpus_allowed_list:";
    std::size_t at = status->find(key);
    if (at == std::string::npos)
      return Error(ErrorCode::invalid_argument, found.source + " has no line " + std::string(key));
    at = status->find_first_not_of(" \t", at + key.size());
    std::string_view list = std::string_view(*status).substr(std::min(at, status->size()));
    auto processors = numbers_in(list.substr(0, list.find('\n')));
    if (!processors) return in(found.source, std::move(processors.error()));
    int count = static_cast<int>(processors->size());
    found.hosts.push_back({"localhost", count, count});
    return found;
  }

  std::optional<std::chrono::seconds> time_left(const Sources&) const override { return std::nullopt; }
  Requeue requeue(const Sources&) const override { return {}; }
  std::string how_to_ask_for(int) const override { return "a larger machine"; }
};

}  // namespace

std::unique_ptr<Scheduler> make_local() {
  return std::make_unique<Local>();
}

}  // namespace hvd::schedulers
