"""The optimizer with op=hvd.Adasum. Each rank makes a step with its own gradients. Adasum then combines the moves of
the ranks' parameters: it adds what is orthogonal and averages what is parallel."""
import weakref

import torch
from torch.nn.parameter import is_lazy

from horovod import _ops
from horovod.torch.gradient import on_gradient
from horovod.torch.mpi_ops import Adasum, Max, allreduce_, allreduce_async_


class _DistributedAdasumOptimizer:
    """The methods that differ from those of optimizer._DistributedOptimizer. No gradient is communicated."""

    _combines_steps = True

    def synchronize(self):
        """Does nothing: nothing is under way before step()."""

    def skip_synchronize(self):
        raise AssertionError("skip_synchronize() is for optimizers that average gradients: with op=hvd.Adasum the "
                             "changes of a step are combined, so gradients may be changed before step() as they are")

    def step(self, closure=None, *args, **kwargs):
        self._opt_called = True  # schedulers look for this
        distributed = self._distributed
        distributed.take_back_shown_gradients()
        self._listen()
        parameters = [(parameter, distributed.names.find(parameter, i, j))
                      for i, group in enumerate(self.param_groups) for j, parameter in enumerate(group["params"])
                      if parameter.requires_grad and not is_lazy(parameter)]
        starts = [parameter.detach().clone() for parameter, _ in parameters]
        result = self._step_of_its_own(closure, *args, **kwargs)
        with torch.no_grad():
            _combine(parameters, starts, distributed.settings.compression)
        distributed.passes.are_there = False
        return result

    step.hooked = True
    step._wrapped_by_lr_sched = True

    def zero_grad(self, *args, **kwargs):
        distributed = self._distributed
        distributed.take_back_shown_gradients()
        if distributed.passes.are_there:
            raise AssertionError("optimizer.zero_grad() was called after loss.backward() but before optimizer.step(): "
                                 "what the backward pass has computed would be lost")
        self._wrapped_class.zero_grad(self, *args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        self._distributed.passes.are_there = False
        return self._wrapped_class.load_state_dict(self, *args, **kwargs)

    def _listen(self):
        """Counts backward passes; also those of parameters that have been added."""
        distributed = self._distributed
        if distributed.passes is None:
            distributed.passes = _Passes()
            distributed.let_go = distributed.passes.let_go
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad and not is_lazy(parameter):
                    distributed.passes.listen_to(parameter)

    def _agree_about_infinities(self, found):
        """For a gradient scaler. Its findings are tensors of one number; this gives all ranks the greatest value."""
        greatest = max((value.item() for value in found), default=0.0)
        name = self._distributed.names.of("infinities")
        greatest = allreduce_(torch.tensor([greatest], device="cpu"), None, name, Max).item()
        for value in found:
            value.fill_(greatest)


class _Passes:
    """True if a backward pass has come since the last step."""

    def __init__(self):
        self.are_there = False
        self._hooks = {}  # id of a parameter -> its hook

    def listen_to(self, parameter):
        if id(parameter) not in self._hooks:
            self._hooks[id(parameter)] = on_gradient(parameter, weakref.ref(self))

    def has_accumulated(self, _):
        self.are_there = True

    def let_go(self):
        for hook in self._hooks.values():
            hook.remove()
        self._hooks = {}


def _combine(parameters, starts, compression):
    """Moves every parameter by the combination of all ranks' moves, even if this rank has no gradient of it."""
    moves = []
    for (parameter, name), start in zip(parameters, starts):
        move, context = compression.compress((parameter - start).contiguous())
        real = torch.view_as_real(move) if move.is_complex() else move
        moves.append((move, context, allreduce_async_(real, None, name, Adasum)))
    _ops.synchronize_all([handle for _, _, handle in moves])
    for (parameter, _), start, (move, context, _) in zip(parameters, starts, moves):
        parameter.copy_(start + compression.decompress(move, context))
