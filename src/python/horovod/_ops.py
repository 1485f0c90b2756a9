"""The verbs, once for every framework: a runtime per process, prepared operations by what describes them, handles.

A framework's module turns its tensors into addresses, asks for the operation here (`operation`), submits
(`submit`, `submit_group`) and waits (`synchronize`, `synchronize_all`). What it submitted once under a name it submits
again by `_core.start_again`. Operations and handles are plain data of this process; what the ranks agree about is the C
library's work.
"""
import atexit
import itertools
import os
import threading

from horovod import _core

_changing = threading.Lock()  # held by init and shutdown
_atexit_registered = False

operations = {}  # key -> _core.Operation; the keys are the framework modules' affair
latest = _core.latest  # name -> _core.Known, by which a step after the first one starts it without looking at much
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
            # The C library has marked the environment, so that a child which inherits it does not join in this rank's
            # place. Python's copy of the environment needs the mark too: subprocess may be given os.environ.
            if _core.world()[1] > 1:
                os.environ["HOROVOD_OWNER_PID"] = str(os.getpid())
        if not _atexit_registered:
            atexit.register(shutdown)
            _atexit_registered = True


def shutdown():
    """Leaves the job. What was not synchronised stays alive until the C library has let go of it."""
    with _changing:
        if _core.is_initialized():
            for callback in before_shutdown:
                callback()
        _core.shutdown()
        operations.clear()
        latest.clear()


before_shutdown = []  # called while the runtime still runs: last chance to move out of its memory


def _forget_everything():
    global new_unnamed
    operations.clear()
    latest.clear()
    _core.forget_all()
    new_unnamed = itertools.count(1).__next__


def _after_fork_in_child():
    # Another thread may have held the lock, and the parent's handles are none of the child's.
    global _changing
    _changing = threading.Lock()
    _forget_everything()


os.register_at_fork(after_in_child=_after_fork_in_child)


# ---- operations -------------------------------------------------------------------------------------------------


def operation(key, name, verb, dtype, shape, reduce_op=_core.SUM, prescale=1.0, postscale=1.0, root=0):
    """The prepared operation of this key, made of the other arguments if there is none yet."""
    found = operations.get(key)
    if found is None:
        found = _core.prepare(name, verb, dtype, shape, reduce_op, prescale, postscale, root, 0, 0)
        operations[key] = found
    return found


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
