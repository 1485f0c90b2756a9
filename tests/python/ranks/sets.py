"""Process sets for tests: made by all ranks, and removed when the test is over."""
import contextlib
import os

import horovod.torch as hvd


@contextlib.contextmanager
def in_a_job_of_its_own(process_sets="dynamic", **environment):
    """Horovod begins anew with these sets and settings, and afterwards without them."""
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
    """The sets of these ranks."""
    with in_a_job_of_its_own():
        yield [hvd.add_process_set(ranks) for ranks in lists]


def halves(size):
    """The even and the odd ranks."""
    return [list(range(size))[::2], list(range(size))[1::2]]


def own(sets):
    """Of disjoint sets the one of this rank."""
    return next(each for each in sets if each.included())
