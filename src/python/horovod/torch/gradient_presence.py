"""Once per round the ranks tell each other of which parameters they have a gradient, and of what kind."""
import torch

from horovod import _ops
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.mpi_ops import Max, allreduce_async_

NONE, DENSE = 0, 1  # a sparse gradient is DENSE + the number of its sparse dimensions


class Presence:
    """Finds for each parameter the greatest kind that any rank has; a kind is one byte.

    So ranks may use different parameters. A rank that lacks a gradient which another rank has takes part with zeros. A
    parameter that no rank has used stays without a gradient, as in one process.
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
        """Returns the greatest kinds of all ranks. Waits until all ranks have told theirs."""
        if self._handle is not None:
            try:
                _ops.synchronize(self._handle)
            except HorovodInternalError:
                self._handle, self.is_told = None, False
                raise
            self._handle = None  # not before this point, because a signal's handler may end the wait
        return self._kinds

    def forget(self):
        """Called when the round is over, or when the kinds are told again. Waits for an exchange that is under way."""
        if self.is_told:
            self.hear()
            self.is_told = False
