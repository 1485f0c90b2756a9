// Checks the Python that runs the program, and the horovod package in it.
#include "base/text/trimmed.hpp"
#include "launcher/preflight/check.hpp"
#include "native/posix/processes/ask_program.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::launcher::preflight {
namespace {

// The script imports nothing, because importing PyTorch alone takes seconds.
constexpr const char* script =
    "import importlib.util as u, importlib.metadata as m, platform\n"
    "def release(name):\n"
    "    for one in ([name] if name != 'horovod' else [name, 'horovod-hpc']):\n"
    "        try: return m.version(one)\n"
    "        except Exception: pass\n"
    "    try:\n"
    "        folder = list(u.find_spec(name).submodule_search_locations)[0]\n"
    "        scope = {}\n"
    "        exec(open(folder + '/_version.py').read(), scope)\n"
    "        return scope['__version__']\n"
    "    except Exception: return '(of unknown release)'\n"
    "def line(name):\n"
    "    try: there = u.find_spec(name) is not None\n"
    "    except Exception: there = False\n"
    "    return name + ' ' + release(name) if there else 'no ' + name\n"
    "print('Python', platform.python_version() + ',', ', '.join(line(n) for n in ('horovod', 'torch')))\n";

void gather_python(const Place& place, Facts& facts) {
  if (!place.is_first) return;
  std::string path = posix::search_path(place.environment);
  int code = 0;
  Result<std::string> python = posix::find_program(place.python.empty() ? "python" : place.python, path, code);
  if (!python && place.python.empty()) python = posix::find_program("python3", path, code);
  if (!python) return facts.set("python", place.python.empty() ? "no Python" : python.error().message);
  std::string answer = posix::answer_of({*python, "-c", script}, std::chrono::seconds(8), false);
  facts.set("python", answer.empty() ? *python + " does not answer" : std::string(trimmed(answer)));
  if (!place.python.empty()) facts.set("python_is_wanted", "yes");
}

}  // namespace

const Check python_check{
    "python", gather_python, [](const Allocation& allocation) -> Verdict {
      Verdict verdict = equal_on_all_nodes(allocation, "python", "package", "no Python",
                                           "use one environment on all nodes: on a shared file system, or installed "
                                           "alike everywhere");
      for (const Facts* probe : allocation.first_of_each_node())
        if (verdict.findings.empty() && probe->has("python_is_wanted") &&
            (probe->get("python").find("no horovod") != std::string::npos ||
             probe->get("python").ends_with("does not answer")))
          verdict.findings.push_back({Severity::fault, probe->get("host"),
                                      "the package horovod in the program's Python", probe->get("python"),
                                      "module load horovod, or activate the environment that it is installed in"});
      return verdict;
    }};

}  // namespace hvd::launcher::preflight
