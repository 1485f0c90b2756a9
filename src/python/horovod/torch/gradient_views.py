"""Gradients that live in memory shared by the ranks of a node, where they are reduced without being packed."""
import weakref

import torch

from horovod import _core, _ops

_ALIGNMENT_BYTES = 64
_in_use = weakref.WeakSet()  # all GradientViews of this runtime


class GradientViews:
    """One block of shared memory with a place for each parameter's gradient.

    Collective over the ranks of a node: all make it for the same parameters. A gradient that the program replaced
    (zero_grad(set_to_none=True), p.grad = …) is communicated from where it lies, like any other.
    """

    def __init__(self, parameters):
        self._parameters = [parameter for parameter in parameters if parameter.is_cpu]
        places = []
        end = 0
        for parameter in self._parameters:
            places.append(end)
            bytes_needed = parameter.numel() * parameter.element_size()
            end += -(-bytes_needed // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        self._memory = _core.shared_allocate(max(end, _ALIGNMENT_BYTES))
        block = _block_at(self._memory, max(end, _ALIGNMENT_BYTES))
        self._views = {}
        for parameter, place in zip(self._parameters, places):
            flat = block[place:place + parameter.numel() * parameter.element_size()].view(parameter.dtype)
            view = flat.view(parameter.shape)
            view.zero_() if parameter.grad is None else view.copy_(parameter.grad)
            parameter.grad = view
            self._views[parameter] = view
        _in_use.add(self)

    def __contains__(self, parameter):
        return parameter in self._views

    def put_back_zeroed(self):
        """Makes the views the gradients again, with zeros."""
        for parameter, view in self._views.items():
            view.zero_()
            parameter.grad = view

    def leave(self):
        """Moves the gradients into memory of their own; the shared memory is about to go."""
        for parameter, view in self._views.items():
            own = view.clone()
            if parameter.grad is view:
                parameter.grad = own
            view.set_(own)
        self._views = {}


def _block_at(address, size):
    """The bytes at an address as a tensor that does not own them."""
    import ctypes
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)


def _leave_all():
    for views in list(_in_use):
        views.leave()
    _in_use.clear()


_ops.before_shutdown.append(_leave_all)
