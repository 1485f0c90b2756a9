"""The end of a job: when all ranks leave their loops, at the same step."""
from horovod import _core
from horovod.common.process_sets import global_process_set


def should_stop(process_set=global_process_set):
    """Whether the loop is to be left now; true at the same step on all ranks of the process set.

    Call it after each step, in the thread that waits for the step's operations: what the ranks have agreed on is
    compared with the last of those in that set. It costs no message and never waits.

    It becomes true after a signal to any rank (HOROVOD_STOP_SIGNALS), when the scheduler ends the job soon, and after
    request_stop(). The first call begins to listen for the signals; those that the program handles stay the program's.
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
