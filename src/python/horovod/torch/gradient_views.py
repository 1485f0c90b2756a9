"""Gradients that live in memory shared by the ranks of a node, where they are reduced without being packed."""
import ctypes

import torch

from horovod import _core, _ops

_ALIGNMENT_BYTES = 64


class GradientViews:
    """One block of shared memory with a place for each parameter's gradient.

    Collective over the ranks of a node: all make it for the same parameters. Autograd leaves a gradient where it computed
    it, which costs nothing, and it is moved to its place when it is submitted: a copy. To keep it there would cost zeroing
    and an addition. The memory lasts as long as any tensor that lies in it, also after hvd.shutdown().
    """

    def __init__(self, parameters):
        parameters = [parameter for parameter in parameters if parameter.is_cpu]
        places = []
        end = 0
        for parameter in parameters:
            places.append(end)
            bytes_needed = parameter.numel() * parameter.element_size()
            end += -(-bytes_needed // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        block = _shared_block(max(end, _ALIGNMENT_BYTES))
        self._views = {}
        for parameter, place in zip(parameters, places):
            # Each is a tensor of its own: views of one would share a version counter.
            flat = torch.frombuffer(block, dtype=parameter.dtype, count=parameter.numel(), offset=place) \
                if parameter.numel() else torch.empty(0, dtype=parameter.dtype)
            self._views[parameter] = flat.view(parameter.shape).detach()

    def __contains__(self, parameter):
        return parameter in self._views

    def take(self, parameter, gradient):
        """The gradient in its place."""
        view = self._views[parameter]
        if view is not gradient:
            with torch.no_grad():
                view.copy_(gradient)
        return view


def _shared_block(size):
    """So many bytes of shared memory, as an array of which tensors are made. Collective."""
    # Here a rank waits for the others with an ear for signals; after that they come at once.
    _ops.barrier()
    address, owner = _core.shared_allocate(size)
    memory = (ctypes.c_uint8 * size).from_address(address)
    memory.owner = owner  # a tensor's storage holds the array
    return memory
