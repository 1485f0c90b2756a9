#!/usr/bin/env python3
"""tests/gpu/run goes on where its report ends, and tells of every step what became of it. The programs are made up."""
import os
import pathlib
import subprocess
import sys
import tempfile

RUN = pathlib.Path(__file__).parent / "run"


def run(folder: pathlib.Path, *options: str, driver: str = "a double",
        python_path: str = "") -> subprocess.CompletedProcess:
    environment = {**os.environ, "HOROVOD_CUDA_DRIVER": driver, "PYTHONPATH": python_path}
    environment.pop("HOROVOD_NCCL_LIBRARY", None)
    if not driver:
        del environment["HOROVOD_CUDA_DRIVER"]
    return subprocess.run([sys.executable, RUN, folder / "report", "--prebuilt", folder, *options], env=environment,
                          capture_output=True, text=True, timeout=60)


def make_program(folder: pathlib.Path, name: str, script: str) -> None:
    (folder / name).write_text("#!/bin/sh\n" + script)
    (folder / name).chmod(0o755)


def steps(folder: pathlib.Path) -> list:
    return [line.split()[:3] for line in (folder / "report").read_text().splitlines()]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_program(folder, "test_gpu", "echo it is wrong; exit 4\n")
        make_program(folder, "hvd_gpu_move", "echo 1 GB/s\n")
        only = "--only=conformance,bandwidth,memcheck,nccl_2"
        failed = run(folder, only)
        assert failed.returncode == 1 and "failed: conformance" in failed.stdout, failed
        assert steps(folder) == [["step", "conformance", "failed(4)"], ["step", "bandwidth", "ok"],
                                 ["step", "memcheck", "left_out"], ["step", "nccl_2", "left_out"]], steps(folder)
        log = (folder / "report.log").read_text()
        assert "it is wrong" in log and "1 GB/s" in log, log

        # Scripts of torch run on the double where there is a torch for it, and are left out by name elsewhere.
        assert run(folder, "--only=torch_1").stdout.startswith("step torch_1 left_out"), "torch needs its double"
        made_up = folder / "report.site" / "horovod" / "bin"
        made_up.mkdir(parents=True)
        make_program(made_up, "horovodrun", 'echo "$@"\n')
        (folder / "on_host.py").touch()
        with_torch = run(folder, "--only=torch_1,training_step", python_path=str(folder))
        told = with_torch.stdout
        assert told.startswith("step torch_1 ok") and "training_step left_out" in told, with_torch
        log = (folder / "report.log").read_text()
        assert f"{folder}/with_double.py {RUN.parent}/torch_ranks.py" in log, log
        (folder / "report").unlink()

        # What a report has is not made again unless it is asked for by name.
        (folder / "report").write_text("".join(f"step {name} ok 1.0\n" for name in names() if name != "bandwidth"))
        again = run(folder)
        assert again.returncode == 0 and again.stdout.startswith("step bandwidth ok"), again
        late = run(folder, "--only=bandwidth", "--minutes=0.1")
        assert late.returncode == 4 and "no time is left" in late.stdout, late
        unknown = run(folder, "--only=bandwith")
        assert unknown.returncode == 2 and "there is no step bandwith" in unknown.stderr, unknown


def names() -> list:
    listed = subprocess.run([sys.executable, RUN, "--list"], capture_output=True, text=True, check=True)
    return [line.split(":")[0] for line in listed.stdout.splitlines()]


main()
