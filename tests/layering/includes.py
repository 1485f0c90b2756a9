#!/usr/bin/env python3
"""Who includes whom: fails on every #include of src/, schedulers/ and jobscripts/ that the rule below does not allow.

usage: includes.py ROOT     (the folder that has src/ in it)

The rule is the table of src/README.md, and below it that of a layer's rooms. Besides: entries of a registry never
include each other, the headers of an optional C library appear in src/native/<library> alone, our own headers are
written from src/, what CMake links is what the table allows, and a plugin has all files of its folders.
"""
import pathlib
import re
import sys

MAY_USE = {
    "base": set(),
    "native": {"base"},
    "devices": {"base", "native"},
    "topology": {"base", "native"},
    "schedulers": {"base"},
    "bootstrap": {"base", "native", "schedulers"},
    "connections": {"base", "native", "bootstrap"},
    "control": {"base", "native", "connections"},
    "transport": {"base", "native", "devices", "connections"},
    "collectives": {"base", "devices", "topology", "transport"},
    "checkpoint": {"base", "native/posix", "native/hdf5", "devices"},
    "runtime": {"base", "native/posix", "native/nvtx", "devices", "topology", "bootstrap", "connections", "control",
                "transport", "collectives"},
    "jobscripts": {"base"},
    "launcher": {"base", "native/posix", "native/archive", "native/pmix", "native/nccl/measuring.hpp", "topology",
                 "schedulers", "bootstrap", "checkpoint", "jobscripts"},
    "api": {"base", "native/mpi", "native/posix", "schedulers", "bootstrap", "checkpoint", "runtime"},
    "python": {"api/horovod.h"},
}

# A layer with rooms: each room may use itself and the rooms listed for it. Files beside the rooms may use all of them.
ROOMS = {
    "runtime": {
        "operations": set(),
        "observers": {"operations"},
        "reports": set(),
        "agreement": {"operations", "observers"},
        "ending": {"operations", "agreement"},
        "lanes": {"operations", "observers", "reports", "agreement"},
    },
    "launcher": {
        "wire": set(),
        "console": {"wire"},
        "options": set(),
        "checkpoints": set(),
        "elastic": {"options"},
        "agent": {"wire", "console", "options"},
        "job": {"wire", "console", "options", "agent", "elastic"},
        "targets": {"wire", "options", "agent", "job"},
        "staging": {"options", "agent", "targets"},
        "preflight": {"options", "job", "targets", "staging"},
    },
}

# Patterns of header names, each with the only folder of src/ where such headers may be included.
HEADERS_OF = {
    "native/pmix": r"pmix(_\w+)?\.h|pmix/.*",
    "native/hwloc": r"hwloc\.h|hwloc/.*",
    "native/mpi": r"mpi(-ext|x|cxx)?\.h",
    "native/nccl": r"nccl(_net)?\.h",
    "native/cuda": r"(cuda|nvml)\w*\.h(pp)?|cooperative_groups\.h|cub/.*",
    "native/nvtx": r"(nvtx3/.*|nvToolsExt\w*\.h)",
    "native/archive": r"(archive(_entry)?|zlib)\.h",
    "native/hdf5": r"hdf5(_hl)?\.h|H5\w*\.h",
    "devices": r"hwy/.*",
    "python": r"Python\.h|structmember\.h",
    "python/horovod/tensorflow": r"(tensorflow|xla)/.*",  # compiled on the user's machine
    "(nowhere)": r"(c10|ATen|torch)/.*",
}

# Files of the core in folders that also have files of a plugin, each with the reason.
CORE_BESIDE_PLUGINS = {
    "native/mpi/process.cpp": "which MPI the process has, before a plugin is chosen",
    "native/mpi/device_pointers.cpp": "asks the process's MPI, whose names it looks up",
    "native/cuda/visible.cpp": "which GPUs the process sees, without the driver",
    "native/cuda/memory_node.cpp": "what the kernel tells of a GPU, without the driver",
    "transport/nccl/card.cpp": "what ranks tell each other, also those without the plugin",
    "bootstrap/pmi_bridge/bridge.cpp": "the bridge in this process, which the core waits for",
    "bootstrap/pmi_bridge/start.cpp": "what the core and the plugin of the bridge share",
}

