"""The end of a job: when all ranks leave their loops, at the same step."""
import atexit
import os
import signal
import sys
import threading

from horovod import _core, _ops
from horovod.common.process_sets import global_process_set

AGAIN = 75  # EX_TEMPFAIL: the training was saved before its end, and another run of the job can go on from there


def should_stop(process_set=global_process_set):
    """True if the loop must be left now. It becomes true at the same step on all ranks of the process set.

    Call it after each step, in the thread that waits for the step's operations: it compares the
    agreed stop point with the last of these operations in that set. It sends no message and never waits.

    It becomes true after a signal to any rank (HOROVOD_STOP_SIGNALS), when the scheduler ends the job soon, and after
    request_stop(). The first call begins to listen for the signals, except for those that the program handles itself.
    """
    return _core.should_stop(process_set._check_id())


def request_stop(reason=None):
    """Asks all ranks to stop. Returns at once. The first such request of any rank counts."""
    _core.request_stop(reason)


def stop_reason():
    """Returns why should_stop() is true, or will soon be true, as a text for people. None as long as nobody has asked
    to stop."""
    found = _core.stop_reason()
    return found[1] if found else None


def stop_cause():
    """Returns the cause for which all ranks stop: "program" (request_stop), "warned" (a signal such as SIGUSR1),
    "terminated" (SIGTERM), "time" (the scheduler will end the job), or None."""
    found = _core.stop_reason()
    return found[0] if found else None


def should_stop_after_barrier(process_set=global_process_set):
    """should_stop() for frameworks whose own threads wait for a step's operations. The ranks agree at a barrier,
    which costs a message."""
    set_id = process_set._check_id()
    stops = _core.should_stop(set_id)  # the first call begins to listen
    _ops.barrier(set_id)
    return _core.should_stop(set_id) or stops


def how_to_end(step, restored_step):
    """Returns the exit code of a training that was saved at `step` since all ranks are to stop, and a text for people.

    restored_step: the step from which this run went on, or None.
    """
    if stop_cause() == "program":  # the program itself asked to stop, and decides how it ends
        return 0, "saved"
    if stop_cause() == "terminated":  # the sender of SIGTERM decides whether the job runs again
        return 128 + signal.SIGTERM, "saved"
    if restored_step is not None and step <= restored_step:
        return 1, (f"saved, but no step was done: this run began with step {restored_step}. Another one would not get "
                   "further, so the job is not put back into the queue")
    return AGAIN, f"saved; exit code {AGAIN} asks for another run of the job"


def end_undisturbed(code):
    """Ends the process with this code after its state was saved, and ignores SIGTERM meanwhile. A launcher that sees
    one rank end with a code (srun --kill-on-bad-exit) ends the other ranks by SIGTERM. Their exit code, that of
    SIGTERM, would then count for the job."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(code)
    try:  # sys.exit() would end this thread alone, and the process later, with another code
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
