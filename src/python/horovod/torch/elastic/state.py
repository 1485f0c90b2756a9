"""The state of a training with torch."""
import copy

import torch

from horovod.common.elastic import ObjectState
from horovod.common.stops import AGAIN, end_undisturbed
from horovod.torch._job import is_initialized, rank
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters


class StateHandler:
    """How a value of a TorchState is saved, restored and made equal on all ranks."""

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


def _share_memory_alike(pairs):
    """Whether tensors share memory with each other where the tensors of the copy before do, and only there."""
    places = [(now.untyped_storage().data_ptr(), then.untyped_storage().data_ptr()) for now, then in pairs]
    return len(set(places)) == len({now for now, _ in places}) == len({then for _, then in places})


class StateDictHandler(StateHandler):
    """Of values with state_dict() and load_state_dict(): schedulers of learning rates, gradient scalers, …"""

    _saved = None

    def save(self):
        self.save_copy_of(self.value.state_dict())

    def save_copy_of(self, state):
        before, self._saved = self._saved, None
        self._saved = _copied(state, before)

    def restore(self):
        if self._saved is None:
            raise RuntimeError("hvd.elastic: the last commit was interrupted, so that nothing can be restored")
        # A copy, because some values keep the tensors of what they load, and change them later.
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self):
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), name="elastic.state_dict"))


class ModelStateHandler(StateDictHandler):
    def sync(self):
        state = self.value.state_dict()
        broadcast_parameters(state, root_rank=0)
        others = {name: value for name, value in state.items() if not isinstance(value, torch.Tensor)}
        if others:  # of modules with get_extra_state()
            self.value.load_state_dict({**state, **broadcast_object(others, name="elastic.extra_state")})


class OptimizerStateHandler(StateDictHandler):
    def sync(self):
        broadcast_optimizer_state(self.value, root_rank=0)


class SamplerStateHandler(StateDictHandler):
    pass


_handler_registry = [(torch.nn.Module, ModelStateHandler), (torch.optim.Optimizer, OptimizerStateHandler),
                     (ElasticSampler, SamplerStateHandler)]


def get_handler_registry():
    """Returns a list of pairs: a type, and the StateHandler of its values. The first that fits counts."""
    return _handler_registry


def set_handler_registry(registry):
    global _handler_registry
    _handler_registry = registry


def _from_rank_0(obj):
    """In a process that has not called hvd.init() a state can be committed and restored, too."""
    return broadcast_object(obj, name="elastic.state") if is_initialized() else obj


def _handler_class(value):
    own = getattr(type(value), "elastic_handler", None)
    if own is not None:
        return own()
    for kind, handler in _handler_registry:
        if isinstance(value, kind):
            return handler
    has_state = hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
    return StateDictHandler if has_state and not isinstance(value, type) else None


class TorchState(ObjectState):
    """The state of a training: a model, an optimizer, and anything else by its name.

        state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, batch=0)

    Models, optimizers, samplers and other values with a state_dict() are saved as copies; other values are kept by
    reference. A hvd.checkpoint.Checkpointer writes the last commit if the job must end for want of ranks. An attribute
    may be assigned another value. Attributes that are not named here are not part of the state.
    """

    def __init__(self, model=None, optimizer=None, **kwargs):
        kwargs.update(model=model, optimizer=optimizer)
        classes = {name: _handler_class(value) for name, value in kwargs.items()}
        self._handlers = {}
        self._is_restored = False
        super().__init__(bcast_object=_from_rank_0, get_rank=rank,
                         **{name: value for name, value in kwargs.items() if classes[name] is None})
        for name, handler in classes.items():
            if handler is not None:
                self._handle(name, handler(kwargs[name]))

    def _handle(self, name, handler):
        self._handlers[name] = handler
        self._saved_state.pop(name, None)
        object.__setattr__(self, name, handler.value)

    def __setattr__(self, name, value):
        if name in self.__dict__.get("_handlers", ()) or name in self.__dict__.get("_saved_state", ()):
            handler = _handler_class(value)
            if handler is not None and type(self._handlers.get(name)) is not handler:
                return self._handle(name, handler(value))
            if name in self._handlers:
                self._handlers[name].set_value(value)
        object.__setattr__(self, name, value)

    def save(self):
        # If one of them raises, all of the commit before is still there.
        states = {name: handler.value.state_dict() for name, handler in self._handlers.items()
                  if type(handler).save is StateDictHandler.save}
        for name, handler in self._handlers.items():
            if name in states:
                handler.save_copy_of(states[name])
            else:
                handler.save()
        super().save()
        self._is_restored = False

    def restore(self):
        for handler in self._handlers.values():
            handler.restore()
        super().restore()
        self._is_restored = True

    def sync(self):
        """Takes over the state of rank 0, which a restore goes back to from now on."""
        for _, handler in sorted(self._handlers.items()):
            handler.sync()
            handler.save()
        super().sync()

    def is_keeper(self):
        """Whether the state was given a Checkpointer that can write the last commit without the other ranks."""
        keepers = [each for each in self._handlers.values() if hasattr(each, "keep")]
        return bool(keepers) and all(each.can_keep() for each in keepers)

    def keep(self):
        for handler in self._handlers.values():
            if hasattr(handler, "keep"):
                handler.keep()
        end_undisturbed(AGAIN)

    def reset(self):
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()  # also where no sync follows
        if self._is_restored:
            self._forget_gradients()

    def _forget_gradients(self):
        """After a restore the gradients are of a step that is made once more. A gradient scaler, too, may have been in
        the middle of it, which its state_dict() does not tell."""
        for handler in self._handlers.values():
            if isinstance(handler.value, (torch.nn.Module, torch.optim.Optimizer)):
                handler.value.zero_grad(set_to_none=True)
            elif hasattr(handler.value, "_per_optimizer_states"):
                handler.value._per_optimizer_states.clear()
