#!/usr/bin/env python3
"""Names of files, folders, tests and variables: fails on names that tell nothing, on generic folders, on tests whose
name is longer than 80 characters, and on HOROVOD_ variables that the table of src/base/settings/config.cpp does not
know, or that it shows although nothing reads them. Fails, too, on code that reads a setting of users from the
environment alone, because such code ignores the files of settings, and on C++ that takes a flag or a number from the
text of the environment, because such code does not know all words that the table's rows take.

usage: names.py ROOT
"""
import pathlib
import re
import sys

# Anything can be put into a folder or file with such a name: the name tells nothing.
EMPTY_WORDS = {"util", "utils", "common", "helper", "helpers", "misc", "manager", "impl"}
LONGEST_TEST = 80
# The public package has Horovod's layout, because scripts import horovod.common and other generic names.
PUBLIC_PACKAGE = "src/python/horovod"
TABLE = "src/base/settings/config.cpp"
ROW = re.compile(r'^    \{"(HOROVOD_\w+)",(.*?)\},$', re.MULTILINE | re.DOTALL)
READ_IN_PYTHON = re.compile(r"""\b(?:environ(?:\.get\(|\.pop\(|\[)|getenv\()["'](\w+)["'](?!\] = )|"""
                            r"""["'](\w+)["'] (?:not )?in os\.environ""")
ENVIRONMENT_ALONE = re.compile(r"(?: = |Config::from\()(?:hvd::)?Environment::of_this_process\(\)")
# horovodrun starts these programs as it starts ranks, and has put the values of its files into their environment.
HAVE_FILES = {"src/launcher/preflight/probe.cpp", "src/launcher/staging/stager.cpp"}
RULE = re.compile(r'^constexpr Rule (\w+)\{"[^"]*", Rule::Form::(?!text|choice)', re.MULTILINE)
RAW_READ = re.compile(r'\b(?:get|number|has|\w*getenv)\(\s*(?:"(HOROVOD_\w+)"|(?:\w+::)*(\w+))\s*\)')
CONSTANT = re.compile(r'\b(\w+) = "(HOROVOD_\w+)"')
# Launchers write these; bootstraps report a wrong one in words of their own, or pass it on. The last one is a mark that
# horovodrun compares with another text.
MAY_BE_RAW = {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_ELASTIC_PROCESS", "HOROVOD_GLOO_RENDEZVOUS_PORT",
              "HOROVOD_THREAD_SHARE"}
WITHOUT_TABLE = {"src/bootstrap/pmi_bridge/preload.c"}  # C; it runs also where no library of C++ can be loaded
# Not part of the tree: the outputs of builds, tools and the hosting machine.
LEFT_ALONE = {"build", "dist", "shared", "__pycache__", "node_modules"}


def files_below(root):
    for path in sorted(root.iterdir()):
        if path.name.startswith(".") or path.name in LEFT_ALONE:
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from files_below(path)


def faults_of_names(root):
    for path in files_below(root):
        relative = path.relative_to(root).as_posix()
        public = relative.startswith(PUBLIC_PACKAGE + "/")
        if not public and path.name.split(".")[0].lower() in EMPTY_WORDS:
            yield f"{relative}: '{path.name}' does not tell what belongs there; name it after what it does"


def faults_of_tests(root):
    definition = re.compile(r"\bTEST(?:_F|_P)?\(\s*\w+,\s*(\w+)|\bdef test_(\w+)|\badd_test\(NAME [a-z_]+\.(\w+)")
    folder = root / "tests"
    for path in files_below(folder) if folder.is_dir() else ():
        if path.is_file() and path.suffix in {".cpp", ".py", ".cmake"}:
            for match in definition.finditer(path.read_text(errors="replace")):
                test = next(filter(None, match.groups()))
                if len(test) > LONGEST_TEST:
                    yield f"{path.relative_to(root)}: {test}: a test's name has at most {LONGEST_TEST} characters"


def line_of(text, match):
    return text.count("\n", 0, match.start()) + 1


