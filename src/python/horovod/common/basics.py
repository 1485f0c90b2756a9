"""HorovodBasics: the job and this process's place in it. All frameworks of a process share one runtime."""
import ctypes
import functools
import os

from horovod import _core, _ops
from horovod.common import process_sets as _process_sets
from horovod.common.nccl_version import nccl_version
from horovod.common.util import get_extension_full_path


class HorovodBasics:
    """The functions init, rank, size, … of a framework's module are bound methods of one HorovodBasics."""

    Average = _core.AVERAGE
    Sum = _core.SUM
    Adasum = _core.ADASUM
    Min = _core.MIN
    Max = _core.MAX
    Product = _core.PRODUCT

    members = None  # the processes of this job, if init() was given some
    listed_sets = ()  # the process sets that the last init() got

    def __init__(self, pkg_path=None, *args):
        """The arguments tell where the extension with the C functions is; see MPI_LIB_CTYPES."""
        self._extension = (pkg_path, *args)
        if _process_sets._basics is None:
            _process_sets._setup(self)

    @functools.cached_property
    def MPI_LIB_CTYPES(self):
        """The C functions horovod_rank() and so on, opened with ctypes."""
        return ctypes.CDLL(get_extension_full_path(*self._extension), mode=ctypes.RTLD_GLOBAL)

    def init(self, comm=None, process_sets=None):
        """Joins the job that this process was launched for. Blocks until all ranks have joined.

        Does nothing if Horovod is already initialised. Raises ValueError if joining fails.

        comm: None for all processes; an mpi4py communicator, whose processes become the ranks (it is copied and may be
        freed); or a list of ranks of MPI.COMM_WORLD, in the order of the new ranks. Only those processes call init().
        process_sets: a list of ProcessSet that exist from the start, the same on all ranks. Only sets of communicators
        may differ between ranks. Or "dynamic": then sets may be added and removed later. If Horovod is already
        initialised, the sets of the list get the ids of the existing equal sets.
        """
        sets = _requested_process_sets(process_sets)
        _check_communicator(comm)
        is_communicator = _process_sets._is_communicator(comm)
        if not is_communicator and any(each.mpi_comm is not None for each in sets):
            raise NotImplementedError("init(process_sets=...): sets of mpi4py communicators need init(comm=...) with a "
                                      "communicator of all of their processes, such as MPI.COMM_WORLD")
        if not _core.is_initialized():
            lists = _process_sets._lists_of_ranks(sets, comm) if sets else None
            if is_communicator:
                begun = _ops.init(*_handle_of(comm), None, lists)
            else:
                begun = _ops.init(0, 0, list(comm) if comm else None, lists)
            if begun:
                HorovodBasics.members = comm if is_communicator else list(comm) if comm else None
                HorovodBasics.listed_sets = sets
                _ops.are_sets_dynamic = _ops.is_on("HOROVOD_DYNAMIC_PROCESS_SETS")
                _process_sets._begin_anew(comm if is_communicator else None)
        _process_sets._init_process_sets(sets)

    def shutdown(self):
        """Ends Horovod on all ranks. init() may be called again afterwards. Does nothing if Horovod is not
        initialised."""
        _ops.shutdown()

    def is_initialized(self):
        """True between init() and shutdown(), and in children that were forked then: they know their parent's rank."""
        return _core.has_place()

    def rank(self):
        """The number of this process among all processes. ValueError before init()."""
        return _core.world()[0]

    def size(self):
        """The number of processes; ValueError before init()."""
        return _core.world()[1]

    def local_rank(self):
        """The number of this process among the processes of its node."""
        return _core.world()[2]

    def local_size(self):
        """The number of processes on this node."""
        return _core.world()[3]

    def local_device(self):
        """The number of the GPU that this process is meant to use, for torch.cuda.set_device(); None if it sees no GPU.

        It is local_rank() where all processes of a node see the same GPUs, and right also where each sees its own."""
        return _core.local_device()

    def cross_rank(self):
        """The number of this node among the nodes that have a process with this local rank."""
        return _core.world()[4]

    def cross_size(self):
        """The number of nodes that have a process with this local rank."""
        return _core.world()[5]

    def is_homogeneous(self):
        """True if every node runs the same number of processes."""
        return _core.world()[6]

    def mpi_threads_supported(self):
        """True if the MPI that connects the ranks allows calls from any thread at any time. ValueError if no MPI
        does."""
        level = _core.mpi_thread_level()  # raises ValueError before init()
        if level < 0:
            raise ValueError("Horovod MPI is not enabled: this job communicates without MPI")
        return level == 3

    def mpi_enabled(self):
        """True if an MPI connects the ranks. False before init()."""
        return _core.has_place() and _core.mpi_thread_level() >= 0

    def mpi_built(self):
        return _core.mpi_built()

    def gloo_enabled(self):
        """True if only our sockets and shared memory connect the ranks, which other Horovods do by Gloo. False
        before init()."""
        return _core.has_place() and _core.mpi_thread_level() < 0

    def gloo_built(self):
        """Always true: what Gloo does elsewhere, meeting at a store and communicating without an MPI, is always
        built in."""
        return True

    def nccl_built(self):
        """The version of the NCCL that operations on GPUs would use, 22809 for 2.28.9; 0 if there is none, or it is
        switched off. No library is loaded for the answer."""
        return nccl_version() if _core.nccl_built() and self.cuda_built() else 0

    def ddl_built(self):
        return False

    def ccl_built(self):
        return False

    def cuda_built(self):
        """True if the plugin for NVIDIA's GPUs is installed."""
        return _core.device_built("cuda")

    def rocm_built(self):
        """True if a plugin for AMD's GPUs is installed. There is none yet."""
        return _core.device_built("rocm")

    def start_timeline(self, file_path, mark_cycles=False):
        """From now on rank 0 writes the events of all its operations to a file. All ranks call this.

        ValueError unless HOROVOD_TIMELINE was set (to a path, or DYNAMIC) when Horovod was initialised.
        """
        _core.timeline_start(os.fspath(file_path), mark_cycles)

    def stop_timeline(self):
        """Closes the timeline's file. Does nothing if no timeline is being written."""
        _core.timeline_stop()

    # ---- process sets ---------------------------------------------------------------------------------------------

    HOROVOD_PROCESS_SET_ERROR_INIT = -1
    HOROVOD_PROCESS_SET_ERROR_DYNAMIC = -2
    HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET = -3
    HOROVOD_PROCESS_SET_ERROR_FOREIGN_SET = -4
    HOROVOD_PROCESS_SET_ERROR_SHUTDOWN = -5
    HOROVOD_PROCESS_SET_ERROR_EXISTING_SET = -6

    def _get_process_set_ids_and_ranks(self):
        """Returns {id: ranks} of all sets. ValueError before init(), RuntimeError if a set is removed meanwhile."""
        ids = _core.process_set_ids()
        try:
            return {number: _core.process_set(number)[1] for number in ids}
        except ValueError:
            if not _core.is_initialized():
                raise
            raise RuntimeError("the process sets were changed by another thread while they were looked at") from None

    def _process_set_size(self, process_set_id):
        return self.size() if process_set_id == 0 else _ops.place_in(process_set_id)[1]

    def _process_set_rank(self, process_set_id):
        if process_set_id == 0:
            return self.rank()
        place = _ops.place_in(process_set_id)[0]
        if place < 0:
            raise ValueError(f"rank {self.rank()} is not in the process set of id {process_set_id}")
        return place

    def _check_dynamic(self):
        _core.process_set_ids()  # raises ValueError before init()
        if not _ops.are_sets_dynamic:
            raise ValueError("process sets can only be added and removed if HOROVOD_DYNAMIC_PROCESS_SETS=1 is set when "
                             'Horovod is initialised, or by init(process_sets="dynamic")')

    def _add_process_set_impl(self, ranks):
        """Makes a process set and returns its id."""
        self._check_dynamic()
        everyone = range(self.size())
        wrong = [rank for rank in ranks if rank not in everyone]
        if wrong or len(set(ranks)) < len(ranks):
            raise ValueError(f"add_process_set: expected ranks from 0 to {len(everyone) - 1}, each once, found "
                             f"{list(ranks)}")
        return _ops.add_process_set(list(ranks) or list(everyone))

    def _remove_process_set_impl(self, process_set_id):
        self._check_dynamic()
        _ops.remove_process_set(process_set_id)
        return process_set_id

    def _comm_process_set_id(self, comm):
        """Returns the id of the set that has exactly the ranks of an mpi4py communicator. ValueError if there is
        none."""
        ranks = _process_sets._ranks_of(comm, _process_sets.global_process_set.mpi_comm)
        for number, found in self._get_process_set_ids_and_ranks().items():
            if found == ranks:
                return number
        raise ValueError(f"there is no process set of the ranks {ranks}")


def _requested_process_sets(process_sets):
    """Returns the process sets that the caller of init() gave. The string "dynamic" gives none."""
    if process_sets is None:
        return []
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise ValueError(f'init(process_sets=...) takes a list of ProcessSet or "dynamic", not {process_sets!r}')
        os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
        return []
    process_sets = list(process_sets)
    for each in process_sets:
        if not isinstance(each, _process_sets.ProcessSet):
            raise ValueError(f'init(process_sets=...) takes a list of ProcessSet or "dynamic"; found {each!r} in it')
    return process_sets


def _check_communicator(comm):
    if comm is None or isinstance(comm, (list, tuple, range)):
        return
    if not _process_sets._is_communicator(comm):
        raise ValueError("init(comm=...) takes a list of ranks or an mpi4py communicator, not "
                         f"{type(comm).__name__}")
    if not _core.mpi_built():
        raise ValueError("init(comm=...) was given an mpi4py communicator, but Horovod's MPI plugin is not there")


def _handle_of(comm):
    """Returns the address of the MPI_Comm in an mpi4py communicator, and the size of that MPI_Comm in bytes."""
    from mpi4py import MPI

    return MPI._addressof(comm), MPI._sizeof(comm)
