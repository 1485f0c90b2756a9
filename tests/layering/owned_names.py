#!/usr/bin/env python3
"""Names that only their owners know: fails on code that compares the name of a transport as text, or names a variable
of a scheduler, in other folders. What differs from one transport or scheduler to the next is a column of
src/base/transports.hpp, or a function of schedulers/. Texts for people are no names either: fails on code that looks
for words in them. And what has one owner (the start of programs and of threads, the search path, sizes for people) is
not written a second time. A variable that a scheduler reads by a literal name begins with one of its prefixes.

usage: owned_names.py ROOT
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from names import files_below  # noqa: E402

TABLE = "src/base/transports.hpp"
OWNERS_OF_TRANSPORTS = ("src/transport/", "src/native/mpi/", "src/native/nccl/", "src/bootstrap/mpi", TABLE)
# horovod.runner has the modules of Horovod, which read these variables without the library.
OWNERS_OF_VARIABLES = ("schedulers/", "src/bootstrap/", "src/python/horovod/runner/")
# The script that finds hosts gets a process group of its own.
OWNERS_OF_SPAWN = ("src/native/posix/processes/spawn.", "src/launcher/elastic/discovery.cpp")
# The plugin of PMIx has no other file of native/posix.
OWNERS_OF_THREADS = ("src/native/posix/processes/thread.", "src/native/pmix/")
# What reads a variable in schedulers/.
READ = re.compile(r'\.(?:get|has|number)\("\w+|\benvironment, "\w+|: \{("\w+"(, )?)+\}\)')
OF_NO_SCHEDULER = {"ENVIRONMENT", "_HET_GROUP_"}  # several schedulers set it to BATCH; the end of a name
OWNERS_OF_IDS = ("src/base/",)
KINDS = {".cpp", ".hpp", ".py"}
# The value of the key `controller` of Horovod's files is a word of users, which happens to be "mpi".
LEFT_ALONE = {"src/launcher/options/config_file.cpp"}


def names_of_transports(root):
    return re.findall(r'^    \{"(\w+)", ', (root / TABLE).read_text(), re.MULTILINE)


def prefixes_in(path):
    """What the variables of the scheduler of this file begin with."""
    row = re.search(r"\.prefixes = \{([^}]*)\}", path.read_text())
    return tuple(re.findall(r'"(\w+)"', row.group(1))) if row else ()


def prefixes_of_variables(root):
    """What the variables of all schedulers begin with, as a pattern."""
    return "|".join(prefix for path in sorted((root / "schedulers").glob("*.cpp")) for prefix in prefixes_in(path))


def faults_of_prefixes(root):
    """A variable without a prefix is not in scheduler.txt of a support bundle, and other folders may read it."""
    for scheduler in sorted((root / "schedulers").glob("*.cpp")):
        prefixes = prefixes_in(scheduler)
        for path in [scheduler, *sorted(scheduler.with_suffix("").glob("*.?pp"))]:
            text = path.read_text()
            for read in READ.finditer(text):
                for name in re.findall(r'"([A-Z_]\w*)', read.group()):
                    if name not in OF_NO_SCHEDULER and not name.startswith(prefixes):
                        line = text.count("\n", 0, read.start()) + 1
                        yield (f"{path.relative_to(root)}:{line}: {name} begins with no prefix of its scheduler; "
                               f"add one to the Traits in {scheduler.name}")


def faults_of(root):
    root = pathlib.Path(root)
    names = names_of_transports(root)
    if not names:
        return [f"{TABLE}: no row was found"]
    prefixes = prefixes_of_variables(root)
    if not prefixes:
        return ["schedulers/: no prefix of variables was found"]
    words = "[\"'](" + "|".join(names) + ")[\"']"
    rules = [
        (OWNERS_OF_TRANSPORTS, re.compile(f"[=!]= ?{words}|{words} ?[=!]=|\\bstarts_with\\({words}"),
         f"compares with the name of a transport; ask a column of {TABLE}"),
        (OWNERS_OF_VARIABLES, re.compile(rf"""["'](?:{prefixes})\w*["']"""),
         "names a variable of a scheduler; let a function of schedulers/ read it"),
        (OWNERS_OF_IDS, re.compile(r'"[^"\n]*\[HVD[^"\n]*"'),
         "writes or reads an id within a text; give the error an id (base/error_ids), ask Error::id"),
        ((), re.compile(r"\b(?:message|meaning|hvd_last_error\(\)\)?)\.(?:r?find|starts_with|ends_with)\("),
         "reads a text for people back; ask a field"),
        (OWNERS_OF_SPAWN, re.compile(r"\bposix_spawnp?\("), "is another spawn; use posix::spawn"),
        (OWNERS_OF_THREADS, re.compile(r"\bstd::thread\([^)]"), "is another start; use posix::start_thread"),
        (("src/native/posix/processes/process.",), re.compile(r'get\("PATH"\)\.value_or'), "use posix::search_path"),
        (("src/base/text/size_text.",), re.compile(r'"[^"\n]*%[.\d]*f [KMGT]i?B(?!/)'), "use size_text")]
    faults = [*faults_of_prefixes(root)]
    for path in [*files_below(root / "src"), *(files_below(root / "jobscripts") if (root / "jobscripts").is_dir()
                                               else ())]:
        relative = path.relative_to(root).as_posix()
        if not path.is_file() or path.suffix not in KINDS or relative in LEFT_ALONE:
            continue
        text = path.read_text(errors="replace")
        for owners, pattern, advice in rules:
            if relative.startswith(owners):
                continue
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                faults.append(f"{relative}:{line}: {match.group()} {advice}")
    return faults


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (pathlib.Path(sys.argv[1]) / TABLE).is_file():
        sys.exit(__doc__)
    found = faults_of(sys.argv[1])
    print("\n".join(found) if found else "only owners know names of transports and schedulers; no text is read back")
    sys.exit(1 if found else 0)
