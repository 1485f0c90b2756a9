"""The cost of importing horovod, measured by the modules that are imported with it, not by time."""
import subprocess
import sys

HEAVY = ("torch", "numpy", "cloudpickle", "multiprocessing", "ctypes", "subprocess", "asyncio", "importlib.metadata")


def modules_after(statement):
    code = f"import sys; before = set(sys.modules)\n{statement}\nprint('\\n'.join(sorted(set(sys.modules) - before)))"
    return subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout.split()


def test_import_horovod_brings_no_framework_and_little_else():
    modules = modules_after("import horovod")
    assert not [module for module in modules if module.split(".")[0] in HEAVY]
    assert len(modules) < 10, modules


def test_import_horovod_torch_brings_nothing_but_torch_and_itself():
    modules = modules_after("import torch\nbefore = set(sys.modules)\nimport horovod.torch")
    foreign = [module for module in modules if not module.startswith("horovod")]
    assert not [module for module in foreign if module.split(".")[0] in HEAVY and module != "torch"], foreign
    assert len(foreign) < 10, foreign


def test_the_extension_is_in_the_limited_api():
    import horovod._core
    assert horovod._core.__file__.endswith("_core.abi3.so")


def test_version():
    import horovod
    import horovod._core
    assert horovod.__version__ == horovod._core.version()
