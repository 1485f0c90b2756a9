"""Process sets for tests. All ranks make them, and they are gone after the test."""
import contextlib
import os

import horovod.torch as hvd


@contextlib.contextmanager
def in_a_job_of_its_own(process_sets="dynamic", **environment):
    """Restarts Horovod with these process sets and settings. Restarts it without them afterwards."""
    hvd.barrier()
    hvd.shutdown()
    before = {name: os.environ.get(name) for name in (*environment, "HOROVOD_DYNAMIC_PROCESS_SETS")}
    os.environ.update(environment)
    hvd.init(process_sets=process_sets)
    try:
        yield
        hvd.barrier()
    finally:
        hvd.shutdown()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        hvd.init()


@contextlib.contextmanager
def process_sets(*lists):
    """Restarts Horovod and makes one process set for each list of ranks."""
    with in_a_job_of_its_own():
        yield [hvd.add_process_set(ranks) for ranks in lists]


def halves(size):
    """Two lists: the even ranks, and the odd ranks."""
    return [list(range(size))[::2], list(range(size))[1::2]]


def own(sets):
    """The one of several disjoint process sets that contains this rank."""
    return next(each for each in sets if each.included())
