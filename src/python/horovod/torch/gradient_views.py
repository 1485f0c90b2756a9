"""Gradients in memory that the ranks of a node share. There they are reduced without being packed."""
import ctypes
import weakref

import torch

from horovod import _core, _ops
from horovod.torch.mpi_ops import Min, allreduce_

_ALIGNMENT_BYTES = 64


class GradientViews:
    """One block of shared memory with a place for each parameter's gradient.

    Collective over the ranks of a node: all make a block for the same parameters. Autograd leaves a gradient where it
    computed it, which costs nothing. The gradient is moved to its place when it is submitted, which costs a copy. To
    keep it there would cost zeroing and an addition. The memory lasts as long as any tensor is in it, also after
    hvd.shutdown(). It is given back when no rank has such a tensor any more and the ranks make other blocks.

    The tensor that is the gradient stays the same object, but its memory changes. A gradient of an earlier step that
    the program keeps gets memory of its own. Gradients that are parts of a buffer of the program are not moved.
    """

    def __init__(self, parameters):
        parameters = [parameter for parameter in parameters if parameter.is_cpu]
        places = []
        end = 0
        for parameter in parameters:
            places.append(end)
            bytes_needed = parameter.numel() * parameter.element_size()
            end += -(-bytes_needed // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        block = _blocks.make(max(end, _ALIGNMENT_BYTES))
        self._views = {}
        for parameter, place in zip(parameters, places):
            # Each place is a tensor of its own, because views of one tensor would share a version counter.
            flat = torch.frombuffer(block, dtype=parameter.dtype, count=parameter.numel(), offset=place) \
                if parameter.numel() else torch.empty(0, dtype=parameter.dtype)
            self._views[parameter] = flat.view(parameter.shape).detach()
        self._taken_in = {}  # parameter -> the tensor whose memory is the parameter's view; weak

    def take_in(self, parameter, gradient):
        """Moves the gradient to its place, if it has one."""
        view = self._views.get(parameter)
        if view is None or gradient.layout != torch.strided or gradient._is_view() or gradient.dtype != view.dtype:
            return
        earlier = self._taken_in.get(parameter, lambda: None)()
        if earlier is gradient and gradient.data_ptr() == view.data_ptr():
            return
        if earlier is not None and earlier is not gradient and earlier.data_ptr() == view.data_ptr():
            earlier.data = earlier.detach().clone()
        view.copy_(gradient.detach())
        gradient.data = view
        self._taken_in[parameter] = weakref.ref(gradient)


class _Blocks:
    """The shared memory of this job, in the order in which all ranks have made it."""

    def __init__(self):
        self._blocks = []  # (address, weak reference to the array)
        _ops.to_begin_anew.add(self)

    def begin_anew(self):
        self._blocks = []

    def make(self, size):
        """Returns an array of `size` bytes, from which tensors are made. Collective."""
        self._free_what_nobody_has()
        address, owner = _core.shared_allocate(size)
        memory = (ctypes.c_uint8 * size).from_address(address)
        memory.owner = owner  # a tensor's storage keeps the array alive
        self._blocks.append((address, weakref.ref(memory)))
        return memory

    def _free_what_nobody_has(self):
        """Frees blocks that no rank uses. Only all ranks together can do this, and each rank collects its garbage at
        another time.

        Here a rank waits for the others in a way that signals can interrupt. After that the others come at once.
        """
        is_gone = torch.tensor([True] + [memory() is None for _, memory in self._blocks], dtype=torch.uint8,
                               device="cpu")
        allreduce_(is_gone, None, "shared memory that is not used any more", Min)
        kept = []
        for block, is_gone_everywhere in zip(self._blocks, is_gone[1:].tolist()):
            if is_gone_everywhere:
                _core.shared_free(block[0])
            else:
                kept.append(block)
        self._blocks = kept


_blocks = _Blocks()