def faults_of_variables(rows, sources):
    for file, text in sources.items():
        if file.startswith("src/") and file.endswith((".cpp", ".hpp", ".py")) and file != TABLE:
            for match in re.finditer(r"""["'](HOROVOD_[A-Z0-9_]+)["'=]""", text):
                if match.group(1) not in rows:
                    yield f"{file}:{line_of(text, match)}: {match.group(1)} has no row in {TABLE}"


def faults_of_settings(rows, sources):
    readers = "\n".join(ROW.sub("", text) if file == TABLE else text for file, text in sources.items()
                        if file == TABLE or file.rpartition("/")[0] != TABLE.rpartition("/")[0])
    words, read = set(re.findall(r"\w+", readers)), set(re.findall(r"(?:\.|->)(\w+)", readers))
    for name, rest in rows.items():
        member = re.search(r"&Config::(\w+)", rest)
        is_read = member.group(1) in read if member else name in words
        if not is_read and not re.search(r"\b(missed|unheard|idle)\b", rest):
            yield f"{TABLE}: nothing reads {member.group() if member else name}, though users may set it"


def faults_of_readers(rows, sources):
    """A file of settings holds for ranks that horovodrun did not start only if their code asks for it."""
    not_for_users = {name for name, rest in rows.items() if re.search(r'\b(?:ordinary|equal),\s*"[^"]+"$', rest)}
    for file, text in sources.items():
        for read in READ_IN_PYTHON.finditer(text) if file.startswith(PUBLIC_PACKAGE + "/") else ():
            name = read[1] or read[2]
            if name in rows and name not in not_for_users:
                yield (f"{file}:{line_of(text, read)}: {name} may be set in a file; read it by _ops.setting() or "
                       "_ops.is_on()")
        alone = ENVIRONMENT_ALONE.search(text) if file.endswith(".cpp") and "Config::from(" in text else None
        if alone and file not in HAVE_FILES:
            yield (f"{file}:{line_of(text, alone)}: a Config from the environment alone lacks the files of settings; "
                   "use posix::with_settings_files or posix::environment_with_files")
        if file in HAVE_FILES and not alone:
            yield f"{file}: needs no place in HAVE_FILES of tests/layering/names.py"


def faults_of_raw_reads(rows, sources):
    rules = set(RULE.findall(sources.get(TABLE, "")))
    typed = {name for name, rest in rows.items() if re.match(r"\w+", rest.strip())[0] in rules} - MAY_BE_RAW
    of_headers = dict(found for file, text in sources.items() if file.endswith(".hpp") for found in
                      CONSTANT.findall(text))
    for file, text in sources.items():
        if not file.endswith((".c", ".cpp", ".hpp")) or file.startswith("src/base/settings/") or file in WITHOUT_TABLE:
            continue
        constants = of_headers | dict(CONSTANT.findall(text))
        for read in RAW_READ.finditer(text):
            if (name := read[1] or constants.get(read[2])) in typed:
                yield (f"{file}:{line_of(text, read)}: {name} is a flag or a number, which may be written in several "
                       "ways; read it by is_on() or number_of() of base/settings/config.hpp")


def faults_of(root):
    root = pathlib.Path(root)
    sources = {path.relative_to(root).as_posix(): path.read_text(errors="replace")
               for top in ("src", "schedulers", "modules") if (root / top).is_dir()
               for path in files_below(root / top) if path.is_file()}
    rows = dict(ROW.findall(sources.get(TABLE, "")))
    return [*faults_of_names(root), *faults_of_tests(root), *faults_of_variables(rows, sources),
            *faults_of_settings(rows, sources), *faults_of_readers(rows, sources),
            *faults_of_raw_reads(rows, sources)]


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (pathlib.Path(sys.argv[1]) / "src").is_dir():
        sys.exit(__doc__)
    found = faults_of(sys.argv[1])
    print("\n".join(found) if found else "every name tells what it is for")
    sys.exit(1 if found else 0)
