// Checks the MPI and the NCCL that a rank would open on its node.
#include <dlfcn.h>

#include <array>

#include "launcher/options/gpu_libraries.hpp"
#include "launcher/preflight/check.hpp"
#include "native/posix/plugins/shared_library.hpp"

namespace hvd::launcher::preflight {
namespace {

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// Returns the release of the MPI library, which can be asked before MPI is started.
std::string mpi_release(const posix::SharedLibrary& library) {
  using Tell = int (*)(char*, int*);
  auto tell = reinterpret_cast<Tell>(library.symbol("MPI_Get_library_version"));
  std::array<char, 8192> text{};  // no MPI has a larger MPI_MAX_LIBRARY_VERSION_STRING
  int length = 0;
  if (tell == nullptr || tell(text.data(), &length) != 0) return "of unknown release";
  return first_line(text.data());
}

void gather_libraries(const Place& place, Facts& facts) {
  if (!place.is_first) return;
  std::string mpi;
  for (const char* name : {"libmpi.so.40", "libmpi.so.12", "libmpi_abi.so.1", "libmpi_ibm.so.3", "libmpi_cray.so.12"}) {
    auto library = posix::SharedLibrary::open(name, RTLD_LAZY | RTLD_LOCAL);
    if (!library) continue;
    mpi += (mpi.empty() ? "" : "; ") + mpi_release(*library) + " (" + name + ")";
    static std::vector<posix::SharedLibrary> kept;  // an MPI library may crash when it is unloaded
    kept.push_back(std::move(*library));
  }
  facts.set("mpi", mpi.empty() ? "none" : mpi);
  if (facts.has("nccl")) return;  // that of the plugin, which looks where ranks look
  const FoundLibrary nccl = find_nccl(place.environment, {});
  facts.set("nccl", nccl.version.empty() ? "none" : nccl.version);
}

}  // namespace

const Check libraries_check{"mpi, nccl", gather_libraries, [](const Allocation& allocation) {
                              const std::string remedy =
                                  "load the same modules on all nodes; LD_LIBRARY_PATH and "
                                  "/etc/ld.so.conf.d decide which one is found";
                              Verdict verdict = equal_on_all_nodes(allocation, "mpi", "MPI", "none", remedy);
                              Verdict nccl = equal_on_all_nodes(allocation, "nccl", "NCCL", "none", remedy);
                              verdict.summary += "; " + nccl.summary;
                              for (Finding& finding : nccl.findings) verdict.findings.push_back(std::move(finding));
                              return verdict;
                            }};

}  // namespace hvd::launcher::preflight
