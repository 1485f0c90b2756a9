"""Elastic training with torch: `hvd.elastic`."""
import functools

from horovod.common.elastic import begin_again, check_members, run_fn
from horovod.torch._job import _basics
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "TorchState", "run"]


def run(func):
    """Decorates a function of a state that trains:

        @hvd.elastic.run
        def train(state):
            for state.epoch in range(state.epoch, epochs):
                …
                state.commit()

    After a HorovodInternalError the ranks begin again, all with rank 0's last commit, and call the function anew.
    """
    elastic = run_fn(func, functools.partial(begin_again, _basics))

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        check_members(_basics)
        return elastic(*args, **kwargs)

    return wrapper
