#!/usr/bin/env python3
"""Names that only their owners know: fails on code that compares the name of a transport as text in other
folders. What differs from one transport to the next is a column of src/base/transports.hpp.

usage: owned_names.py ROOT
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from names import files_below  # noqa: E402

TABLE = "src/base/transports.hpp"
OWNERS_OF_TRANSPORTS = ("src/transport/", "src/native/mpi/", "src/native/nccl/", "src/bootstrap/mpi", TABLE)
KINDS = {".cpp", ".hpp", ".py"}
# The value of the key `controller` of Horovod's files is a word of users, which happens to be "mpi".
LEFT_ALONE = {"src/launcher/options/config_file.cpp"}


def names_of_transports(root):
    return re.findall(r'^    \{"(\w+)", ', (root / TABLE).read_text(), re.MULTILINE)


def faults_of(root):
    root = pathlib.Path(root)
    names = names_of_transports(root)
    if not names:
        return [f"{TABLE}: no row was found"]
    words = "[\"'](" + "|".join(names) + ")[\"']"
    rules = [
        (OWNERS_OF_TRANSPORTS, re.compile(f"[=!]= ?{words}|{words} ?[=!]=|\\bstarts_with\\({words}"),
         f"compares with the name of a transport; ask a column of {TABLE}")]
    faults = []
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
    print("\n".join(found) if found else "only their owners know the names of transports")
    sys.exit(1 if found else 0)
