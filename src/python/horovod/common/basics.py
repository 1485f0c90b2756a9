"""HorovodBasics: the job and this process's place in it. All frameworks of a process share one runtime."""
from horovod import _core, _ops
from horovod.common import process_sets as _process_sets


class HorovodBasics:
    """Its bound methods are the functions init, rank, size, … of a framework's module."""

    Average = _core.AVERAGE
    Sum = _core.SUM
    Adasum = 2
    Min = _core.MIN
    Max = _core.MAX
    Product = _core.PRODUCT

    def __init__(self, pkg_path=None, *args):
        """The arguments name an extension file elsewhere; here there is one for all frameworks."""
        if _process_sets._basics is None:
            _process_sets._setup(self)

    def init(self, comm=None, process_sets=None):
        """Joins the job that this process was launched into; blocks until all ranks are there.

        Nothing happens if Horovod is initialised already. Raises ValueError if joining fails.

        comm: None for all processes; an mpi4py communicator, whose processes become the ranks (it is copied and may be
        freed); or a list of ranks of MPI.COMM_WORLD, in the order of the new ranks. Its members call this, nobody else.
        """
        wanted = _requested_process_sets(process_sets)
        _check_communicator(comm)
        if wanted:
            raise NotImplementedError("This version of Horovod has the global process set only; "
                                      "init(process_sets=...) is to come.")
        is_communicator = _process_sets._is_communicator(comm)
        if is_communicator:
            _ops.init(*_handle_of(comm))
        else:
            _ops.init(0, 0, list(comm) if comm else None)
        _process_sets._init_process_sets([])
        _process_sets.global_process_set.mpi_comm = comm if is_communicator else None

    def shutdown(self):
        """Ends Horovod on all ranks; afterwards init() may be called again. Nothing happens if it is not running."""
        _ops.shutdown()

    def is_initialized(self):
        """Between init() and shutdown(); also in children forked meanwhile, which know their parent's rank."""
        return _core.has_place()

    def rank(self):
        """This process's number among all; ValueError before init()."""
        return _core.world()[0]

    def size(self):
        """The number of processes; ValueError before init()."""
        return _core.world()[1]

    def local_rank(self):
        """This process's number among those of its node."""
        return _core.world()[2]

    def local_size(self):
        """The number of processes on this node."""
        return _core.world()[3]

    def cross_rank(self):
        """This node's number among the nodes that have this local rank."""
        return _core.world()[4]

    def cross_size(self):
        """The number of nodes that have a process of this local rank."""
        return _core.world()[5]

    def is_homogeneous(self):
        """Does every node run the same number of processes?"""
        return _core.world()[6]

    def mpi_threads_supported(self):
        """Does the MPI that connects the ranks allow calls from any thread at any time? ValueError without one."""
        level = _core.mpi_thread_level()  # ValueError before init()
        if level < 0:
            raise ValueError("Horovod MPI is not enabled: this job communicates without MPI")
        return level == 3

    def mpi_enabled(self):
        """Are the ranks connected by an MPI? False before init()."""
        return _core.has_place() and _core.mpi_thread_level() >= 0

    def mpi_built(self):
        return _core.mpi_built()

    def gloo_enabled(self):
        """Are the ranks connected by our sockets and shared memory alone, as by Gloo elsewhere? False before init()."""
        return _core.has_place() and _core.mpi_thread_level() < 0

    def gloo_built(self):
        """What is meant by Gloo, meeting at a store and communicating without an MPI, is always there."""
        return True

    def nccl_built(self):
        """NCCL's version code, 0 without NCCL."""
        return 0

    def ddl_built(self):
        return False

    def ccl_built(self):
        return False

    def cuda_built(self):
        return False

    def rocm_built(self):
        return False

    def start_timeline(self, file_path, mark_cycles=False):
        _core.world()
        raise NotImplementedError("This version of Horovod writes no timeline yet.")

    def stop_timeline(self):
        """Nothing happens if no timeline is being written."""
        _core.world()

    def _get_process_set_ids_and_ranks(self):
        return {0: list(range(self.size()))}

    def _process_set_size(self, process_set_id):
        _check_process_set_id(process_set_id)
        return self.size()

    def _process_set_rank(self, process_set_id):
        _check_process_set_id(process_set_id)
        return self.rank()


def _check_process_set_id(process_set_id):
    _core.world()
    if process_set_id != 0:
        raise ValueError(f"process set id {process_set_id} is unknown; this job has: 0")


def _requested_process_sets(process_sets):
    """The process sets that init() was asked for; the string "dynamic" asks for none yet."""
    if process_sets is None:
        return []
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise ValueError(f'init(process_sets=...) takes a list of ProcessSet or "dynamic", not {process_sets!r}')
        return []
    return list(process_sets)


def _check_communicator(comm):
    if comm is None or isinstance(comm, (list, tuple, range)):
        return
    if not _process_sets._is_communicator(comm):
        raise ValueError("init(comm=...) takes a list of ranks or an mpi4py communicator, not "
                         f"{type(comm).__name__}")
    if not _core.mpi_built():
        raise ValueError("init(comm=...) was given an mpi4py communicator, but Horovod's MPI plugin is not there")


def _handle_of(comm):
    """Where the MPI_Comm of an mpi4py communicator lies, and its size."""
    from mpi4py import MPI

    return MPI._addressof(comm), MPI._sizeof(comm)
