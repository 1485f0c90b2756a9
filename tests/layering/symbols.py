#!/usr/bin/env python3
"""What the core library needs and gives: fails if it has an undefined symbol of an optional library or a framework, or
exports anything but the C functions of horovod.h.

usage: symbols.py LIBRARY HEADER
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from includes import HEADERS_OF  # noqa: E402

# The symbols of the libraries whose headers includes.py keeps in these folders.
SYMBOLS_OF = {
    "native/pmix": r"PMIx_|PMIX_",
    "native/hwloc": r"hwloc_",
    "native/mpi": r"P?MPI_",
    "native/nccl": r"p?nccl",
    "native/cuda": r"cuda|cu[A-Z]\w+$|nvml",
    "native/nvtx": r"nvtx",
    "native/archive": r"archive_|(in|de)flate|gz[a-z]+$|zlib|(crc|adler)32",
    "native/hdf5": r"H5\w+_",
    "python": r"Py[A-Z_]\w+$",
    "python/horovod/tensorflow": r"tensorflow::|xla::|TF_",
    "(nowhere)": r"c10::|at::|torch::",
}
OF_THE_CORE = {"devices"}  # Highway, which is compiled into the core
OPTIONAL = re.compile("|".join(SYMBOLS_OF.values()))


def faults_of_rows():
    for folder in sorted(HEADERS_OF.keys() ^ SYMBOLS_OF.keys() ^ OF_THE_CORE):
        yield f"tests/layering: {folder} needs a row both in HEADERS_OF of includes.py and in SYMBOLS_OF of symbols.py"


def symbols_of(library, which):
    command = ["nm", "--dynamic", "--demangle", "--without-symbol-versions", which, library]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    # "                 U getpid" or "0000000000001139 T hvd_init"; versions of symbols have the type A
    return [match.group(1) for match in (re.match(r"[0-9a-f ]{16} [^A] (.*)", line) for line in lines) if match]


def faults_of(library, header):
    yield from faults_of_rows()
    with open(header) as file:
        public = set(re.findall(r"^HVD_API [^(]*?(\w+)\(", file.read(), re.MULTILINE))
    if not public:
        yield f"{header}: no line begins with HVD_API: nothing to compare with"
    for symbol in symbols_of(library, "--undefined-only"):
        if OPTIONAL.match(symbol):
            yield f"{library} needs {symbol}: what needs an optional library belongs into a plugin"
    exported = set(symbols_of(library, "--defined-only"))
    for symbol in sorted(exported - public):
        yield f"{library} exports {symbol}, which is no function of {header}"
    for symbol in sorted(public - exported):
        yield f"{library} does not export {symbol}, which {header} declares"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found = list(faults_of(*sys.argv[1:]))
    print("\n".join(found) if found else "the library needs and exports what it should")
    sys.exit(1 if found else 0)
