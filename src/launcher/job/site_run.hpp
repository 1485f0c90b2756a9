#pragma once
// A launcher of the site while it runs. Its lines become the output of the ranks, and the failure that counts.
#include <algorithm>
#include <chrono>
#include <optional>

#include "launcher/console/console.hpp"
#include "launcher/job/alarm.hpp"
#include "launcher/job/first_failure.hpp"
#include "launcher/job/site_launcher.hpp"

namespace hvd::launcher {

class SiteRun {
 public:
  // The console must outlive this object. Within `grace` the launcher must end the other ranks after a rank has failed,
  // or must end itself after all ranks have ended. It gets at least `least_patience`.
  SiteRun(const SiteDialect& dialect, int ranks, std::chrono::milliseconds grace, Console& console)
      : dialect_(dialect), console_(console), output_(dialect, ranks), patience_(std::max(grace, least_patience)) {}

  static constexpr std::chrono::milliseconds least_patience{5000};

  void add(const Output& output);
  void end(const Exited& end) { end_ = end; }  // the launcher has ended before this process wanted it to end
  InputTaken input_taken() { return output_.input_taken(); }
  bool want_another_run() const { return output_.want_another_run(); }
  // True if the launcher has not ended the other ranks, or itself, in time.
  bool is_overdue();
  void give_up();  // call it before we end the other ranks
  std::chrono::milliseconds left() const { return overdue_at_.left(); }

  void finish();  // call it when no more output comes
  struct Outcome {
    std::optional<FirstFailure> failure;  // the failure of a rank
    int exit_code = 0;                    // the exit code of the launcher, if it reported no failed rank
  };
  // Distinguishes a rank's exit code from the launcher's. Call it after finish().
  Outcome outcome();

 private:
  const SiteDialect& dialect_;
  Console& console_;
  SiteOutput output_;
  std::chrono::milliseconds patience_;
  std::function<void(const Output&)> print_ = [this](const Output& output) { console_.printer().add(output); };
  std::function<void(std::string_view)> say_ = [this](std::string_view line) { console_.printer().say(line); };
  Alarm overdue_at_;
  std::optional<Exited> end_;
  std::optional<FirstFailure> cause_;  // the failure that was known when this process ended the launcher
};

}  // namespace hvd::launcher
