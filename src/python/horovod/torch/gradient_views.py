"""Gradients that live in memory shared by the ranks of a node, where they are reduced without being packed."""
import ctypes

import torch

from horovod import _core, _ops

_ALIGNMENT_BYTES = 64


class GradientViews:
    """One block of shared memory with a place for each parameter's gradient.

    Collective over the ranks of a node: all make it for the same parameters. A gradient that the program replaced
    (zero_grad(set_to_none=True), p.grad = …) is communicated from where it lies, like any other. The memory lasts as long
    as any tensor that lies in it, also after hvd.shutdown().
    """

    def __init__(self, parameters):
        self._parameters = [parameter for parameter in parameters if parameter.is_cpu]
        places = []
        end = 0
        for parameter in self._parameters:
            places.append(end)
            bytes_needed = parameter.numel() * parameter.element_size()
            end += -(-bytes_needed // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        block = _shared_block(max(end, _ALIGNMENT_BYTES))
        self._views = {}
        for parameter, place in zip(self._parameters, places):
            flat = block[place:place + parameter.numel() * parameter.element_size()].view(parameter.dtype)
            view = flat.view(parameter.shape)
            view.zero_() if parameter.grad is None else view.copy_(parameter.grad)
            parameter.grad = view
            self._views[parameter] = view

    def __contains__(self, parameter):
        return parameter in self._views

    def put_back_zeroed(self):
        """Makes the views the gradients again, with zeros."""
        for parameter, view in self._views.items():
            view.zero_()
            parameter.grad = view


def _shared_block(size):
    """So many bytes of shared memory as a tensor. Collective."""
    # Here a rank waits for the others with an ear for signals; after that they come at once.
    _ops.barrier()
    address, owner = _core.shared_allocate(size)
    memory = (ctypes.c_uint8 * size).from_address(address)
    memory.owner = owner  # the tensor's storage holds the array
    return torch.frombuffer(memory, dtype=torch.uint8)
