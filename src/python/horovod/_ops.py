"""The verbs for every framework: one runtime per process, prepared operations that are found by a key, and handles.

A framework's module turns its tensors into addresses, asks for the operation here (`operation`), submits it
(`submit`, `submit_group`) and waits (`synchronize`, `synchronize_all`). `_core.start_again` starts an operation under a
name that was submitted before. Operations and handles are plain data of this process. The C library makes the ranks
agree.
"""
import array
import atexit
import collections
import itertools
import os
import sys
import threading
import weakref

from horovod import _core
from horovod.common.exceptions import HorovodInternalError

# init and shutdown hold this lock. A signal's handler may call them while they run ("SIGTERM: checkpoint, shut down,
# exit"). Therefore a thread that holds the lock may take it again.
_changing = threading.RLock()
_atexit_registered = False
is_forked = False  # this process was forked from one that may be a rank


def setting(name):
    """The value of a HOROVOD_* setting: the environment's, else that of a file of the user or the site. A flag's is 0
    or 1."""
    return next(value for known, value, _ in _core.settings() if known == name)


def is_on(name):
    """True if the HOROVOD_* setting, a flag, is on."""
    return setting(name) == "1"


class RecentlyUsed(dict):
    """A dict of the recently used entries; `table[key]` is None if the key is not there.

    It holds up to twice `most` entries. When `most` entries are new or used since the last time, all others are
    forgotten. To find an entry that is used often costs no more than in a dict.
    """

    def __init__(self, most):
        super().__init__()
        self._most = most
        self._older = {}

    def __missing__(self, key):
        found = self._older.pop(key, None)
        if found is not None:
            self[key] = found
        return found

    def __setitem__(self, key, value):
        if len(self) >= self._most:
            self._older = dict(self)
            super().clear()
        super().__setitem__(key, value)

    def clear(self):
        super().clear()
        self._older = {}


# Models have fewer tensors than this. Only a program that invents new names, shapes or scales in every step has more
# operations, and uses each of them once.
MOST_OPERATIONS = 8192
operations = RecentlyUsed(MOST_OPERATIONS)  # key -> _core.Operation; each framework's module makes its keys
# name -> _core.Known, or a tuple of them for a group: with it every step after the first starts an operation quickly.
latest = _core.latest
latest_of_sets = _core.latest_of_sets  # process set -> such a dictionary, for all but the global set
# How many distributed optimizers have had parameters of a name, by (process set id, name). Empty after each init.
optimizers_with = collections.Counter()
# The names of the optimizers that have a number, by the order in which these were taken; each has take_number().
numbered = weakref.WeakValueDictionary()
jobs = 0  # the number of jobs that this process has joined
# Objects with state that belongs to one job. Their begin_anew() is called when the next job has begun after a shutdown.
to_begin_anew = weakref.WeakSet()
# number -> an object whose prepare_to_join() is called before this rank joins; in the order in which they were made
to_prepare_to_join = weakref.WeakValueDictionary()
# Writes of checkpoints on other threads whose outcome nobody has been told yet. They have wait(), finish(), `what` and
# `is_collective`.
writing = set()
_remembered = 0  # how many operations `latest` has taken, also those replaced since
_unnamed = {}  # process set id -> counter of its operations without a name
_first_unnamed = 1  # the number with which such a counter begins
times_joined = 0  # how often join() has returned
_places = {}  # process set id -> (this rank's place, size)
_with_devices = {}  # process set id -> whether its operations take tensors in the memory of GPUs
are_sets_dynamic = False  # whether process sets may be added and removed


# ---- the job ----------------------------------------------------------------------------------------------------


def init(*members):
    """Joins the job and returns True; returns False if this process has already joined. The arguments are those of
    _core.init."""
    global _atexit_registered, jobs
    with _changing:
        begun = not _core.is_initialized()
        if begun:
            _forget_everything()
            joins_as = _take_progress()
            _core.init(*members, *(joins_as if len(members) == 4 else ()))
            jobs += 1
            _copy_place()
            if _core.elastic_facts() is not None:
                _number_anew()
            for each in list(to_begin_anew):
                each.begin_anew()
        if not _atexit_registered:
            atexit.register(shutdown)
            _atexit_registered = True
        if not _core.is_initialized():
            raise HorovodInternalError("hvd.init() was undone before it returned: a signal's handler called "
                                       "hvd.shutdown()")
        return begun


