"""Workers of data loaders, and the signals by which launchers and schedulers stop a training.

Many send such a signal to all processes of a rank. It is meant for the rank, which saves and ends; but a worker of
torch that is ended by a signal makes the rank fail. Children that a rank forks ignore these signals
(native/posix/processes/signal_catcher). A worker installs a handler of its own for SIGTERM after the fork, and one that
was not forked knows nothing of the rank's handlers. So workers ask for it, too, once their own handlers are installed.
"""
import multiprocessing

from horovod import _core


def shelter_workers():
    """Workers that start from now on ignore stop signals that do not come from the process that made them."""
    try:
        from torch.utils.data._utils import signal_handling
        set_own_handlers = signal_handling._set_worker_signal_handlers
    except (ImportError, AttributeError):  # a torch whose workers begin in another way
        return

    def set_handlers(*arguments):
        set_own_handlers(*arguments)
        maker = multiprocessing.parent_process()
        if maker is not None:
            _core.shelter_child(maker.pid)

    signal_handling._set_worker_signal_handlers = set_handlers
