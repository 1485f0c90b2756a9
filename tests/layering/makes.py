#!/usr/bin/env python3
"""Names of makes of GPU and of their libraries: fails on a line of src/ that names CUDA or NCCL outside of their
folders. Another make needs such a line again, and nobody would miss it. What is to be known of a make is in
base/gpu_makes.

usage: makes.py ROOT

Comments may name them, and so may the files below, each for its reason.
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from names import files_below  # noqa: E402

# The kinds of memory, and the libraries of transports that serve devices alone.
TABLES = (("base/tensor_view.hpp", r"enum class DeviceKind[^{]*\{([^}]*)\}"),
          ("base/transports.hpp", r"\bfalse, false, Library::(\w+)"))
NO_MAKES = {"host", "none"}
OTHER_NAMES = [r"\bhip\b"]  # ROCm's interface
OWN = ("devices/kernels/", "cmake/cuda_kernels.cmake")
# Public names of Horovod's. torch has the devices of NVIDIA and AMD as torch.cuda; torch/_devices.py knows that.
EVERYWHERE = re.compile(r"\b(horovod_)?(cuda|nccl|rocm)_built\b")
ALLOWED = {
    "CMakeLists.txt": "the files of the plugins, and what they link",
    "api/callbacks.hpp": "hvd_nccl_built",
    "api/horovod.h": "HVD_CUDA, HVD_ROCM, hvd_nccl_built",
    "api/operations.cpp": "HVD_ROCM, the last of the kinds of devices",
    "api/queries.cpp": "hvd_nccl_built",
    "base/settings/config.cpp": "the table of knobs",
    "base/settings/config.hpp": "HOROVOD_NCCL",
    "base/gpu_makes.cpp": "the table of makes",
    "base/settings/settings_file.cpp": "the table of Horovod's keys",
    "base/tensor_view.cpp": "the kinds of devices",
    "base/tensor_view.hpp": "the kinds of devices",
    "base/transports.hpp": "the table of transports",
    "cmake/build_variables.cmake": "Horovod's variables of the build",
    "launcher/agent/container_runtime.cpp": "the flags of container runtimes for each make",
    "launcher/options/check_build.cpp": "what --check-build shows, by Horovod's names",
    "launcher/options/flag_table.cpp": "the table of flags",
    "launcher/options/gpu_libraries.cpp": "asks driver and NCCL for their versions",
    "launcher/options/gpu_libraries.hpp": "find_nccl",
    "launcher/preflight/checks/gpu_links.cpp": "judges what NCCL was measured to do",
    "launcher/preflight/checks/libraries.cpp": "is NCCL the same on all nodes?",
    "launcher/preflight/gpu_measurement.cpp": "measures NCCL, by its plugin",
    "native/mpi/device_pointers.cpp": "a function that MPI names after a make",
    "native/hwloc/topology.cpp": "the names of hwloc's components",
    "python/core/module.cpp": "hvd_nccl_built",
    "python/horovod/common/basics.py": "cuda_built, nccl_built, rocm_built",
    "python/horovod/common/nccl_version.py": "what nccl_built answers",
    "python/horovod/runner/flags.py": "the table of the launcher's arguments",
    "python/horovod/tensorflow/_streams.py": "TensorFlow's names of kinds of devices",
    "python/horovod/tensorflow/gradient_reduction.py": "a text that users know from Horovod",
    "python/horovod/torch/_devices.py": "torch's names of kinds of devices",
    "python/horovod/torch/grad_scaler.py": "the scaler's name in old releases of torch",
    "python/horovod/torch/gradients_in_flight.py": "the properties of torch's tensors",
    "python/horovod/torch/optimizer.py": "a text that users know from Horovod",
    "runtime/reports/network_report.cpp": "HOROVOD_REQUIRE_FABRIC and NCCL's own settings",
    "topology/visible_gpus.cpp": "a row for each make",
}
COMMENTS = {
    **dict.fromkeys((".cpp", ".hpp", ".h", ".c", ".inl", ".cu", ".map"), r"/\*.*?\*/|(?<![:\"\w])//[^\n]*"),
    ".py": r'"""(?!""").*?"""|(?<![\'"])#[^\n]*',
    **dict.fromkeys((".txt", ".cmake"), r"(?<![\"\w])#[^\n]*"),
}


def makes_of(source):
    """Gives the names of makes and of their libraries that the tables of src/ have."""
    for file, pattern in TABLES:
        path = source / file
        for row in re.findall(pattern, path.read_text()) if path.is_file() else ():
            yield from set(re.findall(r"\w+", row)) - NO_MAKES


def lines_with_names(path, names):
    """Gives the number and the text of each line of code that has such a name."""
    text = re.sub(COMMENTS[path.suffix], lambda match: "\n" * match.group().count("\n"),
                  path.read_text(errors="replace"), flags=re.DOTALL)
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(names, EVERYWHERE.sub("", line), re.IGNORECASE):
            yield number, line.strip()


def faults_of(root):
    source = pathlib.Path(root) / "src"
    makes = sorted(makes_of(source))
    if not makes:
        return [f"src/{TABLES[0][0]}: no kind of memory was found"]
    names = "|".join([*makes, *OTHER_NAMES])
    own = re.compile(rf"(devices|native|transport)/({names})", re.IGNORECASE)
    faults = []
    for path in files_below(source):
        file = path.relative_to(source).as_posix()
        if not path.is_file() or path.suffix not in COMMENTS or file in ALLOWED:
            continue
        if file.startswith(OWN) or own.match(file):
            continue
        for number, line in lines_with_names(path, names):
            faults.append(f"src/{file}:{number}: names a make of GPU outside of its folders: {line[:60]}; take what is "
                          "to be known from base/gpu_makes, or from the device; in Python from torch/_devices.py")
    return faults


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (pathlib.Path(sys.argv[1]) / "src").is_dir():
        sys.exit(__doc__)
    found = faults_of(sys.argv[1])
    print("\n".join(found) if found else "no make of GPU is named outside of its folders")
    sys.exit(1 if found else 0)
