"""Batches that the program drops between backward() and step(): all ranks do so, or they get an error."""
import gc
import operator
import time
import zlib

import torch

from horovod import _ops
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.gradient_presence import DENSE
from horovod.torch.mpi_ops import Max, allreduce_

# All ranks mostly drop a batch at the same time. After this wait some of them may not have had the batch.
ALERT_AFTER_SECONDS = 0.05

# The process sets whose ranks got an error because only some of them have dropped a batch: the job's number and the id.
_refused_in = set()


class DroppedBatches:
    """A part of Gradients."""

    def begin_backward_pass(self, number, first):
        """Called by the first hook of a backward pass, that of the Gradient `first`. The program may have dropped what
        earlier passes have submitted."""
        self.backward_pass = number
        if self.submitted and all(gradient.was_taken_away() or self.was_read and gradient.was_zeroed(gradient is first)
                                  for gradient in self._submitted):
            self.drop()
        else:
            if self.settings.passes > 1 and not self.submitted:
                self._count_anew_if_zeroed(first)
            for other in self._others_with_removed_ones()[:1]:  # before this rank starts gradients of the next batch
                other.drop()

    def _count_anew_if_zeroed(self, first):
        """Begins to count passes anew if the program has set the sums of earlier passes to zero in place."""
        kept_back = [gradient for gradient in self._all if gradient.kept_back and gradient is not first]
        if kept_back and all(gradient.was_zeroed_early() for gradient in kept_back):
            for gradient in self._all:
                gradient.discard()

    def prepare_to_join(self):
        """Other ranks that have dropped the last batch, too, will notice it in their next backward pass."""
        self._drop_what_was_removed()

    def _drop_what_was_removed(self):
        if not self.is_closed and self._was_all_removed():
            self.drop()  # this rank has computed nothing since, but others may have

    def _was_all_removed(self):
        """True if the program has set all gradients of this round to None."""
        return self.submitted > 0 and all(gradient.parameter.grad is None for gradient in self._submitted)

    def drop(self):
        """Ends the round without a step, because the program has taken its gradients away. The other ranks may have
        other gradients in flight. Therefore the ranks tell each other what they have, and complete it.

        A batch may have gradients of several optimizers, on each rank of others. A rank without the batch waits with
        the optimizer that it steps first. Therefore this rank tells all ranks in each of its optimizers, and waits for
        their news in any of them."""
        dropped = sorted([self, *self._others_with_removed_ones()], key=operator.attrgetter("_number"))
        for each in dropped:
            each.begin_to_close(is_dropped=True)
        first = self._wait_for_news_in_any(dropped)
        try:
            first.close(is_dropped=True)
        except HorovodInternalError as error:
            first.failures.append(error)
        if first.failures:  # some rank has kept what others drop, or the job has ended
            for each in self._of_same_ranks():
                each._presence.is_told &= not each._presence.has_alerted
            first._complete(is_dropped=True)
        self._drop_with_others(dropped)

    def _wait_for_news_in_any(self, dropped):
        """Returns an optimizer in which all ranks have told. If they do not soon, alerts those that wait in others."""
        if len(self._of_same_ranks()) == 1:
            return self
        told, silent = list(dropped), None
        deadline = time.monotonic() + ALERT_AFTER_SECONDS
        while not (heard := [each for each in told if each.have_others_told()]):
            if silent is None and time.monotonic() > deadline:
                silent = self._others_with_nothing(dropped)
            for each in [each for each in silent or () if each.have_others_told()]:  # of the last round
                each._presence.alert()
                told.append(each)
                silent.remove(each)
            time.sleep(0.0002)
        return heard[0]

    def _others_with_nothing(self, dropped):
        """The optimizers that other ranks may step, and of which this rank has nothing in this round."""
        def find():
            return [each for each in self._of_same_ranks() if each not in dropped and each._has_nothing_of(self)]

        if find():
            gc.collect()  # an optimizer that nobody has any more may have ended already on other ranks
        return find()

    def _has_nothing_of(self, batch_of):
        is_out_of_use = self._last_round is not None and self._last_round < batch_of._number
        is_shared = any(gradient.is_shared for gradient in self._all)
        return bool(self._all) and not (self.submitted or self.is_closed or self._presence.is_told or is_out_of_use
                                        or is_shared)

    def _of_same_ranks(self):
        """The gradients of all optimizers of the process set, in the order in which all ranks have made them."""
        process_set = self.settings.process_set.process_set_id
        return [each for _, each in sorted(_ops.to_prepare_to_join.items())
                if each._has_names and each.settings.process_set.process_set_id == process_set]

    def _others_with_removed_ones(self):
        def find():
            return [each for each in self._of_same_ranks() if each is not self and each._was_all_removed()]

        if not find():
            return []
        gc.collect()  # an optimizer that nobody has any more may have ended already on other ranks
        return find()

    def _drop_with_others(self, own):
        """Runs when all ranks know that one of them has dropped a round. Completes the rounds of all optimizers that
        have gradients of the dropped batch on some rank; `own`: those that have some on this rank."""
        same = self._of_same_ranks()
        # which optimizers have some, and in which a rank has alerted; a rank may have more optimizers than another one
        news = torch.zeros(2, 256, dtype=torch.uint8, device="cpu")
        for each in own:
            news[0, each._place_among_dropped()] = 1
        for each in same:
            if each._presence.has_alerted:
                news[1, each._place_among_dropped()] = 1
        allreduce_(news, None, "dropped batch", Max, process_set=self.settings.process_set)
        dropped = [each for each in same if news[0, each._place_among_dropped()]]
        for each in same:
            if news[1, each._place_among_dropped()] and each not in dropped:
                each._open_again()
        for each in dropped:
            is_dropped = each in own or each._drops or each.submitted == 0 or each._was_all_removed()
            each._has_agreed, each._is_alerted, each._drops = True, False, is_dropped
            each._complete(is_dropped)

    def _open_again(self):
        """Runs on all ranks if some of them have alerted, and no rank has dropped gradients of this optimizer."""
        self._presence.end_alert()
        self.is_closed = self._keeps = self._drops = self._is_alerted = False
        self._lacking = None
        for gradient in self._all:
            if not gradient.is_submitted:
                self.kinds[gradient.place] = DENSE

    def end_alerts(self):
        """Runs before this rank tells again. After an error because only some ranks have dropped a batch, alerts may
        be under way that no other rank knows."""
        if self._place_of_refusals() in _refused_in:
            _refused_in.remove(self._place_of_refusals())
            self._drop_with_others([])

    def _place_of_refusals(self):
        return _ops.jobs, self.settings.process_set.process_set_id

    def _place_among_dropped(self):
        return zlib.crc32(self.names.of("batch").encode()) % 256

    def _compare_drops(self):
        """Runs when the others have told. A batch that only some ranks have dropped is an error on all. Those that need
        not wait for the others' news raise it one step later."""
        presence = self._presence
        if presence.is_dropped_by_some_only or presence.is_dropped and self._keeps:
            if presence.is_dropped_by_some_only:  # then it is an error on all ranks
                _refused_in.add(self._place_of_refusals())
            presence.is_dropped_by_some_only = False
            self.steps = 0  # the program will make the parameters equal again
            who = "This rank" if self._drops else "Another rank"
            self.failures.append(RuntimeError(
                f"{who} has dropped a batch after backward() (model.zero_grad(), or p.grad = None), with the optimizer "
                f"of {self._all[0].name!r}, and the gradients that other ranks have kept were reduced with those: some "
                "ranks have dropped a batch that others have kept or did not have. Let all ranks decide alike: by a "
                "value that hvd.allreduce gave, or by the gradients after backward(), which are averages. To drop a "
                "batch that some ranks do not have, call optimizer.synchronize() on all ranks before. The parameters "
                "differ now: broadcast them and the optimizer's state, or go back to a checkpoint."))
        elif presence.is_dropped and not self._drops:
            self._drops = True  # this rank had no gradients in the round that the others have dropped

    def _check_steps(self, failures):
        if not self._presence.are_steps_equal:
            try:
                self._presence.forget_steps()
            except HorovodInternalError as error:
                failures.append(error)
            failures.insert(0, RuntimeError(
                f"This rank has made {self.steps} steps with the optimizer of {self._all[0].name!r}, and another rank "
                "has made more or fewer: some ranks have left out a step, or have dropped a batch (model.zero_grad() "
                "after backward()) that others have kept. Their parameters differ now. Let all ranks decide alike: by "
                "a value that hvd.allreduce gave, or by the gradients after backward(), which are averages. Then "
                "broadcast the parameters and the optimizer's state, or go back to a checkpoint."))
            self.steps = 0  # on all ranks
