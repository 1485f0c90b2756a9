"""The verbs, once for every framework: a runtime per process, prepared operations by what describes them, handles.

A framework's module turns its tensors into addresses, asks for the operation here (`operation`), submits
(`submit`, `submit_group`) and waits (`synchronize`, `synchronize_all`). What it submitted once under a name it submits
again by `_core.start_again`. Operations and handles are plain data of this process; what the ranks agree about is the C
library's work.
"""
import array
import atexit
import collections
import itertools
import os
import threading
import weakref

from horovod import _core
from horovod.common.exceptions import HorovodInternalError

# Held by init and shutdown. A signal's handler may call them while they run: "SIGTERM: checkpoint, shut down, exit".
_changing = threading.RLock()
_atexit_registered = False
is_forked = False  # this process is the child of one that may be a rank


def setting(name):
    """The value of a HOROVOD_* setting: the environment's, else that of a file of the user or the site."""
    return next(value for known, value, _ in _core.settings() if known == name)


class RecentlyUsed(dict):
    """What was used last, by key; `table[key]` is None for what is not there.

    Holds up to twice `most` entries: when it is full, those that are not used before it is full again are forgotten.
    Finding what is used all the time costs what it costs in a dict.
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


# Models have fewer tensors than this. A program with ever new names, shapes or scales uses each of them once.
MOST_OPERATIONS = 8192
operations = RecentlyUsed(MOST_OPERATIONS)  # key -> _core.Operation; the keys are the framework modules' affair
# name -> _core.Known, or a group's tuple of them, by which a step after the first one starts it without looking at much
latest = _core.latest
latest_of_sets = _core.latest_of_sets  # the same for each process set but the global one
# How many distributed optimizers have had parameters of a name, by (process set id, name); from 0 after each init.
optimizers_with = collections.Counter()
# What has state of a job; its begin_anew() is called after a shutdown, when the next job has begun.
to_begin_anew = weakref.WeakSet()
_remembered = 0  # operations of `latest`, and those that were replaced there
_unnamed = {}  # process set id -> counter of its operations without a name
_first_unnamed = 1  # what such a counter begins with
_places = {}  # process set id -> (this rank's place, size)
are_sets_dynamic = False  # whether process sets may be added and removed


# ---- the job ----------------------------------------------------------------------------------------------------


def init(*members):
    """Joins the job, and says so; False if this process has done so already. For the arguments see _core.init."""
    global _atexit_registered
    with _changing:
        begun = not _core.is_initialized()
        if begun:
            _forget_everything()
            _core.init(*members)
            _copy_mark()
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
    """Leaves the job. What was not synchronised stays alive until the C library has let go of it."""
    with _changing:
        _core.shutdown()
        _copy_mark()
        _forget_operations()


def _copy_mark():
    """The C library marks the environment, so that a child which inherits it does not join in this rank's place.
    Python's copy of the environment needs the mark too: subprocess may be given os.environ."""
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
    _first_unnamed = 1


def _after_fork_in_child():
    # Another thread may have held the lock, and the parent's handles are none of the child's.
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


def add_process_set(ranks):
    """The id of the new set. Collective over all ranks."""
    _wait_for_all_ranks()
    number = _core.add_process_set(ranks)
    _forget_set(number)
    return number


def remove_process_set(process_set):
    """Collective over all ranks. What is under way in the set fails."""
    _wait_for_all_ranks()
    _core.remove_process_set(process_set)
    _forget_set(process_set)


def _forget_set(process_set):
    """Its id means another set from now on, or none."""
    _forget_operations()
    _unnamed.pop(process_set, None)
    _places.pop(process_set, None)
    for key in [key for key in optimizers_with if key[0] == process_set]:
        del optimizers_with[key]


def _wait_for_all_ranks():
    """With an ear for signals, which the C library does not have while it changes the process sets."""
    found = operation("process sets", "change of the process sets", _core.BARRIER, _core.UINT8, ())
    finish(submit(found, 0, 0, 0, None, None))


# ---- operations -------------------------------------------------------------------------------------------------


def operation(key, name, verb, dtype, shape, reduce_op=_core.SUM, prescale=1.0, postscale=1.0, root=0, process_set=0,
              group=None):
    """The prepared operation of this key, made of the other arguments if there is none yet."""
    found = operations[key]
    if found is None:
        found = _core.prepare(name, verb, dtype, shape, reduce_op, prescale, postscale, root, process_set, 0, group)
        operations[key] = found
    return found


def transient(name, verb, dtype, shape, reduce_op=_core.SUM, prescale=1.0, postscale=1.0, root=0, process_set=0,
              group=None):
    """An operation for one use, whose name will not come again."""
    return _core.prepare(name, verb, dtype, shape, reduce_op, prescale, postscale, root, process_set, 1, group)


def new_unnamed(process_set):
    """Numbers the operations without a name in the set, by which its ranks match them; from 1 after each init."""
    counter = _unnamed.get(process_set)
    if counter is None:
        counter = _unnamed[process_set] = itertools.count(_first_unnamed)
    return next(counter)


def remember(name, known, process_set):
    """From now on _core.start_again knows what was started last under the name in the ProcessSet."""
    global _remembered
    count = len(known) if isinstance(known, tuple) else 1
    _remembered += count
    if _remembered > MOST_OPERATIONS:
        latest.clear()  # an operation that is used again is found among all, and remembered anew
        latest_of_sets.clear()
        _remembered = count
    of_set = latest if process_set.process_set_id == 0 else latest_of_sets.setdefault(process_set, {})
    of_set[name] = known


submit = _core.submit
submit_group = _core.submit_group
poll = _core.poll
synchronize = _core.synchronize
finish = _core.finish  # what a synchronous verb does with the handle of its own
synchronize_all = _core.synchronize_all


def barrier(process_set=0):
    """Returns when every rank of the set has called it."""
    key = ("barrier", process_set)
    found = operation(key, "barrier.noname", _core.BARRIER, _core.UINT8, (), process_set=process_set)
    finish(submit(found, 0, 0, 0, None, None))


def join():
    """Returns when every rank has called it: the rank that was last. Until then zeros take this rank's place."""
    global _first_unnamed
    last = array.array("i", [-1])
    found = operation("join", "join.noname", _core.JOIN, _core.INT32, ())
    finish(submit(found, 0, last.buffer_info()[0], 0, None, last))
    # The ranks have started different numbers of operations without a name. From here on they count together again.
    _first_unnamed += 1 << 32
    _unnamed.clear()
    return last[0]
