"""The gradients of one optimizer's parameters, and their rounds from one step to the next.

1. backward() accumulates a gradient. The hook of the gradient counts down from backward_passes_per_step. At zero it
   submits the gradient for a reduction in place, while backward() goes on (gradient).
2. Before the step, close() submits the remaining gradients. The ranks tell each other which gradients they have
   (gradient_presence). If a rank lacks a gradient that others have, it takes part with zeros.
3. collect() waits for all of them. Code that uses a gradient earlier waits for this gradient (gradients_in_flight).
"""
import itertools
import threading
import time
import warnings

import torch

from horovod import _ops
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.dropped_batches import DroppedBatches
from horovod.torch.followed_parameters import FollowedParameters
from horovod.torch.gradient_presence import DENSE, NONE, Presence
from horovod.torch.gradient_reduction import give_memory_of_their_own
from horovod.torch.gradients_in_flight import abandoned
from horovod.torch.mpi_ops import Average, Sum

# A rank that uses a gradient in flight waits this long. Then it assumes that another rank lacks the gradient, and tells
# the others what it has, so that the other rank can take part.
PATIENCE_SECONDS = 10.0


_numbers = itertools.count()


class Settings:
    """How gradients are communicated."""

    def __init__(self, compression, op, predivide_factor, sparse_as_dense, process_set, passes):
        self.compression, self.op, self.sparse_as_dense = compression, op, sparse_as_dense
        self.process_set, self.passes, self.predivide_factor = process_set, passes, predivide_factor
        factor = predivide_factor if op == Average else 1.0
        self.prescale, self.postscale = 1.0 / factor, float(factor)


