#!/usr/bin/env python3
"""Closed sets: fails on a switch over an enum of ours that has a default. The default would take a value that is added
later; without it the compiler names the switch. Enums of C and numbers may have a default. Fails, too, where Python
or horovod.hpp lacks a verb, a reduce operation or a type of horovod.h, or the operations of horovod.tensorflow are
others in C++ than in Python, or one that moves tensors has no gradient there or in horovod.torch: TensorFlow would run
it alone, or a model would train without its part. Fails, too, where a list of the frameworks lacks a binding, or a
binding a function of HorovodBasics.

usage: closed_sets.py ROOT
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from names import files_below  # noqa: E402

FOLDERS = ("src", "schedulers", "jobscripts", "tests", "benchmarks")
KINDS = {".cpp", ".hpp", ".inl"}
VALUE = re.compile(r"\bcase (?:\w+::)*([A-Z]\w*)::\w+:")  # a value of an enum of ours, whose names are like Verb::join


def bodies_of_switches(text):
    """Gives the place and the text of every switch, without the switches within it."""
    for start in re.finditer(r"\bswitch \(", text):
        begin = text.find("{", start.end())
        depth, own = 0, ""
        nested = 0  # the depth at which a switch within this one began; 0 outside of such
        for at in range(begin, len(text)):
            if text[at] == "{":
                depth += 1
            elif text[at] == "}":
                depth -= 1
                if depth == nested:
                    nested = 0
                if depth == 0:
                    break
            elif not nested and at > begin and text.startswith("switch (", at):
                nested = depth
            if not nested:
                own += text[at]
        yield start.start(), own


PYTHON = "src/python/horovod"
# (enum of horovod.h, file that names its values, how (#: a value's number), values that it does without and why not)
NAMED = (
    *(("hvd_" + enum, "src/python/core/module.cpp", lambda value: rf'\{{"\w+", {value}\}}', ())  # a row of `constants`
      for enum in ("verb", "reduce_op", "dtype")),
    *(("hvd_reduce_op", f"{PYTHON}/common/{file}", lambda value: rf"\b{value[4:].capitalize()}\b", ())
      for file in ("basics.py", "operations.py")),
    *(("hvd_dtype", f"{PYTHON}/{file}", lambda value: rf"\b_core\.{value[4:]}\b", ())
      for file in ("torch/_tensors.py", "_keras/arrays.py")),
    ("hvd_dtype", "src/python/tensorflow/run.cpp", lambda value: rf"return {value};",
     ("HVD_UINT32", "HVD_UINT64")),  # as with other Horovods
    ("hvd_dtype", "src/api/horovod.hpp", lambda value: rf"= {value};",
     ("HVD_FLOAT16", "HVD_BFLOAT16")),  # C++20 has no such types
    ("hvd_device", f"{PYTHON}/tensorflow/_streams.py",
     lambda value: (rf'"{value[4:].lower()}"' if value != "HVD_HOST" else "None") + ": #[,}]", ()),
    ("hvd_entry_type", f"{PYTHON}/checkpoint/tree.py", lambda value: rf"\b{value[10:]}\b", ()),
    ("hvd_entry_type", "src/api/horovod.hpp", lambda value: rf"\b{value}\b", ("HVD_ENTRY_NONE",)),  # Python's alone
    # the C++ header has no results of unknown size but gather()'s, and no training loop that ends early
    ("hvd_verb", "src/api/horovod.hpp", lambda value: rf"\b{value}\b",
     ("HVD_REDUCESCATTER", "HVD_ALLTOALL", "HVD_JOIN")),
)
# The same for each binding of a framework.
NAMED_IN_BINDINGS = (
    ("hvd_verb", "__init__.py", lambda value: rf"\b{value[4:].lower()}\b"),
    *(("hvd_reduce_op", file, lambda value: rf"\b{value[4:].capitalize()}\b")
      for file in ("__init__.py", "mpi_ops.py")),
)
# A function of HorovodBasics that a file does without, as Horovod's does.
WITHOUT_BASICS = {"torch/__init__.py": ("is_homogeneous",)}
# (file that knows the bindings, how it names one)
KNOW_BINDINGS = (
    (f"{PYTHON}/common/util.py", r'EXTENSIONS = \([^)]*"{}"'),
    ("src/launcher/options/check_build.cpp", r"for m in \([^)]*'{}'"),
    ("src/launcher/options/check_build.cpp", r'item\(python\.has\("{}"\)'),
    ("pyproject.toml", r"(?m)^{} = \["),
)


def bindings_of(root):
    return [path.parent.name for path in sorted((root / PYTHON).glob("*/mpi_ops.py"))]


def enums_of(root):
    """Gives each enum of horovod.h with the text of its values."""
    header = root / "src/api/horovod.h"
    text = header.read_text() if header.is_file() else ""
    return dict(re.findall(r"typedef enum (\w+) \{(.*?)\}", text, re.DOTALL))


def faults_of_constants(root):
    enums = enums_of(root)
    in_bindings = [(enum, f"{PYTHON}/{binding}/{file}", pattern, ())
                   for binding in bindings_of(root) for enum, file, pattern in NAMED_IN_BINDINGS]
    for enum, file, pattern, without in (*NAMED, *in_bindings):
        if enum not in enums or not (root / file).is_file():
            continue
        text = (root / file).read_text()
        values = re.sub(r"/\*.*?\*/", "", enums[enum], flags=re.DOTALL)
        for value, number in re.findall(r"\b(HVD_\w+)(?: = (\d+))?", values):
            expected = pattern(value).replace("#", number)
            if value not in without and not re.search(expected, text):
                yield f"{file}: {value} of {enum} in src/api/horovod.h has no name here; expected {expected}"


def files_with_basics(root):
    """Gives the files from which users have the functions of HorovodBasics."""
    files = ("_job.py", "mpi_ops.py", "__init__.py")
    return [*(f"{binding}/{file}" for binding in bindings_of(root) for file in files),
            "keras/__init__.py", "tensorflow/keras/__init__.py"]


def faults_of_basics(root):
    basics = root / PYTHON / "common/basics.py"
    text = basics.read_text().partition("class HorovodBasics:")[2] if basics.is_file() else ""
    functions = re.findall(r"(?<!@property)\n    def ([a-z]\w*)\(", text.partition("\n\n\n")[0])
    for file in files_with_basics(root):
        names = set(re.findall(r"\w+", (root / PYTHON / file).read_text())) if (root / PYTHON / file).is_file() else ()
        for function in functions if names else ():
            if function not in names and function not in WITHOUT_BASICS.get(file, ()):
                yield f"{PYTHON}/{file}: HorovodBasics.{function} of common/basics.py has no name here"


def faults_of_bindings(root):
    for file, pattern in KNOW_BINDINGS:
        for binding in bindings_of(root) if (root / file).is_file() else ():
            if not re.search(pattern.format(binding), (root / file).read_text()):
                yield f"{file}: does not know the binding {PYTHON}/{binding}; expected {pattern.format(binding)}"


def faults_of_torch(root):
    names = set(re.findall(r"\bHVD_(\w+)", enums_of(root).get("hvd_verb", ""))) - {"BARRIER", "JOIN"}
    for path in sorted((root / PYTHON / "torch").glob("*.py")) if names else ():
        text = path.read_text()
        for name in re.findall(rf"\b_core\.({'|'.join(sorted(names))})\b", text)[:1]:
            if "(torch.autograd.Function)" not in text or not re.search(r"\bwants_gradient\(", text):
                yield f"{path.relative_to(root)}: {name} has no gradient; torch would train without its part"


def faults_of_tensorflow(root):
    kernels, package = root / "src/python/tensorflow", root / "src/python/horovod/tensorflow"
    if not kernels.is_dir():
        return
    lists = (package / "_library.py").read_text()
    gradients = set(re.findall(r'@tf\.RegisterGradient\("(\w+)"\)', (package / "mpi_ops.py").read_text()))
    for source, name in (("collectives.cpp", "COLLECTIVES"), ("facts.cpp", "FACTS")):
        made = set(re.findall(r'\{"(Horovod\w+)"', (kernels / source).read_text()))
        listed = re.search(rf"^{name} = \(([^)]*)\)", lists, re.MULTILINE)
        known = set(re.findall(r'"(\w+)"', listed.group(1))) if listed else set()
        for operation in sorted(made ^ known):
            yield f"src/python/horovod/tensorflow/_library.py: {operation} is not both in {source} and in {name}"
        for operation in sorted(made - gradients) if name == "COLLECTIVES" else ():
            yield f"src/python/horovod/tensorflow/mpi_ops.py: {operation} has no gradient"


def faults_of(root):
    root = pathlib.Path(root)
    faults = [*faults_of_constants(root), *faults_of_basics(root), *faults_of_bindings(root),
              *faults_of_torch(root), *faults_of_tensorflow(root)]
    for path in (path for folder in FOLDERS if (root / folder).is_dir() for path in files_below(root / folder)):
        if not path.is_file() or path.suffix not in KINDS:
            continue
        text = path.read_text(errors="replace")
        for at, body in bodies_of_switches(text):
            found = VALUE.search(body)
            if found and re.search(r"\bdefault:", body):
                line = text.count("\n", 0, at) + 1
                faults.append(f"{path.relative_to(root)}:{line}: the switch over {found.group(1)} has a default, which "
                              "would take a new value; name every value")
    return faults


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (pathlib.Path(sys.argv[1]) / "src").is_dir():
        sys.exit(__doc__)
    found = faults_of(sys.argv[1])
    print("\n".join(found) if found else "no switch over a closed set has a default, no list of one is incomplete")
    sys.exit(1 if found else 0)
