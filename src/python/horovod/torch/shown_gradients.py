"""Zero gradients of parameters that have no gradient yet, for scripts that expect some."""
import weakref

import torch

from horovod.torch._tensors import gradient_dtype
from horovod.torch.gradient import on_gradient


_all = weakref.WeakSet()


def take_back_those_of(parameters):
    """Called when another optimizer of these parameters is made: perhaps nobody steps the one that shows them."""
    ids = {id(parameter) for parameter in parameters}
    for shown in list(_all):
        shown.take_back_those_of(ids)


class ShownGradients:
    """The zero gradients that a fresh optimizer shows. The first backward pass, also one of another optimizer's
    parameters, or the first step takes them back, so that the program finds none that no backward pass has computed."""

    def __init__(self):
        self._shown = []  # parameter, gradient, hook
        _all.add(self)

    def show(self, parameter):
        parameter.grad = torch.zeros_like(parameter, dtype=gradient_dtype(parameter), requires_grad=False)
        self._shown.append((parameter, parameter.grad, on_gradient(parameter, weakref.ref(self))))

    def has_accumulated(self, tensor):
        """The hook. Called when a backward pass has added to the gradient of a parameter."""
        for shown in list(_all):
            shown.take_back(tensor)

    def take_back_those_of(self, ids):
        if any(id(parameter) in ids for parameter, _, _ in self._shown):
            self.take_back()

    def take_back(self, computed=None):
        """Removes the gradients, except the one that was computed and those to which the program has given values."""
        shown, self._shown = self._shown, []
        for parameter, gradient, hook in shown:
            hook.remove()
            # The version cannot tell: clipping and zero_grad(set_to_none=False) change it, and leave zeros.
            if parameter.grad is gradient and gradient is not computed and not gradient.any():
                parameter.grad = None