def shutdown():
    """Leaves the job. The tensors of operations that were not synchronised stay alive until the C library no longer
    uses them. Waits for checkpoints that are still being written; raises the error of such a write when all is done."""
    for each in list(writing):
        each.wait()
    with _changing:
        _core.shutdown()
        _copy_mark()
        _forget_operations()
    _finish_writing()


# Why this process joins next and how far its training has come (hvd_init_options); for jobs whose ranks come and go.
next_progress = None


def _take_progress():
    global next_progress
    progress, next_progress = next_progress, None
    return progress or ()


def _number_anew():
    """New ranks make their optimizers now, in the order in which this rank has made its own. So that the ranks match
    their gradients, this rank's get the same numbers."""
    for order in sorted(numbered):
        names = numbered.get(order)
        if names is not None:
            names.take_number()


def _copy_place():
    """Copies what the C library has put into the environment: the mark, and in a job whose ranks come and go the place
    of this start."""
    if _core.elastic_facts() is not None:
        names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
        for name, number in zip(names, _core.world()):
            os.environ[f"HOROVOD_{name}"] = str(number)
    _copy_mark()


def _finish_writing():
    failures = []
    for each in list(writing):
        try:
            each.finish()
        except Exception as error:  # of any kind; every one is told
            failures.append((each.what, error))
    for what, error in failures[1:]:
        print(f"Horovod: {what} failed: {error}", file=sys.stderr)
    if failures:
        raise failures[0][1]


def _copy_mark():
    """Copies the mark that the C library puts into the environment, so that a child that inherits the environment does
    not join in this rank's place. Python's own copy of the environment needs the mark too, because a program may give
    os.environ to subprocess."""
    mark = _core.owner_mark()
    if mark is not None:
        os.environ["HOROVOD_OWNER"] = mark


def _forget_operations():
    operations.clear()
    latest.clear()
    latest_of_sets.clear()


def _forget_everything():
    global _first_unnamed
    _forget_operations()
    optimizers_with.clear()
    _core.forget_all()
    _unnamed.clear()
    _places.clear()
    _with_devices.clear()
    _first_unnamed = 1


def _after_fork_in_child():
    # At the fork another thread may have held the lock. The parent's handles do not belong to the child.
    global _changing, is_forked
    _changing = threading.RLock()
    is_forked = True
    _forget_everything()


os.register_at_fork(after_in_child=_after_fork_in_child)


# ---- process sets -----------------------------------------------------------------------------------------------


def place_in(process_set):
    """(this rank's place, size) of the set with this id; the place is -1 if this rank is not in it.

    ValueError if there is no such set.
    """
    found = _places.get(process_set)
    if found is None:
        place, ranks = _core.process_set(process_set)
        found = _places[process_set] = (place, len(ranks))
    return found


def has_device(process_set):
    """True if operations of the set take tensors in the memory of GPUs; equal on all its ranks."""
    found = _with_devices.get(process_set)
    if found is None:
        found = _with_devices[process_set] = _core.has_device(process_set)
    return found


def add_process_set(ranks):
    """Makes a process set and returns its id. Collective over all ranks."""
    _wait_for_all_ranks()
    number = _core.add_process_set(ranks)
    _forget_set(number)
    return number


def remove_process_set(process_set):
    """Collective over all ranks. Operations of the set that are not finished fail."""
    _wait_for_all_ranks()
    _core.remove_process_set(process_set)
    _forget_set(process_set)


def _forget_set(process_set):
    """Called when the id belongs to no set any more, or to another one. Forgets what is stored for the set."""
    _forget_operations()
    _unnamed.pop(process_set, None)
    _places.pop(process_set, None)
    _with_devices.pop(process_set, None)
    for key in [key for key in optimizers_with if key[0] == process_set]:
        del optimizers_with[key]


