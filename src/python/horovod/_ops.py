"""The verbs, once for every framework: a runtime per process, prepared operations by what describes them, handles.

A framework's module turns its tensors into addresses, asks for the operation here (`operation`), submits
(`submit`, `submit_group`) and waits (`synchronize`). Operations and handles are plain data of this process; what the
ranks agree about is the C library's work.
"""
import atexit
import itertools
import os
import threading

from horovod import _core

_changing = threading.Lock()  # held by init and shutdown
_atexit_registered = False

operations = {}  # key -> _core.Operation; the keys are the framework modules' affair
latest = {}  # name -> (what described it last, its Operation's start): no hashing of shapes in the steps after the first
pending = {}  # handle -> (handle of the C library, output, result, what must stay alive)
new_handle = itertools.count(1).__next__  # counts from 1 after each init
# Numbers the operations without a name, by which the ranks match them. Not the handles' numbers: one rank's rejected
# operation (a name in flight twice) takes a handle, and would set it one ahead of the others for ever.
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
    global new_handle, new_unnamed
    operations.clear()
    latest.clear()
    pending.clear()
    new_handle = itertools.count(1).__next__
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


def submit(handle, operation, input, output, rows, value, keep, result=None):
    """Starts an operation under a handle of new_handle().

    value: what synchronize returns; if `result` is given, result(the C library's handle, value) instead.
    keep: what must not be freed before the operation is done.
    """
    pending[handle] = (operation.start(input, output, rows), value, result, keep)
    return handle


def submit_group(handle, members, value, keep, result=None):
    """As submit, for a list of (operation, input, output, rows) that become visible to the other ranks together."""
    pending[handle] = (_core.start_group(members), value, result, keep)
    return handle


def poll(handle):
    """Is the operation done? Never blocks. A handle that is not known, or synchronised already, is done."""
    entry = pending.get(handle)
    return entry is None or _core.poll(entry[0])


def synchronize(handle):
    """Waits until the operation is done and returns its output; None for a handle that is not known.

    Raises HorovodInternalError if the operation failed.
    """
    entry = pending.get(handle)
    if entry is None:
        return None
    started, value, result, _ = entry
    try:
        if result is None:
            _core.finish(started)
        else:
            _core.wait(started)
            value = result(started, value)
            _core.release(started)
    except Exception:
        _core.release(started)
        if pending.pop(handle, None) is None:
            return None  # another thread has synchronised it meanwhile
        raise
    # An interrupt (Ctrl-C) leaves the entry: the operation goes on in its memory.
    pending.pop(handle, None)
    return value


def barrier():
    """Returns when every rank has called it."""
    found = operation("barrier", "barrier.noname", _core.BARRIER, _core.UINT8, ())
    synchronize(submit(new_handle(), found, 0, 0, 0, None, None))
