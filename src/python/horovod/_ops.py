"""The verbs, once for every framework: a runtime per process, prepared operations by what describes them, handles.

A framework's module turns its tensors into addresses, asks for the operation here (`operation`), submits
(`submit`, `submit_group`) and waits (`synchronize`, `synchronize_all`). What it submitted once under a name it submits
again by `_core.start_again`. Operations and handles are plain data of this process; what the ranks agree about is the C
library's work.
"""
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
# How many distributed optimizers have had parameters of a name; from 0 after each init.
optimizers_with = collections.Counter()
# What has state of a job; its begin_anew() is called after a shutdown, when the next job has begun.
to_begin_anew = weakref.WeakSet()
_remembered = 0  # operations of `latest`, and those that were replaced there
# Numbers the operations without a name, by which the ranks match them; from 1 after each init.
new_unnamed = itertools.count(1).__next__


# ---- the job ----------------------------------------------------------------------------------------------------


def init(*members):
    """Joins the job; nothing happens if this process has done so already. For the arguments see _core.init."""
    global _atexit_registered
    with _changing:
        if not _core.is_initialized():
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


def shutdown():
    """Leaves the job. What was not synchronised stays alive until the C library has let go of it."""
    with _changing:
        _core.shutdown()
        _copy_mark()
        operations.clear()
        latest.clear()


def _copy_mark():
    """The C library marks the environment, so that a child which inherits it does not join in this rank's place. Python's
    copy of the environment needs the mark too: subprocess may be given os.environ."""
    mark = _core.owner_mark()
    if mark is not None:
        os.environ["HOROVOD_OWNER"] = mark


def _forget_everything():
    global new_unnamed
    operations.clear()
    latest.clear()
    optimizers_with.clear()
    _core.forget_all()
    new_unnamed = itertools.count(1).__next__


def _after_fork_in_child():
    # Another thread may have held the lock, and the parent's handles are none of the child's.
    global _changing, is_forked
    _changing = threading.RLock()
    is_forked = True
    _forget_everything()


os.register_at_fork(after_in_child=_after_fork_in_child)


# ---- operations -------------------------------------------------------------------------------------------------


def operation(key, name, verb, dtype, shape, reduce_op=_core.SUM, prescale=1.0, postscale=1.0, root=0):
    """The prepared operation of this key, made of the other arguments if there is none yet."""
    found = operations[key]
    if found is None:
        found = _core.prepare(name, verb, dtype, shape, reduce_op, prescale, postscale, root, 0, 0)
        operations[key] = found
    return found


def remember(name, known):
    """From now on _core.start_again knows what was started last under the name."""
    global _remembered
    count = len(known) if isinstance(known, tuple) else 1
    _remembered += count
    if _remembered > MOST_OPERATIONS:
        latest.clear()  # who is used again is found among the operations, and remembered
        _remembered = count
    latest[name] = known


def transient(name, verb, dtype, shape, reduce_op=_core.SUM, prescale=1.0, postscale=1.0, root=0):
    """An operation for one use, whose name will not come again."""
    return _core.prepare(name, verb, dtype, shape, reduce_op, prescale, postscale, root, 0, 1)


submit = _core.submit
submit_group = _core.submit_group
poll = _core.poll
synchronize = _core.synchronize
finish = _core.finish  # what a synchronous verb does with the handle of its own
synchronize_all = _core.synchronize_all


def barrier():
    """Returns when every rank has called it."""
    found = operation("barrier", "barrier.noname", _core.BARRIER, _core.UINT8, ())
    finish(submit(found, 0, 0, 0, None, None))
