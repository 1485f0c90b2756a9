"""Small functions that scripts, tests and the launcher of Horovod import from here."""
import functools
import importlib
import os
import re
import warnings
from contextlib import contextmanager

EXTENSIONS = ("tensorflow", "torch", "mxnet")


def is_iterable(x):
    try:
        iter(x)
    except TypeError:
        return False
    return True


def get_ext_suffix():
    """The suffix of extension modules of this Python, such as .cpython-311-x86_64-linux-gnu.so."""
    import sysconfig  # importing it costs more than the rest of this module
    return sysconfig.get_config_var("EXT_SUFFIX") or sysconfig.get_config_var("SO") or ".so"


def get_extension_full_path(pkg_path, *args):
    """Returns the path of an extension. args: folders below the folder of the file pkg_path, then the extension's
    name without suffix."""
    base = os.path.join(os.path.dirname(os.path.abspath(pkg_path)), *args)
    for_all_pythons = base + ".abi3.so"  # our extensions work with all versions of Python 3
    return for_all_pythons if os.path.exists(for_all_pythons) else base + get_ext_suffix()


def check_extension(ext_name, ext_env_var, pkg_path, *args):
    path = get_extension_full_path(pkg_path, *args)
    if not os.path.exists(path):
        raise ImportError(f"Extension {ext_name} has not been built: {path} not found. "
                          f"Install Horovod again with {ext_env_var}=1 to see why.")


def check_installed_version(name, version, exception=None):
    """Raises HorovodVersionMismatchError if the installed metadata says that Horovod was built for another version.

    One build of Horovod works with every version of a framework. Therefore there is nothing to compare, and only
    `exception` is raised again: the reason why an extension could not be imported.
    """
    if exception is not None:
        raise exception


def _cache(f):
    """Stores the results of f and returns the stored result for the same arguments."""
    results = {}

    @functools.wraps(f)
    def remembered(*args, **kwargs):
        key = (args, frozenset(kwargs.items()))
        if key not in results:
            results[key] = f(*args, **kwargs)
        return results[key]

    return remembered


def _answer_in_fork(question, verbose):
    """Returns the result of question() in a forked child; None if it fails. In a child, because importing a
    framework would leave traces in this process."""
    import multiprocessing
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child():
        if not verbose:
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
        try:
            answer = question()
        except Exception:  # every reason means "no"
            if verbose:
                import traceback
                traceback.print_exc()
            answer = None
        sender.send(answer)

    process = context.Process(target=child)
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return None
    finally:
        process.join()


def extension_available(ext_base_name, verbose=False):
    """True if horovod.<ext_base_name> can be imported."""
    return bool(_answer_in_fork(lambda: importlib.import_module(f"horovod.{ext_base_name}") is not None, verbose))


@_cache
def gpu_available(ext_base_name, verbose=False):
    return bool(_answer_in_fork(lambda: importlib.import_module(f"horovod.{ext_base_name}")._check_has_gpu(), verbose))


def _built(question, verbose):
    """Asks the first extension that can be imported. None if none can."""
    for extension in EXTENSIONS:
        answer = _answer_in_fork(lambda: getattr(importlib.import_module(f"horovod.{extension}"), question)(), verbose)
        if answer is not None:
            return answer
    return None


@_cache
def mpi_built(verbose=False):
    return _built("mpi_built", verbose)


@_cache
def gloo_built(verbose=False):
    return _built("gloo_built", verbose)


@_cache
def nccl_built(verbose=False):
    return _built("nccl_built", verbose)


@_cache
def ddl_built(verbose=False):
    return _built("ddl_built", verbose)


@_cache
def ccl_built(verbose=False):
    return _built("ccl_built", verbose)


@contextmanager
def env(**kwargs):
    """Sets environment variables (None: leaves one unchanged). Restores their old values afterwards."""
    changes = {name: value for name, value in kwargs.items() if value is not None}
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def get_average_backwards_compatibility_fun(reduce_ops):
    """Returns a function (op, average) -> op. `average` is the old way to ask for Average or Sum."""

    def resolve(op, average):
        if average is None:
            return reduce_ops.Average if op is None else op
        if op is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        warnings.warn("Parameter `average` has been replaced with `op` and will be removed",
                      DeprecationWarning, stacklevel=3)
        return reduce_ops.Average if average else reduce_ops.Sum

    return resolve


def num_rank_is_power_2(num_rank):
    return num_rank != 0 and num_rank & (num_rank - 1) == 0


def split_list(items, num_parts):
    """Returns num_parts consecutive chunks of nearly equal length, longer ones first. Some are empty if there are
    too few items."""
    length, longer = divmod(len(items), num_parts)
    starts = [part * length + min(part, longer) for part in range(num_parts + 1)]
    return [items[start:end] for start, end in zip(starts, starts[1:])]


def is_version_greater_equal_than(ver, target):
    """True if a version such as 2.13.0+cpu is at least the target a.b.c."""
    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError("This function only accepts string arguments. Received:\n"
                         f"ver (type={type(ver)}) and target (type={type(target)})")
    if not re.fullmatch(r"\d+\.\d+\.\d+", target):
        raise ValueError(f"The target version must be of the form a.b.c, not {target}")

    def numbers(version):
        found = [int(number) for number in re.match(r"\d*(?:\.\d+)*", version).group().split(".") if number]
        return (found + [0, 0, 0])[:3]

    return numbers(ver) >= numbers(target)
