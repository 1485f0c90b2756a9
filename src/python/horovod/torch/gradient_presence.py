"""Once per round the ranks tell each other for which parameters they have a gradient, and of which kind it is. They
also compare how many steps they have made."""
import torch

from horovod import _ops
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.mpi_ops import Max, allreduce_async_

NONE, DENSE = 0, 1  # a sparse gradient's kind is DENSE plus its number of sparse dimensions
# What a rank tells that drops a batch: it has gradients of this optimizer, or only of others (alert).
_ALERTS, _DROPS = 1, 2


class Presence:
    """One byte per parameter: the greatest kind of gradient that any rank has.

    With it, ranks may use different parameters. If a rank has no gradient but another rank has one, it takes part with
    zeros. A parameter that no rank used stays without a gradient, as in one process.

    A rank that has all gradients does not need to know the others' kinds: when its gradients are reduced, all ranks
    have taken part. Its exchange may go on until the next round.
    """

    def __init__(self, name, count, process_set):
        self._name, self._process_set = name, process_set
        # The kinds, whether some rank keeps or drops what it has, and the number of steps twice: the greatest and the
        # least over all ranks.
        self._told = bytearray(count + 4)
        self._tensor = torch.frombuffer(self._told, dtype=torch.uint8) if count else None
        self._handle = None
        self._heard_of_equal_steps = True
        self.are_steps_equal = True  # as of the last exchange but this one, of which all ranks know that it has ended
        self.is_told = False
        self.has_alerted = False  # this rank has, in the last exchange
        self.is_dropped_by_some_only = False  # a round that others have kept; the caller takes note, and resets it

    def tell(self, kinds, steps, keeps, drops):
        """Starts the exchange of this round. Waits for the end of the last one. keeps, drops: this rank steps by
        gradients that it has, or has removed some."""
        self._begin()
        self._told[:-4] = kinds
        self._told[-4:-2] = bytes([keeps, _DROPS if drops else 0])
        self._told[-2:] = bytes([steps % 256, 255 - steps % 256])
        self._start()

    def alert(self):
        """Tells the others that this rank drops a batch of which it has nothing here. Those that wait in this exchange
        get to know; tell() has to be called again, on all ranks, when they have agreed on what is dropped."""
        self._begin()
        self.has_alerted = True
        self._told[:] = bytes(len(self._told))
        self._told[-3] = _ALERTS
        self._start()

    def _begin(self):
        self.hear()
        self.are_steps_equal = self.are_steps_equal and self._heard_of_equal_steps
        self._heard_of_equal_steps = self.is_told = True
        self.has_alerted = False

    def _start(self):
        if self._tensor is not None:
            self._handle = allreduce_async_(self._tensor, None, self._name, Max, 1.0, 1.0, self._process_set)

    @property
    def handle(self):
        """The handle of the exchange, or 0 if none is under way."""
        return self._handle or 0

    def hear(self):
        """Returns the greatest kinds over all ranks. Waits until all ranks have told theirs."""
        if self._handle is not None:
            try:
                _ops.synchronize(self._handle)
            except HorovodInternalError:
                self._handle, self.is_told = None, False
                raise
            self._handle = None  # the handle is kept until the wait has ended, because a signal's handler may interrupt
                                 # the wait
            if self._told[-2] + self._told[-1] > 255:  # it is less if all ranks have alerted
                self._heard_of_equal_steps = False
            self.is_dropped_by_some_only |= self.is_dropped and self._told[-4] > 0
        return self._told[:-4]

    @property
    def is_dropped(self):
        """After hear(): True if some rank has removed the gradients of the round."""
        return self._told[-3] == _DROPS

    @property
    def is_alert(self):
        """After hear(): True if some rank has alerted, and none has removed gradients of the round."""
        return self._told[-3] == _ALERTS

    def end_alert(self):
        """Called on all ranks if some of them have alerted. Ends that exchange; ranks that have told something in it
        tell it again."""
        while self._tensor is not None:
            self.hear()
            if self.is_alert:
                break
            self.alert()
        self.is_told = False
        self.forget_alert()

    def forget_alert(self):
        self.has_alerted = False
        if self._handle is None:
            self._told[-3] = 0

    def has_ended_with_a_drop(self):
        """True if only some ranks have dropped the last round, of which this rank did not wait for the others' news."""
        if not self.is_told:
            self.hear()
        return self.is_dropped_by_some_only

    def forget(self):
        """Ends the exchange of this round, or waits for its end if it is under way. Another exchange may follow."""
        if self.is_told:
            self.hear()
            self.is_told = False

    def forget_steps(self):
        """Called when all ranks begin to count steps anew. The exchange that is under way still has the old numbers."""
        self.are_steps_equal = True
        try:
            self.hear()
        finally:
            self._heard_of_equal_steps = True

    def lands_if_done(self):
        """For abandon(). True if no exchange is under way."""
        if not _ops.poll(self.handle):
            return False
        try:
            self.hear()
        except HorovodInternalError:  # the optimizer no longer exists, so nobody has to be told
            pass
        return True

    def lose(self):
        """Called when no rank will finish the exchange."""
        self._handle = None
