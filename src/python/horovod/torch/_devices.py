"""Which tensors stay on their device: the core works on them there, in the order of torch's streams. All others go
through the host's memory."""
import io
import sys

import torch

from horovod import _core, _ops
from horovod.common.objects import instead_of

_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_kind = "cuda" if torch.version.hip is None else "rocm"
if _current_stream is not None:
    _core.set_stream_source(_current_stream, _kind)


def has_gpu():
    return torch.cuda.is_available()


def accelerator():
    """torch's name for this machine's kind of GPU, such as "cuda", and its module, such as torch.cuda. None for both if
    there is none."""
    if has_gpu():  # asked first: torch.accelerator of torch 2.6 makes a context on the GPU to answer
        return "cuda", torch.cuda
    if not hasattr(torch, "accelerator") or not torch.accelerator.is_available():  # torch before 2.6 lacks it
        return None, None
    device = torch.accelerator.current_accelerator()
    return device.type, torch.get_device_module(device)


def is_on_gpu(tensor):
    return tensor.is_cuda


def current_stream(device):
    return torch.cuda.current_stream(device)


def is_captured():
    """True if what this thread gives to its GPU now becomes part of a graph."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def synchronize(device):
    torch.cuda.synchronize(device)


def await_results():
    """Waits until this rank's GPU has ended what is queued on the current stream, and raises HorovodInternalError if
    the job is over by then."""
    _own.await_results()


class _OwnDevice:
    """The one GPU of this rank whose tensors the core takes: that of the first tensor of the job."""

    def __init__(self):
        self._ordinal = None
        self._told = set()
        _ops.to_begin_anew.add(self)

    def begin_anew(self):
        self._ordinal = None

    def await_results(self):
        if self._ordinal is None or not _core.is_initialized() or is_captured():
            return
        current_stream(self._ordinal).synchronize()
        _ops.check_results_on_devices()

    def ordinal_for(self, tensor, set_id):
        if not tensor.is_cuda and not tensor.is_meta:
            return self._tell_on_rank_0(f"this Horovod has no plugin for what torch calls {tensor.device.type}")
        if _current_stream is None or not tensor.is_cuda:
            return -1
        if not _ops.has_device(set_id):
            built = _core.device_built(_kind)
            return self._tell_on_rank_0(
                "a rank of this job sees no GPU, or its Horovod lacks the plugin for GPUs" if built else
                f"this Horovod was installed without a plugin for the GPUs of this torch ({_kind})")
        ordinal = tensor.get_device()
        if self._ordinal is None:
            self.take(ordinal)
        if ordinal != self._ordinal:
            return self._tell(f"the first tensor of this rank was on cuda:{self._ordinal}, and others are on "
                              f"cuda:{ordinal}; a rank has one GPU")
        return ordinal

    def ordinal_to_join_with(self, device):
        """-1: no device was named or chosen, an earlier tensor has decided, or the job has no GPUs."""
        if not isinstance(device, int):
            device = torch.device(device)
            if device.type != "cuda":
                return -1
            device = torch.cuda.current_device() if device.index is None else device.index
        elif device < 0 and torch.cuda.is_initialized():
            # Another device than the first is current only if the program has chosen it.
            device = torch.cuda.current_device() or -1
        if device < 0 or self._ordinal is not None or not (_core.is_initialized() and _ops.has_device(0)):
            return -1
        return device

    def number_or_current(self):
        return torch.cuda.current_device() if self._ordinal is None else self._ordinal

    def take(self, ordinal):
        if ordinal >= 0:
            self._ordinal = ordinal
            _ops.are_on_devices = True

    def _tell_on_rank_0(self, reason):
        """For what holds for all ranks."""
        return self._tell(reason) if _core.world()[0] == 0 else -1

    def _tell(self, reason):
        """Once for each reason."""
        if reason not in self._told:
            self._told.add(reason)
            print(f"Horovod: tensors on GPUs are copied through the host's memory, which is slow: {reason}",
                  file=sys.stderr, flush=True)
        return -1


_own = _OwnDevice()


def ordinal_for(tensor, set_id):
    """Returns the number of the GPU on which the core works on the tensor. -1 if it works in the host's memory."""
    return -1 if tensor.is_cpu else _own.ordinal_for(tensor, set_id)


def ordinal_for_all(tensors, set_id):
    """The same for tensors that become ready together."""
    found = {ordinal_for(tensor, set_id) for tensor in tensors}
    return found.pop() if len(found) == 1 else -1


def join(device):
    """What hvd.join does. `device` is a number, a text or a torch.device."""
    ordinal = _own.ordinal_to_join_with(device)
    last = _ops.join(ordinal)
    _own.take(ordinal)
    return last


def _load_on_own_gpu(data):
    """Unpickles the memory of a tensor. What was on a GPU of the rank that sent it comes to the one of this rank."""
    def place(storage, location):
        if location.startswith("cuda") and has_gpu():
            location = f"cuda:{_own.number_or_current()}"
        return torch.serialization.default_restore_location(storage, location)

    return torch.load(io.BytesIO(data), place, weights_only=False)


instead_of["torch.storage", "_load_from_bytes"] = _load_on_own_gpu
