// Checks the limits that the shell (ulimit) sets for a rank.
#include <sys/resource.h>

#include "base/text/size_text.hpp"
#include "launcher/preflight/check.hpp"
#include "native/posix/machine/fabric_devices.hpp"

namespace hvd::launcher::preflight {
namespace {

constexpr double least_files = 1024;
constexpr double least_locked = 64.0 * (1 << 20);

void set_limit(Facts& facts, const char* name, __rlimit_resource which, bool hard) {
  rlimit limit{};
  if (::getrlimit(which, &limit) != 0) return;
  rlim_t value = hard ? limit.rlim_max : limit.rlim_cur;
  if (value == RLIM_INFINITY) facts.set(name, "unlimited");
  else facts.set(name, static_cast<long long>(value));
}

double limit_of(const Facts& probe, const char* name) {
  return probe.number(name).value_or(1e300);
}

}  // namespace

const Check limits_check{
    "limits",
    [](const Place&, Facts& facts) {
      set_limit(facts, "nofile", RLIMIT_NOFILE, true);
      set_limit(facts, "memlock", RLIMIT_MEMLOCK, false);
      set_limit(facts, "stack", RLIMIT_STACK, false);
      facts.set("has_fabric", posix::fabric_devices().empty() ? "no" : "yes");
    },
    [](const Allocation& allocation) -> Verdict {
      Verdict verdict{"open files and locked memory suffice", {}};
      double usual_locked = 0;
      for (const auto& node : allocation.by_node())
        usual_locked = std::max(usual_locked, limit_of(*node.front(), "memlock"));
      for (const auto& node : allocation.by_node()) {
        const Facts& probe = *node.front();
        if (double files = limit_of(probe, "nofile"); files < least_files)
          verdict.findings.push_back(
              {Severity::fault, probe.get("host"), "ulimit -Hn of at least 1024", probe.get("nofile") + " open files",
               "raise it in /etc/security/limits.conf, and LimitNOFILE of sshd, slurmd, pbs_mom"});
        const double locked = limit_of(probe, "memlock");
        const bool is_odd = locked < usual_locked;
        if (locked < least_locked && (probe.get("has_fabric") == "yes" || is_odd))
          verdict.findings.push_back(
              {Severity::fault, probe.get("host"),
               is_odd ? "ulimit -l as on other nodes (" +
                            (usual_locked >= 1e300 ? std::string("unlimited") : size_text(usual_locked)) + ")"
                      : "ulimit -l unlimited, since a fabric registers memory",
               size_text(locked) + " of locked memory",
               "set memlock unlimited in /etc/security/limits.conf, and LimitMEMLOCK=infinity of sshd, slurmd, "
               "pbs_mom"});
      }
      return verdict;
    }};

}  // namespace hvd::launcher::preflight
