// Checks that TMPDIR (or /tmp) exists, can be written to, and has room.
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "base/result.hpp"
#include "base/text/size_text.hpp"
#include "launcher/preflight/check.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::launcher::preflight {
namespace {

constexpr double least_room = 64.0 * (1 << 20);

// Tries to write a file in the folder. Returns the reason of a failure; empty if it worked.
std::string fault_of(const std::string& folder) {
  std::string path = folder + "/horovod-preflight-XXXXXX";
  posix::FileDescriptor file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file) return errno_text(errno);
  const char bytes[4096]{};
  bool is_written = ::write(file.get(), bytes, sizeof bytes) == static_cast<ssize_t>(sizeof bytes);
  std::string fault = is_written ? "" : errno_text(errno);
  ::unlink(path.c_str());
  return fault;
}

}  // namespace

const Check scratch_check{
    "TMPDIR",
    [](const Place& place, Facts& facts) {
      if (!place.is_first) return;
      std::string folder = place.environment.get("TMPDIR").value_or("");
      if (folder.empty()) folder = "/tmp";
      facts.set("scratch", folder);
      facts.set("scratch_fault", fault_of(folder));
      struct statvfs state {};
      if (::statvfs(folder.c_str(), &state) == 0)
        facts.set("scratch_free", static_cast<long long>(state.f_bavail) * static_cast<long long>(state.f_frsize));
    },
    [](const Allocation& allocation) -> Verdict {
      Verdict verdict;
      for (const Facts* probe : allocation.first_of_each_node()) {
        const std::string folder = probe->get("scratch");
        verdict.summary = folder + " can be written to everywhere";
        const double room = probe->number("scratch_free").value_or(1e300);
        if (!probe->get("scratch_fault").empty())
          verdict.findings.push_back(
              {Severity::fault, probe->get("host"), "TMPDIR " + folder + " that can be written to",
               probe->get("scratch_fault"),
               "set TMPDIR to a folder that exists on every node, or let the scheduler make it"});
        else if (room < least_room)
          verdict.findings.push_back({Severity::fault, probe->get("host"),
                                      "at least " + size_text(least_room) + " free in " + folder, size_text(room),
                                      "remove what earlier jobs left there, or set TMPDIR to another file system"});
      }
      return verdict;
    }};

}  // namespace hvd::launcher::preflight
