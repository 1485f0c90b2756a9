// Checks that a rank inside an image can use the host's PMIx, and that all ranks run in the same image.
#include "bootstrap/pmix/plugin.hpp"
#include "launcher/preflight/check.hpp"
#include "native/posix/plugins/shared_library.hpp"

#include <dlfcn.h>

namespace hvd::launcher::preflight {
namespace {

std::string number_in_words(const std::string& words) {
  std::size_t begin = words.find_first_of("0123456789");
  if (begin == std::string::npos) return "";
  return words.substr(begin, words.find_first_not_of("0123456789.", begin) - begin);
}

void gather_container(const Place& place, Facts& facts) {
  for (const char* name : {"HOROVOD_CONTAINER", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "container"})
    if (auto image = place.environment.get(name); image && !image->empty() && !facts.has("image"))
      facts.set("image", *image);
  facts.set("pmix_host", number_in_words(place.environment.get("PMIX_VERSION").value_or("")));
  if (!place.is_first) return;
  auto library = posix::SharedLibrary::open("libpmix.so.2", RTLD_LAZY | RTLD_LOCAL);
  if (!library) return;
  if (auto tell = reinterpret_cast<const char* (*)()>(library->symbol("PMIx_Get_version")))
    facts.set("pmix_here", number_in_words(tell()));
  static posix::SharedLibrary kept;  // the library stays loaded, because code that uses it may run later
  kept = std::move(*library);
}

int major_of(const std::string& release) {
  return leading_number<int>(release).value_or(0);
}

}  // namespace

const Check container_check{
    "container", gather_container, [](const Allocation& allocation) -> Verdict {
      Verdict verdict = equal_on_all_nodes(allocation, "image", "image", "no image",
                                           "start all ranks in one image: horovodrun --container IMAGE");
      for (const Facts* probe : allocation.first_of_each_node()) {
        const std::string host = probe->get("pmix_host"), here = probe->get("pmix_here");
        if (host.empty() || here.empty() || host == here) continue;
        const bool meets = probe->has("size") && !probe->has("meeting_error");
        const bool is_far = major_of(host) != major_of(here);
        verdict.findings.push_back({meets || !is_far ? Severity::note : Severity::fault, probe->get("host"),
                                    "one PMIx: the host's is " + host,
                                    "the " + std::string(probe->has("image") ? "image" : "rank") + "'s is " + here,
                                    "build the image with the PMIx of the host, or start with another bootstrap "
                                    "(srun --mpi=none); releases of one major number work together"});
      }
      return verdict;
    }};

}  // namespace hvd::launcher::preflight
