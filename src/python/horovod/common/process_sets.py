"""Process sets: groups of ranks that communicate among themselves. Set 0 has all ranks."""
import weakref

from horovod.common.util import is_iterable

_basics = None  # HorovodBasics of the first framework module that was imported
_registered = weakref.WeakSet()  # sets with an id in this job, except the global set


def _is_communicator(x):
    return hasattr(x, "Get_rank") and hasattr(x, "Get_size")


class ProcessSet:
    """Ranks that execute collectives together.

    ranks_or_comm: rank numbers in any order, or an mpi4py communicator.
    """

    process_set_id = None
    ranks = None
    mpi_comm = None

    def __init__(self, ranks_or_comm):
        if _is_communicator(ranks_or_comm):
            assert _basics is not None, "import horovod.torch, or the package of your framework, before making a " \
                                        "ProcessSet of a communicator"
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

    def __deepcopy__(self, memo):
        """A copy of a model or an optimizer belongs to the same set."""
        return self

    def _invalidate(self):
        """Called when the set no longer belongs to the job. It may be added again."""
        self.process_set_id = None

    def _check_id(self):
        """Returns this set's id. TypeError if it has none. The C library checks whether operations can run in the
        set."""
        if self.process_set_id is None:
            raise TypeError(f"{self} is not registered: give it to hvd.init() or hvd.add_process_set(), and do not use "
                            "it after hvd.remove_process_set()")
        return self.process_set_id

    def size(self):
        """The number of ranks; None if the set is not registered."""
        if self.process_set_id is None:
            return None
        return _basics._process_set_size(self.process_set_id)

    def rank(self):
        """This process's place in the set; None if the set is not registered, ValueError if this process is not in
        the set."""
        if self.process_set_id is None:
            return None
        return _basics._process_set_rank(self.process_set_id)

    def included(self):
        """True if this process is in the set; None if the set's ranks are not known yet."""
        if self.ranks is None:
            return None
        return _basics.rank() in self.ranks

    def __str__(self):
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"


global_process_set = ProcessSet([])
global_process_set.process_set_id = 0


def _temp_process_set_object(process_set_id):
    """Makes a ProcessSet that has only an id."""
    temporary = ProcessSet([])
    temporary.ranks = None
    temporary.process_set_id = process_set_id
    return temporary


def _setup(basics):
    global _basics
    _basics = basics


# ---- sets that exist from the start -----------------------------------------------------------------------------


def _lists_of_ranks(process_sets, comm):
    """Returns the ranks of each set that init() will make, in the order of the sets' ids. Sets of communicators come
    first, sorted.

    Collective over the communicator `comm`, if there is one: each rank knows only the sets of its own communicators.
    """
    lists = [process_set.ranks for process_set in process_sets if process_set.mpi_comm is None]
    own = [_ranks_of(process_set.mpi_comm, comm) for process_set in process_sets if process_set.mpi_comm is not None]
    if _is_communicator(comm):
        found = {tuple(ranks) for of_one in comm.allgather(own) for ranks in of_one}
        if any(rank < 0 for ranks in found for rank in ranks):
            raise ValueError("init(process_sets=...): the communicator of a ProcessSet has processes that are not in "
                             "the communicator comm")
        lists = [list(ranks) for ranks in sorted(found)] + lists
    return [ranks for ranks in lists if ranks]  # an empty list means all ranks, which already have a set


def _ranks_of(comm, world):
    """Returns the ranks that the processes of `comm` have in the communicator `world`; negative if one is not in
    `world`."""
    from mpi4py import MPI

    group, of_world = comm.Get_group(), world.Get_group()
    try:
        return sorted(MPI.Group.Translate_ranks(group, list(range(group.Get_size())), of_world))
    finally:
        group.Free()
        of_world.Free()


def _begin_anew(comm):
    """Called when a new job has begun. Removes the ids of the last job, which are no longer valid."""
    for process_set in list(_registered):
        process_set._invalidate()
    _registered.clear()
    global_process_set.mpi_comm = comm


def _init_process_sets(process_sets):
    """Runs after init: stores the global set's ranks and the ids of `process_sets`. KeyError if no set has the ranks
    of one."""
    try:
        sets = _basics._get_process_set_ids_and_ranks()
    except ValueError:  # Horovod was shut down between the two calls
        return
    everyone = global_process_set.ranks = sets[0]
    ids = {tuple(ranks): number for number, ranks in sets.items()}
    seen = {0: "the global process set"}
    for index, process_set in enumerate(process_sets):
        if process_set.mpi_comm is not None:
            process_set.ranks = _ranks_of(process_set.mpi_comm, global_process_set.mpi_comm)
        ranks = tuple(process_set.ranks or everyone)
        if ranks not in ids:
            raise KeyError(f"init(process_sets=...): there is no process set of the ranks {list(ranks)}, and Horovod "
                           "is initialised already; use hvd.add_process_set()")
        found = ids[ranks]
        if found in seen:
            raise ValueError(f"init(process_sets=...): the process set at index {index}, {list(ranks)}, is the same "
                             f"as {seen[found]}. Horovod is initialised; call init() again with other sets to go on")
        seen[found] = f"the one at index {index}"
        process_set.process_set_id = found
        _registered.add(process_set)


# ---- sets that are made and removed later -----------------------------------------------------------------------


def add_process_set(process_set):
    """Makes a set of these ranks and returns it. All ranks of the job must call this in the same order, also those
    outside of the set.

    process_set: a ProcessSet, or rank numbers. Raises ValueError if another set has the same ranks, or if process
    sets are not dynamic (HOROVOD_DYNAMIC_PROCESS_SETS=1, or init(process_sets="dynamic")).
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.mpi_comm is not None:
        raise NotImplementedError("add_process_set: a set of an mpi4py communicator is given to "
                                  "init(process_sets=[...]); here give the ranks' numbers")
    process_set.process_set_id = _basics._add_process_set_impl(process_set.ranks)
    _registered.add(process_set)
    return process_set


def remove_process_set(process_set):
    """Removes the set. Every rank calls this. Returns False for the global set and for sets that are not registered."""
    number = process_set.process_set_id
    if number is None or number == 0:
        return False
    _basics._check_dynamic()
    process_set._invalidate()
    _registered.discard(process_set)
    _basics._remove_process_set_impl(number)
    return True
