"""Process sets: groups of ranks that communicate among themselves. So far there is the one of all ranks."""
from horovod.common.util import is_iterable

_basics = None  # HorovodBasics of the first framework module that was imported


def _is_communicator(x):
    return hasattr(x, "Get_rank") and hasattr(x, "Get_size")


class ProcessSet:
    """Ranks that execute collectives together.

    ranks_or_comm: rank numbers in any order, or an mpi4py communicator.
    """

    def __init__(self, ranks_or_comm):
        self.process_set_id = None
        self.ranks = None
        self.mpi_comm = None
        if _is_communicator(ranks_or_comm):
            assert _basics is not None, "import horovod.torch before making a ProcessSet of a communicator"
            if not _basics.mpi_built():
                raise ValueError("a ProcessSet of an mpi4py communicator needs Horovod's MPI plugin, which is not "
                                 "there; give the ranks' numbers instead")
            self.mpi_comm = ranks_or_comm
            return
        if not is_iterable(ranks_or_comm):
            raise ValueError(f"ProcessSet takes a list of ranks or an mpi4py communicator, not {ranks_or_comm!r}")
        ranks = list(ranks_or_comm)
        if not all(isinstance(rank, int) for rank in ranks):
            raise ValueError(f"the ranks of a ProcessSet are integers; found {ranks}")
        self.ranks = sorted(ranks)

    def _check_id(self):
        """This set's id; raises unless operations can run in it."""
        if self.process_set_id is None:
            raise TypeError(f"{self} is not registered")
        if self.process_set_id != 0:
            raise ValueError(f"{self} is unknown: this version of Horovod has the global process set only")
        return self.process_set_id

    def size(self):
        """The number of ranks; None if not registered."""
        if self.process_set_id is None:
            return None
        return _basics._process_set_size(self.process_set_id)

    def rank(self):
        """This process's place in the set; None if not registered."""
        if self.process_set_id is None:
            return None
        return _basics._process_set_rank(self.process_set_id)

    def included(self):
        """Is this process in the set? None if its ranks are not known yet."""
        if self.ranks is None:
            return None
        return _basics.rank() in self.ranks

    def __str__(self):
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"


global_process_set = ProcessSet([])
global_process_set.ranks = None
global_process_set.process_set_id = 0


def _temp_process_set_object(process_set_id):
    """A ProcessSet that carries an id and nothing else."""
    temporary = ProcessSet([])
    temporary.ranks = None
    temporary.process_set_id = process_set_id
    return temporary


def _setup(basics):
    global _basics
    _basics = basics


def _init_process_sets(process_sets):
    """After init: the global set learns its ranks."""
    global_process_set.ranks = list(range(_basics.size()))


def add_process_set(process_set):
    raise NotImplementedError("This version of Horovod has the global process set only; add_process_set is to come.")


def remove_process_set(process_set):
    """True if the set was removed; the global set and sets that are not registered cannot be."""
    if process_set.process_set_id is None or process_set.process_set_id == 0:
        return False
    raise NotImplementedError("This version of Horovod has the global process set only; remove_process_set is to come.")
