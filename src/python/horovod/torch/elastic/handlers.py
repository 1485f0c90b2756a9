"""How the values of a TorchState are saved, restored and made equal on all ranks."""
import copy

import torch

from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import (broadcast_object, broadcast_optimizer_state, broadcast_parameters,
                                     load_as_saved)


class StateHandler:
    """How a value of a TorchState is saved, restored and made equal on all ranks.

    save() assigns a new copy to an attribute and does not change the copy before: if a handler fails, all handlers get
    their former attributes again.
    """

    root = 0  # the rank whose value sync() takes over

    def __init__(self, value):
        self.value = value
        self.save()

    def save(self):
        raise NotImplementedError

    def restore(self):
        raise NotImplementedError

    def sync(self):
        raise NotImplementedError

    def set_value(self, value):
        self.value = value
        self.save()


def _copied(state, before):
    """Returns a deep copy. Tensors are copied into the memory of the copy before, if that looks the same: new memory
    costs more than the copying."""
    pairs = list(_pairs_of_tensors(state, before))
    kept = {}
    if _share_memory_alike(pairs):
        with torch.no_grad():
            kept = {id(now): then.copy_(now) for now, then in pairs}
    return copy.deepcopy(state, kept)


def _pairs_of_tensors(state, before):
    if type(state) is torch.Tensor:
        if type(before) is torch.Tensor and _are_alike(state, before):
            yield state, before
    elif isinstance(state, dict) and isinstance(before, dict):
        for key, value in state.items():
            if key in before:
                yield from _pairs_of_tensors(value, before[key])
    elif isinstance(state, (list, tuple)) and isinstance(before, (list, tuple)):
        for value, then in zip(state, before):
            yield from _pairs_of_tensors(value, then)


def _are_alike(tensor, other):
    def looks(each):
        return (each.layout, each.dtype, each.device, each.shape, each.is_quantized, each.requires_grad)

    return (tensor.layout == torch.strided and looks(tensor) == looks(other) and tensor.numel() > 0
            and not tensor.requires_grad and not tensor.is_quantized and not _overlaps_itself(tensor)
            and (tensor.stride(), tensor.storage_offset()) == (other.stride(), other.storage_offset()))


def _overlaps_itself(tensor):
    """Whether elements may share memory with each other, as those of an expanded tensor do: nothing can be copied into
    it."""
    end = 0  # of the elements of the smaller strides
    for stride, length in sorted((step, size) for step, size in zip(tensor.stride(), tensor.shape) if size > 1):
        if stride <= end:
            return True
        end += stride * (length - 1)
    return False


def is_written_in_place(tensor):
    """Whether a program may change the tensor by `+=`, and we can change it back."""
    return (tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_nested
            and not tensor.is_inference() and not _overlaps_itself(tensor))


def _share_memory_alike(pairs):
    """Whether tensors share memory with each other where the tensors of the copy before do, and only there."""
    places = [(now.untyped_storage().data_ptr(), then.untyped_storage().data_ptr()) for now, then in pairs]
    return len(set(places)) == len({now for now, _ in places}) == len({then for _, then in places})


class StateDictHandler(StateHandler):
    """Of values with state_dict() and load_state_dict(): schedulers of learning rates, gradient scalers, …"""

    _saved = None
    copies_begun = 0  # each in the memory of the one before

    def save(self):
        self.save_copy_of(self.value.state_dict())

    def save_copy_of(self, state):
        self.copies_begun += 1
        before, self._saved = self._saved, None
        self._saved = _copied(state, before)

    def restore(self):
        if self._saved is None:
            raise RuntimeError("hvd.elastic: the last commit was interrupted, so that nothing can be restored")
        # A copy, because some values keep the tensors of what they load, and change them later.
        self.load(copy.deepcopy(self._saved))

    def load(self, state):
        self.value.load_state_dict(state)

    def sync(self):
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), self.root, "elastic.state_dict"))


class ModelStateHandler(StateDictHandler):
    def sync(self):
        state = self.value.state_dict()
        broadcast_parameters(state, self.root)
        others = {name: value for name, value in state.items() if not isinstance(value, torch.Tensor)}
        if others:  # of modules with get_extra_state()
            self.value.load_state_dict({**state, **broadcast_object(others, self.root, "elastic.extra_state")})


class OptimizerStateHandler(StateDictHandler):
    def load(self, state):
        load_as_saved(self.value, state)

    def sync(self):
        broadcast_optimizer_state(self.value, self.root)


class SamplerStateHandler(StateDictHandler):
    pass


def put_back(before):
    """Puts back the copies that handlers had before a save that has failed. Returns False, and puts back nothing, if
    one of these was overwritten.

    before: pairs of a handler and its attributes.
    """
    if any(isinstance(handler, StateDictHandler) and handler.copies_begun != attributes.get("copies_begun", 0)
           for handler, attributes in before):
        return False
    for handler, attributes in before:
        handler.__dict__ = attributes
    return True


_handler_registry = [(torch.nn.Module, ModelStateHandler), (torch.optim.Optimizer, OptimizerStateHandler),
                     (ElasticSampler, SamplerStateHandler)]


def get_handler_registry():
    """Returns a list of pairs: a type, and the StateHandler of its values. The first that fits counts."""
    return _handler_registry


def set_handler_registry(registry):
    global _handler_registry
    _handler_registry = registry


def handler_class(value):
    own = getattr(type(value), "elastic_handler", None)
    if own is not None:
        return own()
    for kind, handler in _handler_registry:
        if isinstance(value, kind):
            return handler
    has_state = hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
    return StateDictHandler if has_state and not isinstance(value, type) else None
