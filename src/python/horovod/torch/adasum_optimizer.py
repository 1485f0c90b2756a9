"""The optimizer with op=hvd.Adasum. Each rank steps by its own gradients. Then Adasum combines the moves of all
ranks' parameters: it adds orthogonal moves and averages parallel ones. The program's hooks that run after a step
(register_step_post_hook) find the combined parameters."""
import contextlib
import weakref

import torch
from torch.nn.parameter import is_lazy

from horovod import _ops
from horovod.torch._tensors import ByTensor
from horovod.torch.gradient import on_gradient
from horovod.torch.mpi_ops import Adasum, Max, allreduce_, allreduce_async_


class _DistributedAdasumOptimizer:
    """The methods that replace those of optimizer._DistributedOptimizer. No gradient is communicated."""

    _combines_steps = True

    def synchronize(self):
        """Does nothing: before step() no communication has begun."""

    def skip_synchronize(self):
        raise AssertionError("skip_synchronize() is for optimizers that average gradients: with op=hvd.Adasum the "
                             "changes of a step are combined, so gradients may be changed before step() as they are")

    def step(self, closure=None, *args, **kwargs):
        self._opt_called = True  # learning rate schedulers look for this
        distributed = self._distributed
        distributed.shown.take_back()
        self._listen()
        parameters = [(parameter, distributed.names.find(parameter))
                      for group in self.param_groups for parameter in group["params"]
                      if (parameter.requires_grad or parameter.grad is not None) and not is_lazy(parameter)]
        move = _Move(parameters, distributed)
        with _before_post_hooks_of(self, move.combine):
            result = self._step_of_its_own(closure, *args, **kwargs)
        move.combine()
        return result

    step.hooked = True
    step._wrapped_by_lr_sched = True

    def zero_grad(self, *args, **kwargs):
        distributed = self._distributed
        distributed.shown.take_back()
        if distributed.passes.are_there:
            raise AssertionError("optimizer.zero_grad() was called after loss.backward() but before optimizer.step(): "
                                 "what the backward pass has computed would be lost")
        self._wrapped_class.zero_grad(self, *args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        self._distributed.passes.are_there = False
        return self._wrapped_class.load_state_dict(self, *args, **kwargs)

    def _listen(self):
        """Watches for backward passes, also of parameters that were added."""
        distributed = self._distributed
        if distributed.passes is None:
            distributed.passes = _Passes()
            distributed.let_go = distributed.passes.let_go
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad and not is_lazy(parameter):
                    distributed.passes.listen_to(parameter)

    def _agree_about_infinities(self, found):
        """For a gradient scaler: replaces what it found on this rank, by device, by what all ranks found. The scaler
        finds nothing where a rank has no gradients."""
        greatest = max((value.item() for value in found.values()), default=0.0)
        told = torch.tensor([greatest, bool(found)], dtype=torch.float32, device="cpu")
        allreduce_(told, None, self._distributed.names.of("infinities"), Max)
        greatest, is_any = told
        if is_any and not found:
            found[torch.device("cpu")] = torch.zeros((), device="cpu")
        for value in found.values():
            value.fill_(greatest)


class _Passes:
    """Tells whether a backward pass has happened since the last step."""

    def __init__(self):
        self.are_there = False
        self._hooks = ByTensor()  # parameter -> its hook

    def listen_to(self, parameter):
        if parameter not in self._hooks:
            self._hooks[parameter] = on_gradient(parameter, weakref.ref(self))

    def has_accumulated(self, _):
        self.are_there = True

    def let_go(self):
        for hook in self._hooks.values():
            hook.remove()
        self._hooks = ByTensor()


class _Move:
    """How far a step moves the parameters on this rank."""

    def __init__(self, parameters, distributed):
        self._parameters = parameters  # with their names
        self._starts = [parameter.detach().clone() for parameter, _ in parameters]
        self._distributed = distributed
        self._is_combined = False

    @torch.no_grad()
    def combine(self):
        """Moves every parameter by the combination of all ranks' moves, also if this rank has no gradient of it. A
        second call does nothing."""
        if self._is_combined:
            return
        self._is_combined = True
        compression = self._distributed.settings.compression
        moves = []
        for (parameter, name), start in zip(self._parameters, self._starts):
            move, context = compression.compress((parameter - start).contiguous())
            real = torch.view_as_real(move) if move.is_complex() else move
            moves.append((move, context, allreduce_async_(real, None, name, Adasum)))
        _ops.synchronize_all([handle for _, _, handle in moves])
        for (parameter, _), start, (move, context, _) in zip(self._parameters, self._starts, moves):
            parameter.copy_(start + compression.decompress(move, context))
        self._distributed.passes.are_there = False


@contextlib.contextmanager
def _before_post_hooks_of(optimizer, combine):
    """A context in which torch calls combine() before the hooks that run after the optimizer's step.

    torch puts such hooks around the step of a class when it makes the first object of exactly this class. A step that
    calls the step of a base class may therefore run them twice, on some ranks only. What runs last is the step itself.
    """
    if not hasattr(optimizer, "register_step_post_hook"):  # before torch 2.0
        yield
        return
    depth = 0

    def enter(*_):
        nonlocal depth
        depth += 1

    def leave(*_):
        nonlocal depth
        depth -= 1
        if depth == 0:
            combine()

    before, after = optimizer.register_step_pre_hook(enter), optimizer.register_step_post_hook(leave)
    optimizer._optimizer_step_post_hooks.move_to_end(after.id, last=False)
    try:
        yield
    finally:
        before.remove()
        after.remove()
