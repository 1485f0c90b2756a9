#!/usr/bin/env python3
"""What can be told of the compiled kernels of devices/cuda without a GPU.

usage: cuda_image.py fits REPORT                  what `ptxas -v` told: nothing is spilled, few registers are used
       cuda_image.py assembles PTXAS CHIP PTX     this PTX is assembled for the chip, and fits
       cuda_image.py computes PTX                 its memory accesses are vectors, its arithmetic is not fused
       cuda_image.py is_alone LIBRARY             the library that has the image needs nothing of CUDA or NCCL
"""
import pathlib
import re
import subprocess
import sys
import tempfile

KERNELS = pathlib.Path(__file__).parents[2] / "src/devices/kernels/kernel_names.hpp"
MOST_REGISTERS = 64  # four blocks of 256 threads fit into a multiprocessor (lists.hpp)
NO_LOADS, NO_STORES = {"poison", "adasum_sums", "signal"}, {"adasum_sums", "signal"}  # of vectors


def kernels():
    names = re.findall(r"^  KERNEL(?:_WITH_BARRIER)?\((\w+), \w+List,", KERNELS.read_text(), re.MULTILINE)
    assert len(names) > 30, names
    return names


def faults_of_report(report):
    resources = {}
    for part in report.split("Compiling entry function '")[1:]:
        resources[part.split("'")[0]] = part
    if missing := {f"hvd_{name}" for name in kernels()} - set(resources):
        yield f"no such kernel: {', '.join(sorted(missing))}"
    for name, text in resources.items():
        if "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" not in text:
            yield f"{name} uses local memory: {text}"
        registers = int(re.search(r"Used (\d+) registers", text)[1])
        if registers > MOST_REGISTERS:
            yield f"{name} uses {registers} registers, expected at most {MOST_REGISTERS}"


def fits(report):
    return faults_of_report(pathlib.Path(report).read_text())


def assembles(ptxas, chip, ptx):
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run([ptxas, "-O3", f"-arch=sm_{chip}", "-v", "-o", f"{folder}/kernels.cubin", ptx],
                             capture_output=True, text=True)
    return [run.stdout + run.stderr] if run.returncode != 0 else faults_of_report(run.stderr)


def computes(ptx):
    text = pathlib.Path(ptx).read_text()
    target = re.search(r"^\.target sm_(\d+)$", text, re.MULTILINE)
    if target is None or f"_{target[1]}." not in ptx:
        yield f"the target is {target and target[0]}"
    for found in set(re.findall(r"\bfma\.\S+|\b(?:mul|add|sub)\.(?:ftz\.)?f\d\d\b|\.ftz\b", text)):
        yield f"{found} may give other bits than the host"
    for found in set(re.findall(r"^\s*\.local\b.*|^\s*call\b.*|\b[ls]d\.local\S*", text, re.MULTILINE)):
        yield f"not all is in registers: {found}"
    bodies = dict(re.findall(r"\.entry hvd_(\w+)\((.*?)^}", text, re.MULTILINE | re.DOTALL))
    for name in kernels():
        body = bodies.get(name, "")
        if "ld.global.L1::no_allocate.v4.u32" not in body and name not in NO_LOADS:
            yield f"{name} loads no vectors"
        if "st.global.cs.v4.u32" not in body and name not in NO_STORES and "adasum_sums_" not in name:
            yield f"{name} stores no vectors"
        # Each warp that looks costs 2 us, one after another: only a kernel of one warp may.
        if ("ld.volatile.global" in body) != (name == "poison"):
            yield f"{name} {'looks' if name != 'poison' else 'does not look'} at a word of the host"
        for generic in set(re.findall(r"^\s*(?:ld|st)\.(?!param|global|volatile\.global)\S+", body, re.MULTILINE)):
            yield f"{name} accesses memory that is not named: {generic.strip()}"


def is_alone(library):
    listing = subprocess.run(["nm", library], check=True, capture_output=True, text=True).stdout
    symbols = [line.split()[-1] for line in listing.splitlines() if line and not line.endswith(":")]
    for label in ("hvd_cuda_machine_code", "hvd_cuda_ptx"):
        if label not in symbols:
            yield f"no {label} in {library}"
    for symbol in symbols:
        if re.match(r"_*(cu[A-Z]|cuda|nccl|__cuda|fatbin)", symbol):
            yield f"{library} names {symbol}"


CHECKS = {check.__name__: check for check in (fits, assembles, computes, is_alone)}
if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in CHECKS:
        sys.exit(__doc__)
    faults = list(CHECKS[sys.argv[1]](*sys.argv[2:]))
    print("\n".join(faults) if faults else "all is as it should be")
    sys.exit(1 if faults else 0)
