"""What the ranks tell each other once per round: of which parameters they have a gradient, and of what kind."""
import torch

from horovod import _ops
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.mpi_ops import Max, allreduce_async_

NONE, DENSE = 0, 1  # a sparse gradient: DENSE and the number of its sparse dimensions


class Presence:
    """One byte per parameter: the greatest kind that any rank has.

    So ranks may use different parameters. A rank that lacks a gradient which another rank has takes part with zeros. A
    parameter that nobody used stays without a gradient, as in one process.
    """

    def __init__(self, name, count, process_set):
        self._name, self._process_set = name, process_set
        self._kinds = bytearray(count)
        self._tensor = torch.frombuffer(self._kinds, dtype=torch.uint8) if count else None
        self._handle = None
        self.is_told = False

    def tell(self, kinds):
        """Starts the exchange of this round."""
        self.is_told = True
        self._kinds[:] = kinds
        if self._tensor is not None:
            self._handle = allreduce_async_(self._tensor, None, self._name, Max, 1.0, 1.0, self._process_set)

    def hear(self):
        """The kinds that the ranks have together. Waits for all of them to tell."""
        if self._handle is not None:
            try:
                _ops.synchronize(self._handle)
            except HorovodInternalError:
                self._handle, self.is_told = None, False
                raise
            self._handle = None  # only now: a signal's handler may have ended the wait
        return self._kinds

    def forget(self):
        """The round is over, or is told of anew; what is under way is waited for."""
        if self.is_told:
            self.hear()
            self.is_told = False
