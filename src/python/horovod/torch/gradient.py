"""One parameter's gradient: counts backward passes, has it reduced (gradient_reduction), and sees what the program does
with it."""
import weakref

import torch

from horovod import _core, _ops
from horovod.torch import shared_parameters
from horovod.torch._tensors import gradient_dtype, is_part_of_more, version_of
from horovod.torch.gradient_presence import DENSE
from horovod.torch.gradient_reduction import Reduction
from horovod.torch.gradients_in_flight import InFlight, in_flight_with
from horovod.torch.mpi_ops import Sum

_number_of_backward_pass = getattr(torch._C, "_current_graph_task_id", lambda: None)  # not before torch 2.1


class Gradient(Reduction, shared_parameters.OfSeveralOptimizers):
    __slots__ = ("parameter", "name", "place", "of_all", "settings", "group", "hook", "left", "tensor", "version",
                 "handle", "gathering", "store", "is_done", "seen", "given", "used_version", "kept_back", "result",
                 "result_version", "sharers", "is_shared", "round_name", "__weakref__")

    def __init__(self, parameter, name, of_all):
        self.parameter, self.name, self.of_all, self.settings = parameter, name, of_all, of_all.settings
        self.place = 0  # place of the parameter among the optimizer's parameters sorted by name; equal on all ranks
        self.group = None
        self.hook = None
        self.left = self.settings.passes  # backward passes until the gradient is submitted
        self.tensor = None  # the tensor that is in flight or waits for its group
        self.version = 0  # the version counter of `tensor` when it was submitted
        self.handle = None
        self.gathering = ()  # the handles of a sparse gradient
        self.store = None  # copies the result into the tensor if that was not reduced in place
        self.is_done = False  # the result arrived before the end of the round
        self.seen = None  # weak: the tensor that the last backward pass added to, or that was used early
        self.given = None  # weak: the tensor that another optimizer has submitted
        self.used_version = 0  # the version counter of `seen` at that time
        self.kept_back = 0  # backward passes that are summed on this rank and not yet submitted
        self.result = None  # weak: the tensor with the last round's result; under Sum, and for shared parameters
        self.result_version = 0
        self.sharers = ()  # the Gradients that all optimizers have for the parameter; the last one reduces
        self.is_shared = False  # there are several of them
        self.round_name = None  # the name under which it is reduced in this round, if that is not its own

    # ---- the backward pass --------------------------------------------------------------------------------------

    def hook_up(self):
        """Gets has_accumulated() called after every backward pass."""
        self.hook = on_gradient(self.parameter, weakref.ref(self))
        shared_parameters.join(self)

    def unhook(self):
        if self.hook is not None:
            self.hook.remove()
            self.hook = None
            shared_parameters.leave(self)

    def has_accumulated(self, tensor):
        """The hook. Called when a backward pass has added to the parameter's gradient."""
        if tensor is None:
            return  # an earlier hook of the program has removed the gradient
        if _ops.is_forked and not _core.is_initialized():
            return  # a child that the rank has forked computes gradients of its own
        of_all = self.of_all
        if self.is_shared and not self.is_reducing:
            of_all.is_synchronized = False
            return  # another optimizer reduces it
        if type(tensor) is torch.Tensor and is_part_of_more(tensor):
            # as of parameters that the model concatenates: they would be reduced into each other's memory, and a change
            # of one would look like one of the others
            tensor = self.parameter.grad = tensor.clone()
        number = _number_of_backward_pass()
        if number != of_all.backward_pass:
            of_all.begin_backward_pass(number, self)
        if self.left <= 0 or self.settings.passes > 1:
            self._count_anew_if_taken_away(tensor)
        if self.result is not None and self.settings.op == Sum:
            self._check_that_no_sum_is_counted_again(tensor)
        self.left -= 1
        of_all.is_synchronized = False
        if of_all.was_used:
            of_all.comes_in_parts = True
        if self.left == 0:
            if of_all.is_closed:
                raise RuntimeError(
                    f"The gradient of {self.name!r} came after others of the same step had been used. Other ranks "
                    "lacked some of those. Therefore this rank had already reported which gradients it has, and this "
                    "one was not among them. Call optimizer.synchronize() before gradients are used, and step() within "
                    "optimizer.skip_synchronize(); to drop a batch, set its gradients to None.")
            self.start(tensor)
        else:
            self.kept_back += 1
            self.used_version = version_of(tensor)

    def _count_anew_if_taken_away(self, tensor):
        """Begins a new round if the program has removed the gradient or set it to zero, because it then does not want
        that gradient any more."""
        seen = self.tensor if self.tensor is not None else self.seen and self.seen()
        # The backward pass itself has changed the tensor once. A further change means that the program has changed the
        # average, for example to zero. All ranks have the same average and change it alike. Therefore a new round may
        # average it again.
        was_changed = self.is_done and tensor._version > self.used_version + 1
        is_new = seen is not tensor or (was_changed and self.settings.op != Sum)
        if self.left < self.settings.passes and is_new:
            self.discard()
        elif self.left <= 0 and was_changed:
            raise AssertionError(
                f"The gradient of {self.name!r} was changed in place after a backward pass of this step, and another "
                "pass has added to it: with op=hvd.Sum it may still hold the sum of all ranks. To drop a batch, set "
                "its gradients to None (zero_grad(set_to_none=True)), or use op=hvd.Average.")
        elif self.left <= 0:
            raise AssertionError(
                f"The gradient of {self.name!r} was computed more than backward_passes_per_step "
                f"(={self.settings.passes}) times before a call to step(). Increase backward_passes_per_step to "
                "accumulate gradients locally. Modules that are used more than once within torch.utils.checkpoint need "
                "use_reentrant=False.")
        self.seen = weakref.ref(tensor)

    def _check_that_no_sum_is_counted_again(self, tensor):
        if self.result() is tensor and version_of(tensor) == self.result_version + 1:
            raise RuntimeError(
                f"The gradient of {self.name!r} still holds the sum of the last step, and a backward pass has added to "
                f"it: with op=hvd.Sum that would be counted {self.settings.process_set.size()} times. Call "
                "optimizer.zero_grad() before backward(), or use op=hvd.Average.")

    # ---- the end of the round, if no backward pass has submitted it ---------------------------------------------

    def find(self):
        """Returns the gradient that the program has set, or that an earlier round left, or None. The optimizer steps
        by it, also if the parameter is frozen: a program may compute gradients without autograd."""
        return self.parameter.grad

    def start_leftover(self, tensor):
        """Starts a gradient that no backward pass of this round has submitted: the program has set it, or an earlier
        round left it."""
        is_sum = self.settings.op == Sum and self._is_result(tensor)
        was_changed = self.kept_back > 0 and version_of(tensor) != self.used_version and not tensor._is_view()
        if was_changed and self.seen() is tensor:
            raise RuntimeError(
                f"The gradient of {self.name!r} was changed after {self.kept_back} of several backward passes "
                "(backward_passes_per_step), when it was not averaged yet: by a norm of this rank's own, for one. Call "
                "optimizer.synchronize() before gradients are changed, and step() within optimizer.skip_synchronize(); "
                "or optimizer.set_backward_passes_per_step() before the backward pass of a step of fewer passes.")
        if is_sum and type(tensor) is not InFlight:
            tensor.div_(self.settings.process_set.size())  # each rank has the sum: divide it
        self.start(tensor)

    def start_with_nothing(self, kind):
        """Takes part in the reduction of a gradient that only other ranks have."""
        parameter = self.parameter
        if kind == DENSE:
            self.start(torch.zeros_like(parameter, dtype=gradient_dtype(parameter), requires_grad=False))
            return
        dims = kind - DENSE
        indices = torch.empty((dims, 0), dtype=torch.int64, device=parameter.device)
        values = torch.empty((0, *parameter.shape[dims:]), dtype=gradient_dtype(parameter), device=parameter.device)
        self.start(torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False))

    # ---- what the program has done to it ------------------------------------------------------------------------

    def check_early_use(self, others_have_more, some_join_late):
        """Runs at the end of the round, for a gradient whose result the program used before that. Raises RuntimeError
        if the program has changed or replaced the gradient although other ranks have gradients that this rank lacks, or
        although it had gradients of its own of parameters that joined later."""
        tensor = self.parameter.grad
        if type(tensor) is InFlight:  # another optimizer has this gradient in flight
            in_flight_with(tensor).settle()
        elif (others_have_more or some_join_late) and self.seen is not None and (
                tensor is not self.seen() or version_of(tensor) != self.used_version):
            when = "when this rank did not have gradients of all parameters that other ranks have"
            if not others_have_more:
                when = "when the gradients of parameters that have joined the optimizer since were not averaged yet"
            raise RuntimeError(
                f"The gradient of {self.name!r} was changed before step(), {when}: a norm over them would not be the "
                "same on all ranks. Call optimizer.synchronize() before gradients are changed, and step() within "
                "optimizer.skip_synchronize().")

    def was_taken_away(self):
        """True if the program has removed the gradient that was submitted in this round, or has replaced it."""
        found = self.parameter.grad
        if found is None:
            return True
        if self.tensor is not None:
            return found is not self.tensor
        seen = self.seen or self.given
        return seen is not None and found is not seen()

    def was_zeroed(self, is_added_to):
        """True if the program has set the result to zero in place. is_added_to: a backward pass has added to it since,
        so that only its version tells."""
        found = self.parameter.grad
        if not self.is_done or self.seen is None or found is not self.seen():
            return False
        if is_added_to:
            return version_of(found) > self.used_version + 1
        return version_of(found) != self.used_version and not found.any()  # a backward pass may have computed zeros

    def was_zeroed_early(self):
        """True if the program has set the sum of this rank's passes so far to zero in place."""
        found = self.parameter.grad
        return found is not None and self.seen is not None and found is self.seen() \
            and version_of(found) != self.used_version and not found.any()

    # ---- the next round -----------------------------------------------------------------------------------------

    def begin_round(self):
        self.left = self.settings.passes
        self.is_done = False
        self.kept_back = 0

    def discard(self):
        """Called when the program does not want the gradient of this round. The count of passes begins anew."""
        self.left = self.settings.passes
        self.kept_back = 0
        if self.is_submitted:
            self.of_all.submitted -= 1
            if self.tensor is not None:
                self.settle()
            self.is_done = False
            if self.group is not None:
                self.group.pass_over_no_longer()

    def let_go(self):
        """Called when the optimizer does not step this parameter any more."""
        self.unhook()
        if self.group is not None:
            self.group.leave(self)
        self.discard()

    def leave_group(self):
        """Called when the optimizer no longer exists. Gives up a gradient that waits for others of its group."""
        if self.group is not None and not self.group.is_started:
            if self.tensor is not None:
                self.give_up()
            self.group = None

    # ---- the last round's result --------------------------------------------------------------------------------

    def remember_result(self):
        tensor = self.parameter.grad
        self.result = None if tensor is None else weakref.ref(tensor)
        self.result_version = 0 if tensor is None else version_of(tensor)

    def _is_result(self, tensor):
        """True if the tensor has the last round's result."""
        return self.result is not None and self.result() is tensor and version_of(tensor) == self.result_version


def on_gradient(parameter, reference):
    """Whenever a backward pass has added to the gradient of `parameter`, calls has_accumulated() of the Gradient.

    The reference is weak, because parameters live longer than optimizers.
    """
    def call(parameter):
        gradient = reference()
        if gradient is not None:
            gradient.has_accumulated(parameter.grad)

    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return parameter.register_post_accumulate_grad_hook(call)
    # Before torch 2.1: hooks the node of the graph that accumulates the gradient. The hook keeps this node alive.
    node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    weak = weakref.ref(parameter)
    handle = node.register_hook(lambda *_: call(weak()))
    handle.node = node
    return handle
