#!/usr/bin/env python3
"""Names of files, folders, tests and variables: fails on names that tell nothing, on generic folders, on tests whose
name is longer than 80 characters, and on HOROVOD_ variables that the table of src/base/settings/config.cpp does not
know, or that it shows although nothing reads them. Fails, too, on code that reads a setting of users from the
environment alone, because such code ignores the files of settings.

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
READ_IN_PYTHON = re.compile(r"""\b(?:environ(?:\.get\(|\.pop\(|\[)|getenv\()["'](\w+)["'](?!\] = )|"""
                            r"""["'](\w+)["'] (?:not )?in os\.environ""")
ENVIRONMENT_ALONE = re.compile(r"(?: = |Config::from\()(?:hvd::)?Environment::of_this_process\(\)")
# horovodrun starts these programs as it starts ranks, and has put the values of its files into their environment.
HAVE_FILES = {"src/launcher/preflight/probe.cpp", "src/launcher/staging/stager.cpp"}
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


def faults_of_variables(root):
    table = root / "src/base/settings/config.cpp"
    known = set(re.findall(r'^\s*\{"(HOROVOD_\w+)"', table.read_text(), re.MULTILINE)) if table.exists() else set()
    for path in files_below(root / "src"):
        if path.is_file() and path.suffix in {".cpp", ".hpp", ".py"} and path != table:
            text = path.read_text(errors="replace")
            for match in re.finditer(r"""["'](HOROVOD_[A-Z0-9_]+)["'=]""", text):
                if match.group(1) not in known:
                    line = text.count("\n", 0, match.start()) + 1
                    at = f"{path.relative_to(root)}:{line}"
                    yield f"{at}: {match.group(1)} has no row in src/base/settings/config.cpp"


def faults_of_settings(root):
    table = root / "src/base/settings/config.cpp"
    row = re.compile(r'^    \{"(HOROVOD_\w+)",(.*?)\},$', re.MULTILINE | re.DOTALL)
    text = table.read_text() if table.exists() else ""
    readers = [row.sub("", text), *(path.read_text(errors="replace") for top in ("src", "schedulers", "modules")
                                    for path in (files_below(root / top) if (root / top).is_dir() else ())
                                    if path.is_file() and path.parent != table.parent)]
    words = set(re.findall(r"\w+", "\n".join(readers)))
    read = set(re.findall(r"(?:\.|->)(\w+)", "\n".join(readers)))
    for name, rest in row.findall(text):
        member = re.search(r"&Config::(\w+)", rest)
        is_read = member.group(1) in read if member else name in words
        if not is_read and not re.search(r"\b(missed|unheard|idle)\b", rest):
            found = member.group() if member else name
            yield f"src/base/settings/config.cpp: nothing reads {found}, though users may set it"


def faults_of_readers(root):
    """A file of settings holds for ranks that horovodrun did not start only if their code asks for it."""
    table = root / "src/base/settings/config.cpp"
    rows = re.findall(r'^    \{"(HOROVOD_\w+)",(.*?)\},$', table.read_text() if table.exists() else "", re.M | re.S)
    not_for_users = {name for name, rest in rows if re.search(r'\b(?:ordinary|equal),\s*"[^"]+"$', rest)}
    for path in files_below(root / "src"):
        relative = path.relative_to(root).as_posix()
        text = path.read_text(errors="replace") if path.is_file() else ""
        for read in READ_IN_PYTHON.finditer(text) if relative.startswith(PUBLIC_PACKAGE + "/") else ():
            name = read[1] or read[2]
            if name in dict(rows) and name not in not_for_users:
                line = text.count("\n", 0, read.start()) + 1
                yield f"{relative}:{line}: {name} may be set in a file; read it by _ops.setting() or _ops.is_on()"
        alone = ENVIRONMENT_ALONE.search(text) if path.suffix == ".cpp" and "Config::from(" in text else None
        if alone and relative not in HAVE_FILES:
            line = text.count("\n", 0, alone.start()) + 1
            yield (f"{relative}:{line}: a Config from the environment alone lacks the files of settings; use "
                   "posix::with_settings_files or posix::environment_with_files")
        if relative in HAVE_FILES and not alone:
            yield f"{relative}: needs no place in HAVE_FILES of tests/layering/names.py"


def faults_of(root):
    root = pathlib.Path(root)
    return [*faults_of_names(root), *faults_of_tests(root), *faults_of_variables(root), *faults_of_settings(root),
            *faults_of_readers(root)]


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (pathlib.Path(sys.argv[1]) / "src").is_dir():
        sys.exit(__doc__)
    found = faults_of(sys.argv[1])
    print("\n".join(found) if found else "every name tells what it is for")
    sys.exit(1 if found else 0)
