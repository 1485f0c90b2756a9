#!/usr/bin/env python3
"""The probe compiles where nvcc is, and tells clearly that there is no GPU. Ends with 77 where it cannot be tested."""
import ctypes
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROBE = pathlib.Path(__file__).parent / "probe"


def skip(why: str) -> None:
    print(f"skipped: {why}")
    sys.exit(77)


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def main() -> None:
    cuda = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    if not shutil.which("nvcc") and not pathlib.Path(cuda, "bin/nvcc").exists():
        skip("there is no nvcc, neither in PATH nor in CUDA_HOME")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([PROBE / "build", folder], check=True)
        ptx = (folder / "kernels.ptx").read_text()
        for kernel in ("nothing", "move_small", "move_large", "hang", "tell"):
            assert f".entry {kernel}(" in ptx, f"kernels.ptx has no {kernel}"
        assert (folder / "kernels_70.ptx").exists() == (shutil.which("clang++-16") is not None)
        refused = subprocess.run([folder / "probe"], capture_output=True, text=True)
        assert refused.returncode == 2 and "usage" in refused.stderr, refused
        if has_driver():
            print("there is a driver: the probe is not run by this test")
            return
        report = folder / "report"
        run = subprocess.run([folder / "probe", report], capture_output=True, text=True)
        assert run.returncode == 3, run
        assert run.stdout.startswith("no GPU: libcuda.so.1 cannot be loaded"), run
        assert not report.exists(), report.read_text()
        asked = subprocess.run([folder / "probe", "--question", "events"], capture_output=True, text=True)
        assert asked.returncode == 3 and asked.stderr.startswith("no GPU: "), asked


main()
