#!/usr/bin/env python3
"""What programs and libraries of ours need of the C library: fails on functions that came with a later glibc than 2.28,
which RHEL 8 has (SLES 15: 2.31 or later).

What is built here does not run there: glibc 2.33 and 2.34 gave many old functions a new version, and the C++ library's
headers use what they find. One builds on the oldest system that is to be run on. So this goes by names: those that are
as old as 2.28 may have a new version.

usage: libc_symbols.py FILE...
"""
import re
import subprocess
import sys

NEWEST = (2, 28)
# Old functions with a newer version: they moved from other libraries into libc, or were inline before.
OLD = {"__libc_start_main", "dladdr", "dladdr1", "dlclose", "dlerror", "dlinfo", "dlopen", "dlsym", "dlvsym", "fstat",
       "fstat64", "fstatat", "fstatat64", "lstat", "lstat64", "mknod", "shm_open", "shm_unlink", "stat", "stat64"}
OLD_FAMILIES = re.compile(r"pthread_(?!cond_clockwait|mutex_clocklock|rwlock_clock|clockjoin)\w+$|sem_(?!clockwait)\w+$"
                          r"|(mq|timer|aio|lio)_\w+$|__isoc99_|__pthread_")
# Functions that the compiler's own headers use if the C library has them.
OF_THE_COMPILER = {"__libc_single_threaded", "pthread_cond_clockwait", "pthread_mutex_clocklock",
                   "pthread_rwlock_clockrdlock", "pthread_rwlock_clockwrlock", "_dl_find_object"}


def symbols_of(file):
    """Returns (name, version of glibc) for each symbol that the file needs."""
    lines = subprocess.run(["nm", "--dynamic", "--undefined-only", file], check=True, capture_output=True,
                           text=True).stdout
    for name, numbers in re.findall(r"^ +[Uvw] (\w+)@+GLIBC_([0-9.]+)$", lines, re.MULTILINE):
        yield name, tuple(map(int, numbers.split(".")))


def faults_of(file):
    symbols = list(symbols_of(file))
    if not symbols:
        yield f"{file} needs nothing of glibc that nm shows: nothing was checked"
    for name, version in symbols:
        if version > NEWEST and name not in OLD | OF_THE_COMPILER and not OLD_FAMILIES.match(name):
            yield (f"{file} needs {name}, which came with glibc {'.'.join(map(str, version))}: sites have "
                   f"{'.'.join(map(str, NEWEST))}; do without it, or fall back")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    found = [fault for file in sys.argv[1:] for fault in faults_of(file)]
    print("\n".join(found) if found else "everything that is needed came with glibc 2.28 or before")
    sys.exit(1 if found else 0)
