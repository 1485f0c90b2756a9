"""The state of a training with torch."""
import torch

from horovod.common.elastic import Kept, ObjectState
from horovod.common.objects import allgather_object
from horovod.common.stops import AGAIN, end_undisturbed
from horovod.torch import _devices
from horovod.torch._job import is_initialized, rank
from horovod.torch.elastic.handlers import StateDictHandler, handler_class, is_written_in_place, put_back
from horovod.torch.elastic.handlers import (ModelStateHandler, OptimizerStateHandler,  # noqa: F401
                                            SamplerStateHandler, StateHandler, get_handler_registry,
                                            set_handler_registry)
from horovod.torch.elastic.live import DEFAULT_COMMITS_PER_COPY, LiveCommits, live_class
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import broadcast_object


def _from_rank(obj, root=0):
    """In a process that has not called hvd.init() a state can be committed and restored, too."""
    return broadcast_object(obj, root, "elastic.state") if is_initialized() else obj


def _of_all_ranks(obj):
    return allgather_object(obj, "elastic.offers") if is_initialized() else [obj]


class TorchState(ObjectState):
    """The state of a training: a model, an optimizer, and anything else by its name.

        state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, batch=0)

    Models, optimizers, samplers and other values with a state_dict() are saved as copies, and so is what is in lists,
    dicts, sets, arrays and tensors; other values are kept by reference. A hvd.checkpoint.Checkpointer writes the last
    commit if the job must end because it has too few ranks. An attribute may be assigned another value. Attributes that
    are not named here are not part of the state.

    live: a commit copies neither parameters nor the state of optimizers. After a failure the training goes on from a
    rank that made no step since its last commit. If there is none, it goes on from a copy: one is made when a round
    begins, and by every commits_per_copy-th commit.
    """

    def __init__(self, model=None, optimizer=None, *, live=False, commits_per_copy=DEFAULT_COMMITS_PER_COPY, **kwargs):
        kwargs.update(model=model, optimizer=optimizer)
        classes = {name: handler_class(value) for name, value in kwargs.items()}
        self._handlers = {}  # of the attributes as they are; a commit has those of its own
        self._live = LiveCommits(self, commits_per_copy) if live else None
        self._is_restored = False
        super().__init__(bcast_object=_from_rank, get_rank=rank,
                         **{name: value for name, value in kwargs.items() if classes[name] is None})
        for name, kind in classes.items():
            if kind is not None:
                self._handle(name, kwargs[name])
                object.__setattr__(self, name, kwargs[name])
        self._kept = self._kept._replace(copies=self._handlers)
        if live:
            self._live.note_commit()

    def _handle(self, name, value):
        """Gives a value that is another object a handler of its own: the one of the former object has its commit."""
        before, kind = self._handlers.get(name), handler_class(value)
        if kind is None and before is None or before is not None and before.value is value:
            return
        handlers = dict(self._handlers)
        if kind is None:
            del handlers[name]
        else:
            handlers[name] = (kind if self._live is None else live_class(kind, name, value))(value)
        if self._live is not None:
            self._live.replace(name, None if kind is None else kind(value))
        self._handlers = handlers

    def __setattr__(self, name, value):
        kept = self.__dict__.get("_kept")
        if kept is not None and (name in kept.values or name in kept.copies):
            self._handle(name, value)
        object.__setattr__(self, name, value)

    def _plain_values(self):
        """Returns name -> value of the attributes that have no handler; they may have had one at the last commit."""
        names = {**self._kept.values, **self._kept.copies}
        return {name: getattr(self, name) for name in names if name not in self._handlers}

    _is_whole = True  # all handlers have saved at the same commit

    def save(self):
        self._keep(self._plain_values())
        self._saves += 1
        if self._live is not None:
            self._live.note_commit()
        self._is_restored = False

    def _keep(self, values):
        _devices.await_results()
        # If one of these raises, all of the commit before is still there. So it is if another class's save() raises, as
        # one that communicates may: it comes before what is copied into the memory of the commit before.
        states = {id(handler): handler.value.state_dict() for handler in self._handlers.values()
                  if type(handler).save is StateDictHandler.save}
        contents = self._contents_of(values)
        before = [(handler, dict(vars(handler))) for handler in self._handlers.values()]
        was_whole, was_changed = self._is_whole, self._live is not None and self._live.is_changed
        self._begin_copies()
        try:
            for handler in sorted(self._handlers.values(), key=lambda each: isinstance(each, StateDictHandler)):
                if id(handler) not in states:
                    handler.save()
            for handler in self._handlers.values():
                if id(handler) in states:
                    handler.save_copy_of(states[id(handler)])
        except BaseException:
            if put_back(before):
                self._is_whole = was_whole
                if self._live is not None:
                    self._live.is_changed = was_changed
            raise
        self._kept = Kept(values, contents, self._handlers)
        self._is_whole = True

    def _begin_copies(self):
        """The handlers copy into the memory of the commit before. If they do not come to the end, that one is lost; a
        live state has its copy besides."""
        self._is_whole = False
        if self._live is not None:
            self._live.is_changed = True

    def restore(self):
        if self._live is not None:
            self._live.restore()
        elif not self._is_whole:
            raise RuntimeError("hvd.elastic: the last commit was interrupted, so that nothing can be restored")
        else:
            self._handlers = self._kept.copies
            for name, handler in self._handlers.items():
                handler.restore()
                object.__setattr__(self, name, handler.value)
            super().restore()
        self._is_restored = True

    def sync(self):
        """Takes over the state of rank 0 (of a live state: of the rank that has the latest commit), which a restore
        goes back to from now on."""
        root = 0 if self._live is None else self._live.begin_sync(_of_all_ranks, rank)
        self._check_kinds(root)
        for _, handler in sorted(self._handlers.items()):
            handler.root = root
            handler.sync()
        values = {name: self._kept.values.get(name, value) for name, value in self._plain_values().items()}
        if self._live is None:
            values = self._bcast_object(values) if values else values
        else:
            values, self._saves, commit = _from_rank((values, self._saves, self._live.commit), root)
        self._keep(values)
        ObjectState.restore(self)
        if self._live is not None:
            self._live.end_sync(commit)

    def _content_of(self, value):
        if type(value) is torch.Tensor:
            return value.detach().clone() if is_written_in_place(value) else None
        return super()._content_of(value)

    def _put_back(self, value, content):
        if type(value) is not torch.Tensor:
            return super()._put_back(value, content)
        if (value.shape, value.dtype, value.device) != (content.shape, content.dtype, content.device):
            return False
        with torch.no_grad():
            value.copy_(content)
        return True

    def _progress(self):
        is_back = self._live is not None and self._is_restored
        return self._live.progress if is_back else super()._progress()

    def _passes_done(self):
        """Counted where the optimizer is a DistributedOptimizer that averages gradients with other ranks."""
        for handler in self._handlers.values():
            if isinstance(handler.value, torch.optim.Optimizer):
                gradients = getattr(getattr(handler.value, "_distributed", None), "gradients", None)
                if gradients is not None and gradients.passes_done > 0:
                    return gradients.passes_done, gradients.settings.passes
        return super()._passes_done()

    def _check_kinds(self, root):
        """ValueError if this rank would take part in other broadcasts than the rank `root`."""
        here = {name: (handler_class(handler.value).__name__, type(handler.value).__name__)
                for name, handler in self._handlers.items()}
        there = _from_rank(here, root)
        for name in sorted({*here, *there}):
            (kind, found), (expected_kind, expected) = (
                each.get(name, (None, "a plain value or nothing")) for each in (here, there))
            if kind != expected_kind:
                raise ValueError(f"TorchState: expected {name} to be what it is on rank {root}, {expected}; found "
                                 f"{found}. Give the state its models, optimizers and other values with state_dict() "
                                 "when it is made, and not later, so that ranks that join later have them, too")

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
