"""Shared by the tests of this folder: a build that is installed into a prefix, and shells with a modules tool."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HVD_BUILD", ROOT / "build" / "release"))
TOOLS = ROOT / "build" / "module-tools"
LMOD = TOOLS / "lmod/usr/share/lmod/lmod/init/bash"
ENVIRONMENT_MODULES = TOOLS / "environment-modules/usr/share/modules/init/bash"


def run(*command, **options):
    """Runs a command to its end. The result's stdout has standard output and standard error together, as text."""
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **options)


def install(prefix, **environment):
    """Installs the build; if that fails, the error shows CMake's output."""
    done = run("cmake", "--install", BUILD, "--prefix", prefix, env={**os.environ, **environment})
    if done.returncode != 0:
        raise AssertionError(done.stdout)
    return done.stdout


class Prefix:
    """One installation for all tests of a file, in a temporary folder."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hvd-site-"))
        self.path = self.folder / "prefix" / "horovod"
        self.output = install(self.path)
        self.modulefiles = self.path / "share" / "modulefiles"

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def environment_with_torch(folder):
    """A virtual environment that has what .venv-tests has, except a horovod; None without .venv-tests."""
    torch = next(ROOT.glob(".venv-tests/lib/python3*/site-packages/torch"), None)
    if torch is None:
        return None
    done = run(ROOT / ".venv-tests" / "bin" / "python", "-m", "venv", "--without-pip", folder)
    if done.returncode != 0:
        raise AssertionError(done.stdout)
    packages = next(folder.glob("lib/python3*/site-packages"))
    for entry in torch.parent.iterdir():
        if not entry.name.startswith(("horovod", "__")) and not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)
    return folder


def version():
    for line in (ROOT / "CMakeLists.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("set(HVD_RELEASE "):
            return line.split()[1].split(")")[0]
    raise AssertionError("CMakeLists.txt tells no version")


def shell(init, script, **variables):
    """Runs a bash script after `init`, the start of the modules tool, without the caller's variables."""
    environment = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
                   **{name: str(value) for name, value in variables.items()}}
    return run("bash", "--norc", "--noprofile", "-c", f"source '{init}'\n{script}", env=environment, cwd="/")


def script_of(page):
    """The block ```sh script``` of a page of docs/, which a test runs."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    script = re.search(r"^```sh script\n(.*?)^```$", text, re.M | re.S)
    return script[1].replace("build/release", str(BUILD))


def skip_without(path, what):
    if not os.path.exists(path):
        print(f"not tested: {what} is missing ({path}); tests/run loads it")
        sys.exit(77)
