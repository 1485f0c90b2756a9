#!/usr/bin/env python3
"""The length of lines: fails on lines of more than 120 columns in C and C++, Python, shell and CMake files, comments
included. Tables between "clang-format off" and "clang-format on" may be wider.

usage: lines.py ROOT
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from names import files_below  # noqa: E402

LONGEST = 120
KINDS = {".c", ".cpp", ".h", ".hpp", ".inl", ".py", ".sh", ".cmake", ".in"}
# Files that other programs and earlier releases have written.
LEFT_ALONE = "tests/fixtures/"


def is_looked_at(path):
    if path.suffix in KINDS or path.name == "CMakeLists.txt":
        return True
    with open(path, "rb") as file:  # programs without a suffix in their names
        return path.suffix == "" and file.read(2) == b"#!"


def faults_of(root):
    root = pathlib.Path(root)
    faults = []
    for path in files_below(root):
        relative = path.relative_to(root).as_posix()
        if not path.is_file() or path.is_symlink() or relative.startswith(LEFT_ALONE) or not is_looked_at(path):
            continue
        is_table = False
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            is_table = "clang-format off" in line or (is_table and "clang-format on" not in line)
            if len(line) > LONGEST and not is_table:
                faults.append(f"{relative}:{number}: {len(line)} columns, of which there may be {LONGEST}")
    return faults


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (pathlib.Path(sys.argv[1]) / "src").is_dir():
        sys.exit(__doc__)
    found = faults_of(sys.argv[1])
    print("\n".join(found) if found else f"no line has more than {LONGEST} columns")
    sys.exit(1 if found else 0)