class Gradients(FollowedParameters, DroppedBatches):
    def __init__(self, settings, names):
        self.settings = settings
        self.names = names
        self._has_names = False  # the ranks match gradients by names
        self.views = None
        self.is_plain = False  # gradients are reduced in their own memory
        self.is_synchronized = False  # synchronize() was called, and no gradient has been computed since
        self.is_ahead = False  # the gradient scaler has called synchronize(), not the program
        self.hold_results = False  # since the last round the program has not called zero_grad()
        self.is_closed = False  # this rank has told the others which gradients it has in this round
        self.submitted = 0
        self.steps = 0  # made by the optimizer since the last hvd.join()
        self._times_joined = _ops.times_joined
        self.backward_pass = None  # the last one that has called a hook
        self.kinds = bytearray()  # kinds of the submitted gradients, by place
        self._all = []
        self._groups = []
        self._parameters = []  # all parameters, in the order of the optimizer's groups
        self._unhooked = []
        # Gradients that this rank lacked when it closed the round. None before that, and once it knows which gradients
        # the other ranks have.
        self._lacking = None
        self._filled = []  # gradients that only other ranks have, with the kind that these have
        # How the program uses gradients before the step, when this rank or another one lacks some.
        self.was_used = False  # in this round, outside of a backward pass
        self.was_loaded = False  # in this round, the optimizer's state
        self.was_read = False  # likewise, also if this rank lacks nothing
        self.some_join_late = False  # a parameter has joined with a gradient, when others had been submitted
        self.comes_in_parts = False  # once more gradients came after such a use
        self._has_waited_in_vain = False
        self._keeps = False  # this rank has told the others that it steps by gradients that it has in this round
        self._drops = False  # the gradients of this round are dropped
        self._is_alerted = False  # another rank drops a batch, and has nothing of it here
        self._has_agreed = False  # all ranks know of which optimizers a batch is dropped, and that this is one of them
        self._last_round = None  # its number in the order of all rounds and new optimizers
        self.failures = []  # failures of gradients that were used early
        self.landing = threading.RLock()  # several threads may use and wait for the same gradient
        self._presence = Presence(None, 0, settings.process_set)
        _ops.to_begin_anew.add(self)
        self._number = next(_numbers)
        _ops.to_prepare_to_join[self._number] = self

    # ---- the end of the optimizer or of the job -----------------------------------------------------------------

    def let_go(self):
        """Called when the optimizer is deleted or wrapped again. A gradient in flight lands when it is used."""
        for gradient in self._all:
            gradient.unhook()
            gradient.leave_group()
        self.is_closed = True  # from now on nothing is told: on another rank these may not be done yet
        abandoned.add([gradient for gradient in self._all if gradient.tensor is not None] + [self._presence])
        self._all, self._groups, self._parameters, self._unhooked = [], [], [], []
        self.submitted = 0

    def begin_anew(self):
        """Runs after hvd.shutdown() and hvd.init(). Removes the gradients that were in flight, because they are only
        half reduced."""
        for gradient in self._all:
            gradient.lose()
            gradient.round_name = None
        self._filled = []
        self._find_names()  # also makes a new exchange of kinds, because the old one is lost
        self._end_round()
        self.steps = 0
        self.is_synchronized = self.is_ahead = False

    # ---- a round ------------------------------------------------------------------------------------------------

    def set_passes(self, passes):
        self.settings.passes = passes
        for gradient in self._all:
            gradient.left = passes

    @property
    def passes_done(self):
        """How many of several passes (backward_passes_per_step) have added to gradients that no step has used."""
        if self.settings.passes == 1:
            return 0
        return max((gradient.settings.passes - gradient.left for gradient in self._reducing
                    if gradient.parameter.grad is not None), default=0)

    @property
    def are_outstanding(self):
        """True if there are gradients whose results nobody has waited for, and which the program has not taken
        away."""
        return any(gradient.tensor is not None and not gradient.was_taken_away() for gradient in self._reducing)

    @property
    def _submitted(self):
        """The gradients that take part in the reductions of this round."""
        return (gradient for gradient in self._all if gradient.is_submitted)

    @property
    def _reducing(self):
        """The Gradients that reduce this optimizer's gradients. Those of shared parameters may be another one's."""
        return [gradient.reducing if gradient.is_shared else gradient for gradient in self._all]

    @property
    def are_own(self):
        """True if this rank has, or may have, gradients of its own that the step must not be made with."""
        return not self.is_synchronized and (not self.hold_results
                                             or any(gradient.is_submitted or gradient.kept_back
                                                    for gradient in self._reducing))

    def begin_round(self):
        """Called when the program has removed the gradients or set them to zero."""
        self.is_synchronized = self.hold_results = False
        if self.submitted:
            self.drop()
        elif self.settings.passes > 1:
            self._presence.forget()
            self._end_round()

    def note_load(self):
        """Called when the optimizer gets another state. Gradients that were computed before stay: step() uses them,
        and zero_grad() may remove them, in a program that goes back to an earlier state. Nobody waits for them here,
        because a rank without a batch has none to wait for."""
        if self.submitted > 0:
            self.was_loaded = True
        elif not self.is_synchronized:
            self.begin_round()

    def synchronize(self, param_groups):
        """Waits for the gradients of all ranks. Afterwards p.grad holds the result."""
        self.follow(param_groups)
        self.take_names()
        for each in self._that_reduce_shared_ones():
            each._drop_what_was_removed()
        self._drop_what_was_removed()
        self._complete()
        self.is_synchronized = True

    def _that_reduce_shared_ones(self):
        return dict.fromkeys(gradient.of_all for gradient in self._reducing if gradient.of_all is not self)

    def _complete(self, is_dropped=False):
        failures = []
        try:
            self.close(is_dropped)
        except HorovodInternalError as error:  # the other gradients are in flight, too: wait for them before raising
            failures.append(error)
        if (self._drops or self._is_alerted) and not is_dropped and not failures:  # only others have dropped the round
            self._drop_with_others(self._others_with_removed_ones())
            self._complete()
        else:
            self._collect(failures, self._drops)

    def note_use(self):
        """Runs before code uses a gradient in the middle of a round."""
        self.was_read = self.was_read or not _is_in_backward()

    def wait_for_others(self, gradient):
        """Runs before code uses a gradient in the middle of a round.

        A rank that lacks the gradient takes part only when it closes its round. Before that it must know which
        gradients this rank has.
        """
        if self.is_closed:
            return
        if self.submitted == len(self._all) or all(gradient.is_submitted for gradient in self._reducing):
            with self.landing:
                self._tell()
            return
        handles = gradient.handles()
        is_complete = not _is_in_backward()
        self.was_used = self.was_used or is_complete
        if self._has_waited_in_vain and is_complete and not self.comes_in_parts:
            if not all(map(_ops.poll, handles)):
                self.close()
            return
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not all(map(_ops.poll, handles)):
            if time.monotonic() > deadline:
                self._warn_of_the_wait(gradient)
                self.close()
                break
            time.sleep(0.0002)

    def complete_group(self, gradient):
        """Runs before code uses a gradient whose group waits for others. After the backward pass these do not come on
        this rank: it lacks them, or they are frozen."""
        if not _is_in_backward():
            with self.landing:
                self.was_used = True
                self.close()
        if not gradient.group.is_started:
            raise RuntimeError(
                f"The gradient of {gradient.name!r} is used before the other gradients of its group (groups=) are "
                "there, with which it is reduced. Call optimizer.synchronize() first.")

    def _warn_of_the_wait(self, gradient):
        if self._has_waited_in_vain:
            return
        self._has_waited_in_vain = True
        warnings.warn(f"The gradient of {gradient.name!r} was used before optimizer.step(). This rank has waited "
                      f"{PATIENCE_SECONDS:g} seconds for it, because another rank lacks it or is late. Call "
                      "optimizer.synchronize() before gradients are used, and step() within "
                      "optimizer.skip_synchronize(); it does not wait like that. From now on a use of a gradient after "
                      "backward() means that this rank has all gradients of the step.", stacklevel=2)

    def close(self, is_dropped=False):
        """Submits the gradients that exist and were not yet submitted. Takes part in those that only other ranks
        have."""
        self.begin_to_close(is_dropped)
        if self._lacking is not None:  # also needed if a signal's handler has interrupted an earlier call
            needs_news = self._lacking or is_dropped or self._has_agreed
            if not needs_news and self._is_reduced_before_others_tell():
                self._lacking = None
                return
            kinds = self._presence.hear()
            if self._presence.is_alert and not self._has_agreed:
                self._is_alerted = True
                return
            lacking, self._lacking = self._lacking, None
            self._compare_drops()
            if kinds != self.kinds:
                self._check_kinds(kinds)
            self._fill(lacking, kinds)

    def begin_to_close(self, is_dropped):
        """Tells the others which gradients this rank has, and does not wait for them."""
        if not self.is_closed:
            self.end_alerts()
        with self.landing:  # another thread may use a gradient and begin the same exchange
            if self.is_closed:
                self._drops |= is_dropped  # the program has used gradients, and now drops the batch
                return
            if self._presence.has_ended_with_a_drop():
                self._compare_drops()
                raise self.failures.pop()
            if not is_dropped:
                for gradient in self._all:
                    if gradient.is_shared:
                        gradient.take_over()
            self._lacking = self._submit_what_is_there(is_dropped)
            self._keeps, self._drops = not is_dropped and self.submitted > 0, is_dropped
            self._tell()
            self.is_closed = True

    def have_others_told(self):
        """True if close() need not wait for the others' news."""
        return _ops.poll(self._presence.handle)

    def _is_reduced_before_others_tell(self):
        """Waits for the gradients of a rank that lacks none, or for what the others tell. Without the others, ranks may
        step several optimizers in different orders."""
        gathering = [handle for gradient in self._all if gradient.gathering for handle in gradient.gathering]
        return _ops.done_before(self._handles() + gathering, self._presence.handle)

    def _handles(self):
        """The handles of all that is in flight, but those of sparse gradients."""
        handles = [gradient.handle for gradient in self._all if gradient.handle is not None]
        return handles + [group.handle for group in self._groups if group.handle is not None]

    def _submit_what_is_there(self, is_dropped):
        """Returns the gradients that this rank lacks. What is there in a round that is dropped belongs to the next
        one."""
        self.take_names()
        lacking, leftovers = [], []
        for gradient in self._all if self.submitted < len(self._all) else ():
            if not gradient.is_submitted:
                tensor = None if is_dropped else gradient.find()
                if tensor is None:
                    lacking.append(gradient)
                    self.kinds[gradient.place] = NONE
                else:
                    leftovers.append(gradient)
        give_memory_of_their_own(leftovers)
        for gradient in leftovers:
            gradient.start_leftover(gradient.find())
        if lacking and not self._presence.has_alerted:
            # An exchange of this round may have told that this rank has all gradients. Some were removed since.
            self._presence.forget()
        return lacking

    def _tell(self):
        self.end_alerts()
        if not self._presence.is_told:
            if self._times_joined != _ops.times_joined:  # ranks that had joined have made no steps
                self._times_joined, self.steps = _ops.times_joined, 0
            self._presence.tell(self.kinds, self.steps, self._keeps, self._drops)

    def _check_kinds(self, kinds):
        for gradient in self._all:
            own, found = self.kinds[gradient.place], kinds[gradient.place]
            if own not in (NONE, found) and not self.settings.sparse_as_dense:
                here = "dense" if own == DENSE else f"of {own - DENSE} sparse dimensions"
                raise ValueError(
                    f"The gradient of {gradient.name!r} is {here} here, and of {found - DENSE} sparse dimensions on "
                    "another rank: give modules the same sparse= on all ranks, or DistributedOptimizer "
                    "sparse_as_dense=True.")

    def _fill(self, lacking, kinds):
        for gradient in lacking:
            if not gradient.is_reducing:
                continue  # of a round that is dropped: another optimizer's gradient is not part of it
            kind = kinds[gradient.place]
            # The members of a group are reduced together, also those that no rank has.
            if kind != NONE or gradient.group is not None and gradient.group.is_in(kinds):
                gradient.start_with_nothing(kind or DENSE)
                self._filled.append((gradient, kind))

    def _collect(self, failures, is_dropped):
        try:
            _ops.synchronize_all(self._handles())
        except HorovodInternalError as error:
            failures.append(error)
        with self.landing:
            failures += self.failures
            if is_dropped:
                self._throw_away(failures)
            else:
                self._land(failures)
            self._check_steps(failures)
            self._end_round()
            for gradient in self._all:
                gradient.round_name = None
            self.hold_results = not is_dropped
            if not is_dropped:
                self.remember_results()
        self._last_round = next(_numbers)
        self._presence.forget_alert()
        if failures:
            raise failures[0]

    def _land(self, failures):
        filled = self._take_what_others_have()
        used_early = []
        for gradient in self._all:
            try:
                if gradient.tensor is not None:
                    gradient.take_result()
                elif gradient.is_done:
                    used_early.append(gradient)
            except (RuntimeError, ValueError) as error:  # raised after all others have landed
                failures.append(error)
        others_have_more = bool(used_early) and any(map(_is_more_than_zeros, filled))  # it waits for the device
        for gradient in used_early:
            try:
                gradient.check_early_use(others_have_more, self.some_join_late)
            except (RuntimeError, ValueError) as error:
                failures.append(error)

    def _throw_away(self, failures):
        self._filled = []
        for gradient in self._all:
            try:
                if gradient.tensor is not None:
                    gradient.arrive()
            except HorovodInternalError as error:
                failures.append(error)

    def _take_what_others_have(self):
        """Sets the gradients that only other ranks had computed, and returns them."""
        taken = []
        filled, self._filled = self._filled, []
        for gradient, kind in filled:
            if kind != NONE:
                gradient.parameter.grad = gradient.tensor
                taken.append(gradient.tensor)
            else:
                gradient.land()
        return taken

    def _end_round(self):
        for gradient in self._all:
            gradient.begin_round()
        for group in self._groups:
            group.begin_round()
        self.kinds[:] = bytes([DENSE]) * len(self.kinds)
        self._presence.is_told = False
        self.submitted = 0
        self.is_closed = self.was_used = self.was_read = self.was_loaded = self.some_join_late = False
        self._lacking = None
        self._keeps = self._drops = self._is_alerted = self._has_agreed = False
        self.failures = []

    def remember_results(self):
        """Called when all ranks have the same gradients: at the end of a round, and before a step, because the program
        may have clipped them since. If they are reduced again, they must not count once for each rank."""
        sums = self.settings.op == Sum
        for gradient in self._all:
            if sums or gradient.is_shared:
                gradient.remember_result()


def _is_more_than_zeros(gradient):
    """False if the program does not miss the gradient in a norm: it is left of earlier steps on other ranks."""
    return gradient.layout != torch.strided or bool(gradient.any())


def _is_in_backward():
    """True in a hook that a backward pass calls. More gradients may follow there. True if this torch cannot tell."""
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is None or task() != -1
