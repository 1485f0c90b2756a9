"""Results of the C functions of the extension mpi_lib_v2, such as horovod_rank(): a number, or a code for an error.
Pointers are passed as numbers."""
import ctypes
import os
import sys

from horovod import _core
from horovod.common import process_sets
from horovod.common.basics import HorovodBasics

_NOT_INITIALIZED = HorovodBasics.HOROVOD_PROCESS_SET_ERROR_INIT
_basics = HorovodBasics()
_made = {}  # id -> ProcessSet; only sets that were added here


def _ints(address, count):
    return list((ctypes.c_int * count).from_address(address)) if address and count > 0 else []


def _write_ints(address, numbers):
    (ctypes.c_int * len(numbers)).from_address(address)[:] = numbers


# ---- the job ----------------------------------------------------------------------------------------------------


def _init(comm, sets):
    try:
        _basics.init(comm, sets)
        return 1
    except (KeyError, NotImplementedError, ValueError) as error:
        print(f"horovod_init: {error}", file=sys.stderr)
        return 0


def _listed(set_ranks, set_sizes, set_count):
    ranks = iter(_ints(set_ranks, sum(_ints(set_sizes, set_count))))
    return [process_sets.ProcessSet([next(ranks) for _ in range(size)]) for size in _ints(set_sizes, set_count)]


def init(ranks, count, set_ranks, set_sizes, set_count):
    return _init(_ints(ranks, count) or None, _listed(set_ranks, set_sizes, set_count))


def _communicator(handle):
    from mpi4py import MPI
    if MPI._sizeof(MPI.Comm) == ctypes.sizeof(ctypes.c_int):
        handle = ctypes.c_int(handle & 0xFFFFFFFF).value
    return MPI.Intracomm.fromhandle(handle)


def init_multi_comm(comms, count, set_ranks, set_sizes, set_count):
    """The first communicator contains the ranks of the job. The others are process sets of this rank."""
    from mpi4py import MPI
    step = MPI._sizeof(MPI.Comm)
    kind = ctypes.c_int if step == ctypes.sizeof(ctypes.c_int) else ctypes.c_size_t
    world, *others = [_communicator(kind.from_address(comms + i * step).value) for i in range(count)]
    return _init(world, [process_sets.ProcessSet(comm) for comm in others] +
                 _listed(set_ranks, set_sizes, set_count))


def shutdown():
    _basics.shutdown()
    _made.clear()
    return 0


def is_initialized():
    return int(_core.is_initialized())


def start_timeline(path, mark_cycles):
    """Returns 1 if the timeline was started, -1 if Horovod is not initialised, -2 if the timeline was not enabled at
    init()."""
    if not _core.is_initialized():
        return -1
    try:
        _basics.start_timeline(os.fsdecode(path), bool(mark_cycles))
        return 1
    except ValueError:
        return -2


def stop_timeline():
    if not _core.is_initialized():
        return -1
    _basics.stop_timeline()
    return 1


# ---- questions --------------------------------------------------------------------------------------------------


def _asks(name):
    method = getattr(_basics, name)

    def ask():
        try:
            return int(method())
        except ValueError:  # Horovod is not initialised
            return -1

    return ask


for _name in ("rank size local_rank local_size cross_rank cross_size is_homogeneous mpi_threads_supported mpi_enabled "
              "gloo_enabled mpi_built gloo_built nccl_built ddl_built ccl_built cuda_built rocm_built").split():
    globals()[_name] = _asks(_name)


# ---- process sets -----------------------------------------------------------------------------------------------


def _problem_with(process_set_id):
    """Returns the code that says why nothing is known about the set; None if the set exists."""
    if not _core.is_initialized():
        return _NOT_INITIALIZED
    if process_set_id not in _core.process_set_ids():
        return _basics.HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET
    return None


def comm_process_set(comm):
    if not _core.is_initialized():
        return _NOT_INITIALIZED
    try:
        return _basics._comm_process_set_id(_communicator(comm))
    except ValueError:
        return _basics.HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET


def _why_not_changed():
    if not _core.is_initialized():
        return _NOT_INITIALIZED
    try:
        _basics._check_dynamic()
    except ValueError:
        return _basics.HOROVOD_PROCESS_SET_ERROR_DYNAMIC
    return _basics.HOROVOD_PROCESS_SET_ERROR_SHUTDOWN


def add_process_set(ranks, count):
    """Collective over all ranks. Returns the id of the set, or a code."""
    ranks = sorted(_ints(ranks, count))
    try:
        if ranks in _basics._get_process_set_ids_and_ranks().values():
            return _basics.HOROVOD_PROCESS_SET_ERROR_EXISTING_SET
        added = process_sets.add_process_set(ranks)
    except ValueError as error:
        print(f"horovod_add_process_set: {error}", file=sys.stderr)
        return _why_not_changed()
    _made[added.process_set_id] = added
    return added.process_set_id


def remove_process_set(process_set_id):
    """Collective over all ranks. Returns the id that the set had, or a code."""
    problem = _problem_with(process_set_id)
    if problem is not None:
        return problem
    try:
        removed = _made.pop(process_set_id, None) or process_sets._temp_process_set_object(process_set_id)
        return process_set_id if process_sets.remove_process_set(removed) else 0
    except ValueError as error:
        print(f"horovod_remove_process_set: {error}", file=sys.stderr)
        return _why_not_changed()


def process_set_rank(process_set_id):
    if process_set_id == 0:
        return rank()  # noqa: F821  made above
    problem = _problem_with(process_set_id)
    if problem is not None:
        return problem
    place = _core.process_set(process_set_id)[0]
    return place if place >= 0 else _basics.HOROVOD_PROCESS_SET_ERROR_FOREIGN_SET


def process_set_size(process_set_id):
    if process_set_id == 0:
        return size()  # noqa: F821  made above
    problem = _problem_with(process_set_id)
    return problem if problem is not None else len(_core.process_set(process_set_id)[1])


def process_set_included(process_set_id):
    if process_set_id == 0:
        return 1
    problem = _problem_with(process_set_id)
    return problem if problem is not None else int(_core.process_set(process_set_id)[0] >= 0)


def number_of_process_sets():
    return len(_core.process_set_ids()) if _core.is_initialized() else _NOT_INITIALIZED


def process_set_ids(address):
    if _core.is_initialized():
        _write_ints(address, _core.process_set_ids())
    return 0


def process_set_ranks(process_set_id, address):
    problem = _problem_with(process_set_id)
    if problem is not None:
        return problem
    _write_ints(address, _core.process_set(process_set_id)[1])
    return 0
