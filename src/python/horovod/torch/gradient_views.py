"""Gradients in memory that the ranks of a node share. There they are reduced without packing."""
import ctypes
import weakref

import torch

from horovod import _core, _ops
from horovod.torch._tensors import ByTensor, gradient_dtype
from horovod.torch.mpi_ops import Min, allreduce_

_ALIGNMENT_BYTES = 64


class GradientViews:
    """One block of shared memory with a place for each parameter's gradient.

    Collective over the ranks of a node: all make it for the same parameters. Autograd leaves a gradient in the memory
    where it was computed. When the gradient is submitted, it is copied to its place. Keeping it there from the start
    would cost more: zeroing and an addition. The shared memory stays while any tensor is in it, also after
    hvd.shutdown(). It is freed when no rank has such tensors any more and the ranks make new blocks.

    The gradient stays the same tensor object, but in other memory. A gradient that the program keeps from an earlier
    step gets its own memory. Gradients that are parts of the program's own buffer stay where they are.
    """

    def __init__(self, parameters):
        parameters = [parameter for parameter in parameters if parameter.is_cpu]
        places = []
        end = 0
        for parameter in parameters:
            places.append(end)
            bytes_needed = parameter.numel() * torch.empty((), dtype=gradient_dtype(parameter)).element_size()
            end += -(-bytes_needed // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        block = _blocks.make(max(end, _ALIGNMENT_BYTES))
        self._views = ByTensor()  # parameter -> its view
        for parameter, place in zip(parameters, places):
            # Each view is a separate tensor: views of one tensor would share its version counter.
            dtype = gradient_dtype(parameter)
            flat = torch.frombuffer(block, dtype=dtype, count=parameter.numel(), offset=place) \
                if parameter.numel() else torch.empty(0, dtype=dtype)
            self._views[parameter] = flat.view(parameter.shape).detach()
        self._taken_in = ByTensor()  # parameter -> the tensor that uses its view; weak

    def take_in(self, parameter, gradient):
        """Moves the gradient to its place in the shared memory, if it has one."""
        view = self._views.get(parameter)
        if view is None or gradient.layout != torch.strided or gradient._is_view() or not _is_like(gradient, view):
            return
        earlier = self._taken_in.get(parameter, lambda: None)()
        if earlier is gradient and gradient.data_ptr() == view.data_ptr():
            return
        if earlier is not None and earlier is not gradient and earlier.data_ptr() == view.data_ptr():
            earlier.data = earlier.detach().clone()
        view.copy_(gradient.detach())
        gradient.data = view
        self._taken_in[parameter] = weakref.ref(gradient)


def _is_like(gradient, view):
    """False if the program has given the parameter another shape or type, or moved it, since the views were made.
    Also false in another memory format: fused optimizers need the one that parameter and gradient share."""
    return gradient.shape == view.shape and gradient.dtype == view.dtype and gradient.device == view.device \
        and gradient.is_contiguous()


class _Blocks:
    """The blocks of shared memory of this job, in the order in which all ranks have made them."""

    def __init__(self):
        self._blocks = []  # (address, weak reference to the array)
        _ops.to_begin_anew.add(self)

    def begin_anew(self):
        self._blocks = []

    def make(self, size):
        """Returns `size` bytes of shared memory as an array, from which tensors are made. Collective."""
        self._free_what_nobody_has()
        address, owner = _core.shared_allocate(size)
        memory = (ctypes.c_uint8 * size).from_address(address)
        memory.owner = owner  # a tensor's storage keeps the array alive
        self._blocks.append((address, weakref.ref(memory)))
        return memory

    def _free_what_nobody_has(self):
        """Frees the blocks that no rank uses. All ranks must do that together, but each has its own garbage collector.

        Here a rank waits for the others and reacts to signals. After this wait the others come without delay.
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
