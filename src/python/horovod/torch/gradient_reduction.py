"""The reduction of one parameter's gradient in a round: it is started, waited for, and its result is stored."""
import weakref

import torch

from horovod import _core, _ops
from horovod.common.exceptions import HorovodInternalError
from horovod.torch import shared_parameters
from horovod.torch._tensors import version_of
from horovod.torch.compression import Compression
from horovod.torch.gradient_presence import DENSE
from horovod.torch.gradients_in_flight import InFlight, land, take_off
from horovod.torch.mpi_ops import allreduce_async_, sparse_allreduce_async

_OURS = (Compression.none, Compression.fp16, Compression.bf16)
_start_again = _core.start_again


class Reduction:
    """A part of Gradient."""
    __slots__ = ()

    # ---- starting -----------------------------------------------------------------------------------------------

    def start(self, tensor):
        """Starts the reduction of `tensor`: the parameter's gradient, or a tensor that replaces it."""
        if tensor.requires_grad:
            raise AssertionError(
                f"The gradient of {self.name!r} has a history (backward(create_graph=True)), so it cannot be reduced "
                "in place. Compute what is differentiated again by torch.autograd.grad(..., create_graph=True), which "
                "leaves p.grad alone, and call backward() for the whole loss.")
        of_all, settings, is_shared = self.of_all, self.settings, self.is_shared
        if is_shared:
            shared_parameters.check_reductions(self)
            if self.hook is None:
                return  # the check has found that this optimizer no longer exists
        of_all.submitted += 1
        self.kept_back = 0
        if type(tensor) is InFlight or is_shared and self._is_reduced_by_another(tensor):
            self.is_done = True
            self.seen = None
            self.given = weakref.ref(tensor)
            if self.group is not None:
                self.group.pass_over()
            return
        if self.group is not None and not self.group.is_started:  # what comes again after its group is reduced alone
            self._note_kind(tensor)  # other ranks may have to know it before the group is complete
            self.group.hold(self, tensor)
            return
        handle = None
        if of_all.is_plain:
            handle = _start_again(tensor, True, self.round_name or self.name, settings.op, settings.prescale,
                                  settings.postscale, settings.process_set)
        if handle is None:
            handle, tensor = self._start_the_long_way(tensor)
        self.handle = handle
        self.tensor = tensor
        self.version = version_of(tensor)
        take_off(tensor, self)

    def _is_reduced_by_another(self, tensor):
        """True if the tensor still has the result of another optimizer with this parameter, or what the program has
        made of it."""
        return any(other._is_result(tensor) or other.result is not None and other.result() is tensor
                   and other.of_all.is_synchronized for other in self.sharers if other is not self)

    @property
    def is_submitted(self):
        """True if it takes part in the reductions of this round, which may have ended already."""
        return self.tensor is not None or self.is_done

    def _start_the_long_way(self, tensor):
        """Starts a gradient that is sparse or compressed, that has to move into a view, or that is submitted for the
        first time."""
        self.of_all.take_names()
        if is_gathered(tensor, self.settings):
            return None, self.start_gathering(tensor)
        tensor, reduced = self.prepare(tensor)
        settings = self.settings
        return allreduce_async_(reduced, None, self.round_name or self.name, settings.op, settings.prescale,
                                settings.postscale, settings.process_set), tensor

    def start_gathering(self, tensor):
        """Communicates a sparse gradient as rows."""
        self._note_kind(tensor)
        name = self.round_name or self.name
        wait = sparse_allreduce_async(tensor.detach(), name, self.settings.op, self.settings.process_set)
        self.gathering = wait.handles
        self.store = lambda gradient: gradient.copy_(wait().coalesce())
        return tensor

    def prepare(self, tensor):
        """Returns the gradient and the dense tensor that is reduced for it. If these are two tensors, sets `store`,
        which copies the result."""
        views, compression = self.of_all.views, self.settings.compression
        self._note_kind(tensor)
        if _is_expanded(tensor):  # every rank's part of it may differ from the others
            tensor = self.parameter.grad = tensor.detach().clone()
        elif _is_marked(tensor):
            tensor = self.parameter.grad = tensor.detach().resolve_conj().resolve_neg()
        if views is not None:
            views.take_in(self.parameter, tensor)
        dense = tensor.detach()
        dims = dense.sparse_dim() if dense.is_sparse else None
        if dims is not None:
            dense = dense.to_dense()
        compressed, context = compression.compress(dense)
        compressed = compressed.contiguous()
        reduced = torch.view_as_real(compressed) if compressed.is_complex() else compressed
        if dims is None and compression in _OURS and compressed.dtype == tensor.dtype \
                and compressed.data_ptr() == tensor.data_ptr():
            return tensor, reduced  # a program's own compressor may have changed values in place, and undoes that

        def store(gradient):
            result = compression.decompress(compressed, context)
            gradient.copy_(result if dims is None else result.to_sparse(dims))

        self.store = store
        return tensor, reduced

    def _note_kind(self, tensor):
        """Ranks without the gradient take part with one of the same kind, and step by it."""
        if tensor.layout == torch.sparse_coo:
            self.of_all.kinds[self.place] = DENSE + tensor.sparse_dim()

    def give_up(self):
        """Called when the gradient waits for its group, and will not be reduced with it."""
        land(self.tensor)
        self.tensor = None
        self.of_all.submitted -= 1

    # ---- waiting for the result ---------------------------------------------------------------------------------

    def settle(self):
        """Waits for the result, because code uses the gradient before the round has ended."""
        self.of_all.note_use()
        if self.group is not None and not self.group.is_started:
            self.of_all.complete_group(self)
        tensor, handle = self.tensor, self._handle()
        self.of_all.wait_for_others(self)
        failure = None
        if handle is not None:
            try:
                _ops.synchronize(handle)  # a signal's handler may raise here; nothing has changed then
            except HorovodInternalError as error:
                # in a forked child the operation is never done, and `landing` may be locked
                if _ops.is_forked and not _core.is_initialized():
                    raise
                failure = error
                self.of_all.failures.append(error)
        with self.of_all.landing:
            if self.tensor is not None and self.tensor is tensor:  # false if another thread has done this before
                self.is_done = True
                self.land()
                self.seen = weakref.ref(tensor)
                self.used_version = version_of(tensor)
        if failure is not None:
            raise failure

    def handles(self):
        """The handles of what is in flight for this gradient."""
        handle = self._handle()
        return list(self.gathering) if handle is None else [handle, *self.gathering]

    def _handle(self):
        return self.handle if self.handle is not None or self.group is None else self.group.handle

    # ---- the result ---------------------------------------------------------------------------------------------

    def land(self):
        """Called when the result has arrived. Makes the gradient an ordinary tensor again."""
        if self.arrive():
            raise RuntimeError(
                f"The gradient of {self.name!r} was changed while it was being reduced. Call optimizer.synchronize() "
                "before gradients are changed, and step() within optimizer.skip_synchronize().")

    def arrive(self):
        """Like land(). Returns True if the gradient was changed while it was being reduced."""
        tensor, self.tensor = self.tensor, None
        store, self.store = self.store, None
        self.handle, self.gathering = None, ()
        land(tensor)
        was_changed = version_of(tensor) != self.version and not tensor._is_view()  # views share a counter
        if store is not None:
            with torch.no_grad():
                store(tensor)
        return was_changed

    def take_result(self):
        """Runs at the end of the round."""
        was_replaced = self.parameter.grad is not self.tensor
        self.land()
        if was_replaced:
            found = "taken away" if self.parameter.grad is None else "replaced"
            raise RuntimeError(
                f"The gradient of {self.name!r} was {found} between backward() and step(), while it was being reduced. "
                "Call optimizer.synchronize() first, and step() within optimizer.skip_synchronize(); to discard the "
                "gradients of a step, call optimizer.zero_grad() after optimizer.synchronize().")

    # ---- the end of the optimizer or of the job -----------------------------------------------------------------

    def lands_if_done(self):
        """For abandon(). True if the gradient has landed, or if nothing can tell when it will land."""
        handle = self._handle()
        if self.tensor is None or handle is None:
            return True
        if not _ops.poll(handle):
            return False
        try:
            self.settle()
        except RuntimeError:  # the optimizer no longer exists, so nobody has to be told
            pass
        return True

    def lose(self):
        """Called when no rank will finish the reduction that is in flight. Removes the gradient."""
        tensor, self.tensor = self.tensor, None
        self.store, self.handle, self.gathering = None, None, ()
        if tensor is not None:
            land(tensor)
            if self.parameter.grad is tensor:
                self.parameter.grad = None


