"""Shared by the tests of wheels: makes a wheel, reads what its files need and export, and makes environments that have
it."""
import os
import pathlib
import re
import subprocess
import zipfile

import installed

WORK = installed.ROOT / "build" / "wheels"
TOOLS = WORK / "tools" / "bin"


def make(architecture, folder):
    """Makes the wheel of this tree. Files that did not change are not compiled again."""
    done = installed.run(installed.ROOT / "src/python/wheels/build", "--arch", architecture, "--into", folder)
    if done.returncode != 0:
        raise AssertionError(done.stdout)
    return next(pathlib.Path(folder).glob(f"horovod-*_{architecture}.whl"))


def unpack(wheel, folder):
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            mode = entry.external_attr >> 16
            path = pathlib.Path(archive.extract(entry, folder))
            if mode and not entry.is_dir():
                path.chmod(mode)
    return pathlib.Path(folder)


def objects(folder):
    """Returns the programs and shared objects below a folder."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]


def lines_of(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout.splitlines()


def glibc_of(path):
    """Returns the newest version of glibc that the file needs, from its table of needed versions."""
    text = "\n".join(lines_of("readelf", "--version-info", "--wide", path))
    found = [tuple(int(number) for number in version.split("."))
             for version in re.findall(r"Name: GLIBC_([0-9.]+) ", text)]
    return max(found)


def libraries_of(path):
    """Returns the libraries that the loader must find for this file."""
    return {match[1] for line in lines_of("readelf", "--dynamic", "--wide", path)
            if (match := re.search(r"\(NEEDED\).*\[(.*)\]", line))}


def exports_of(path):
    """Returns the symbols that the file exports. The names of versions are in the table, too, but are left out."""
    return {words[-1].partition("@")[0] for line in lines_of("nm", "--dynamic", "--defined-only", path)
            if (words := line.split())[-2] != "A"}


def environment(folder, with_torch=False):
    """Makes a new virtual environment with pip. If asked for, it also has torch and its packages from .venv-tests;
    returns None if these are missing."""
    python = installed.ROOT / ".venv-tests" / "bin" / "python"
    if with_torch and installed.environment_with_torch(folder) is None:
        return None
    done = installed.run(python if python.exists() else "python3", "-m", "venv", folder)
    if done.returncode != 0:
        raise AssertionError(done.stdout)
    return folder