SOURCES = {".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".inl", ".in"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include(?:_next)?[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


class Tree:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.files = {}  # "transport/inproc.cpp", as written in an #include → path
        beside = [(self.root / name, name + "/") for name in ("schedulers", "jobscripts")]
        for folder, prefix in [(self.root / "src", ""), *beside]:
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.suffix in SOURCES:
                    self.files[prefix + path.relative_to(folder).as_posix()] = path
        cmake = self.root / "src" / "CMakeLists.txt"
        self.cmake = cmake.read_text() if cmake.exists() else ""

    def registries(self):
        """Folder → names of its entries, which are the .cpp files directly in the folder."""
        found = {}
        for call in re.finditer(r"^hvd_registry\(([^)]*)\)", self.cmake, re.MULTILINE):
            folder = call.group(1).split()[0]
            found[folder] = {
                pathlib.PurePath(file).stem
                for file in self.files
                if re.fullmatch(rf"{folder}/[^/]+\.cpp", file)
            }
        return found


def layer_of(file):
    return file.split("/", 1)[0]


def allowed(file, target):
    own = layer_of(file)
    if layer_of(target) == own:
        return True
    return any(target == use or target.startswith(use + "/") for use in MAY_USE[own])


def room_of(file):
    """Returns the room that a file is in. None if the file is beside the rooms or its layer has no rooms."""
    parts = file.split("/")
    return parts[1] if parts[0] in ROOMS and len(parts) > 2 else None


def fault_between_rooms(file, target):
    rooms, mine, theirs = ROOMS.get(layer_of(file)), room_of(file), room_of(target)
    if rooms is None or mine not in rooms or layer_of(target) != layer_of(file) or theirs in rooms[mine] | {mine}:
        return None
    uses = ", ".join(sorted(rooms[mine])) or "none of the others"
    return f"the room {layer_of(file)}/{mine} must not include {target} (it may use {uses})"


def entry_of(file, registries):
    """Returns the registry entry that a file belongs to, as (folder, entry). For example transport/shm.cpp and
    transport/shm/slab.hpp belong to shm."""
    for folder, entries in registries.items():
        if file.startswith(folder + "/"):
            first = file[len(folder) + 1:].split("/")[0]
            entry = pathlib.PurePath(first).stem
            return (folder, entry) if entry in entries else None
    return None


def stands_beside(tree, file, target):
    """True for two exceptions: horovod.hpp and horovod.h are installed side by side. The Python extension is a
    program outside of the library, with its own folders."""
    folder = file.rsplit("/", 1)[0]
    if layer_of(file) == "python":
        return target in {"horovod.h", "horovod.hpp"} or f"{folder}/{target}" in tree.files
    return folder == "api" and target == "horovod.h"


def faults_of_file(tree, file, registries):
    text = tree.files[file].read_text(errors="replace")
    for match in INCLUDE.finditer(text):
        bracket, target = match.groups()
        where = f"{tree.files[file].relative_to(tree.root)}:{text.count(chr(10), 0, match.start()) + 1}"
        for home, pattern in HEADERS_OF.items():
            if re.fullmatch(pattern, target) and not (file.startswith(home + "/")):
                yield f"{where}: {target} may be included in {home} alone"
        if target in tree.files:
            if not allowed(file, target):
                uses = ", ".join(sorted(MAY_USE[layer_of(file)])) or "nothing"
                yield f"{where}: {layer_of(file)} must not include {target} (it may use {uses})"
            if fault := fault_between_rooms(file, target):
                yield f"{where}: {fault}"
            mine, theirs = entry_of(file, registries), entry_of(target, registries)
            if mine and theirs and mine[0] == theirs[0] and mine != theirs:
                yield f"{where}: {mine[1]} and {theirs[1]} of the registry {mine[0]} must not know each other"
        elif bracket == '"':
            if not stands_beside(tree, file, target):
                yield f'{where}: "{target}" is no file of src/ (includes of ours are written from src/)'


def faults_of_cmake(tree):
    for call in re.finditer(r"^hvd_layer\(([^)]*)\)", tree.cmake, re.MULTILINE):
        name, *rest = call.group(1).split()
        uses = rest[rest.index("USES") + 1:] if "USES" in rest else []
        for use in uses:
            if use not in {allowed_use.split("/")[0] for allowed_use in MAY_USE.get(name, set())}:
                yield f"src/CMakeLists.txt: hvd_layer({name}) must not use {use}"


def faults_of_plugins(tree):
    """What no plugin lists is compiled into the core, where nothing notices it."""
    of_plugins = {file for call in re.findall(r"^hvd_plugin_files\(([^)]*)\)", tree.cmake, re.MULTILINE)
                  for file in call.split()[1:]}
    folders = {file.rsplit("/", 1)[0] for file in of_plugins}
    for file in tree.files:
        if file.endswith(".cpp") and file.rsplit("/", 1)[0] in folders and file not in of_plugins:
            if file not in CORE_BESIDE_PLUGINS:
                yield (f"src/{file}: no plugin has this file, and others of its folder are a plugin's: add it to "
                       "hvd_plugin_files in src/CMakeLists.txt, or to CORE_BESIDE_PLUGINS here with the reason")


def faults_of(root):
    tree = Tree(root)
    registries = tree.registries()
    faults = [*faults_of_cmake(tree), *faults_of_plugins(tree)]
    libraries = {"/".join(file.split("/")[:2]) for file in tree.files if file.startswith("native/")}
    for folder in sorted(libraries - HEADERS_OF.keys() - {"native/posix"}):
        faults.append(f"src/{folder}: its library's headers need a row in HEADERS_OF of tests/layering/includes.py")
    for file in tree.files:
        if layer_of(file) in MAY_USE:
            faults.extend(faults_of_file(tree, file, registries))
            if (room := room_of(file)) and room not in ROOMS[layer_of(file)]:
                faults.append(f"src/{file}: {room} is no room of {layer_of(file)}; a new one needs a row in "
                              "tests/layering/includes.py")
        elif "/" in file and layer_of(file) != "cmake":
            faults.append(f"src/{file}: {layer_of(file)} is no layer; a new one needs a row in "
                          f"tests/layering/includes.py")
    return faults


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (pathlib.Path(sys.argv[1]) / "src").is_dir():
        sys.exit(__doc__)
    found = faults_of(sys.argv[1])
    print("\n".join(found) if found else "every include follows the rule")
    sys.exit(1 if found else 0)