def is_gathered(tensor, settings):
    return tensor.layout == torch.sparse_coo and not settings.sparse_as_dense


def _is_expanded(tensor):
    """True if elements of the tensor are in the same memory."""
    return tensor.layout == torch.strided and any(stride == 0 and length > 1
                                                  for length, stride in zip(tensor.shape, tensor.stride()))


def _is_marked(tensor):
    """True if the memory has the complex conjugates or the negatives of the elements, which torch remembers in a bit of
    the tensor."""
    return tensor.layout == torch.strided and (tensor.is_conj() or tensor.is_neg())


def give_memory_of_their_own(gradients):
    """Called with gradients that the program has set. It may have set several views of one tensor. What they have in
    common would be reduced again for each of them."""
    dense = []
    for gradient in gradients:
        tensor = gradient.parameter.grad
        if type(tensor) is InFlight or tensor.layout != torch.strided:
            continue
        if _is_expanded(tensor):
            gradient.parameter.grad = tensor.detach().clone()
        elif tensor.is_contiguous():
            dense.append((tensor.data_ptr(), gradient, tensor))
    last, end = None, 0
    for address, gradient, tensor in sorted(dense, key=lambda entry: entry[0]):
        if address >= end:
            last, end = tensor, address + tensor.numel() * tensor.element_size()
        elif tensor is not last:  # one tensor of several parameters is reduced once
            gradient.parameter.grad = tensor.detach().clone()