def _wait_for_all_ranks():
    """Waits for all ranks here, because this wait reacts to signals. The C library does not, while it changes
    process sets."""
    found = operation("process sets", "change of the process sets", _core.BARRIER, _core.UINT8, ())
    finish(submit(found, 0, 0, 0, None, None))


# ---- operations -------------------------------------------------------------------------------------------------


def operation(key, name, verb, dtype, shape, reduce_op=_core.SUM, prescale=1.0, postscale=1.0, root=0, process_set=0,
              group=None, ordinal=-1):
    """Returns the prepared operation of this key. Makes it from the other arguments if it does not exist yet.

    ordinal: the GPU that has the tensors; -1: the host.
    """
    found = operations[key]
    if found is None:
        found = _core.prepare(name, verb, dtype, shape, reduce_op, prescale, postscale, root, process_set, 0, group,
                              ordinal)
        operations[key] = found
    return found


def transient(name, verb, dtype, shape, reduce_op=_core.SUM, prescale=1.0, postscale=1.0, root=0, process_set=0,
              group=None, ordinal=-1):
    """Makes an operation for a single use, under a name that is never used again."""
    return _core.prepare(name, verb, dtype, shape, reduce_op, prescale, postscale, root, process_set, 1, group, ordinal)


def new_unnamed(process_set):
    """Returns the next number for an operation without a name. The ranks of the set match such operations by the
    number, which begins at 1 after each init."""
    counter = _unnamed.get(process_set)
    if counter is None:
        counter = _unnamed[process_set] = itertools.count(_first_unnamed)
    return next(counter)


def remember(name, known, process_set):
    """From now on _core.start_again can start `known` under this name in this ProcessSet."""
    global _remembered
    count = len(known) if isinstance(known, tuple) else 1
    _remembered += count
    if _remembered > MOST_OPERATIONS:
        latest.clear()  # an operation that is used again is then made Known again
        latest_of_sets.clear()
        _remembered = count
    of_set = latest if process_set.process_set_id == 0 else latest_of_sets.setdefault(process_set, {})
    of_set[name] = known


submit = _core.submit
submit_group = _core.submit_group
poll = _core.poll
synchronize = _core.synchronize
finish = _core.finish  # a synchronous verb waits with it for its own handle
synchronize_all = _core.synchronize_all
done_before = _core.done_before


def barrier(process_set=0):
    """Returns when every rank of the set has called it."""
    key = ("barrier", process_set)
    found = operation(key, "barrier.noname", _core.BARRIER, _core.UINT8, (), process_set=process_set)
    finish(submit(found, 0, 0, 0, None, None))


are_on_devices = False  # whether operations of this process may take tensors in the memory of a device


def check_results_on_devices():
    """Raises HorovodInternalError if the job is over. Called when a device has ended what was queued on it: if a rank
    was lost before, the results that were under way there are NaN."""
    if are_on_devices and _core.is_initialized() and not _core.is_running():
        barrier()  # no operation begins any more; its error has the cause


def join(ordinal=-1):
    """Returns when every rank has called it; the result is the last rank to call. Until then this rank contributes
    zeros.

    ordinal: the GPU by which it takes part if no tensor has decided that yet; -1: the one that it is meant to use.
    """
    global _first_unnamed, times_joined
    for each in list(writing):
        if each.is_collective:  # in its operations this rank must not count as one that has joined
            each.wait()
    for each in list(to_prepare_to_join.values()):
        each.prepare_to_join()
    last = array.array("i", [-1])
    found = operation(("join", ordinal), "join.noname", _core.JOIN, _core.INT32, (), ordinal=ordinal)
    finish(submit(found, 0, last.buffer_info()[0], 0, None, last))
    # The ranks have started different numbers of unnamed operations. From here on all count from the same new number.
    _first_unnamed += 1 << 32
    times_joined += 1
    _unnamed.clear()
    return last[0]
