"""TorchState(..., live=True): a commit is a mark. The parameters themselves are the committed ones until the next step.

After a failure each rank that is left is in one of these states, and can go on from one of its commits:

    it made no step since its last commit        from that commit, its mark: nothing was copied
    it made one, or was in the middle of one     from its last copy, which is a whole state of an earlier commit

One rank may be one commit ahead of another: it had the results of the last operation, and the other had not. All ranks
go on from the latest commit that one of them can give, with the numbers of that rank. Ranks without a part in the
training give nothing.
"""
import copy
import functools
import sys
import typing
import warnings
import weakref

import torch
from torch.nn.parameter import is_lazy

from horovod.common.elastic import ObjectState
from horovod.torch import _devices
from horovod.torch._tensors import version_of
from horovod.torch.elastic.handlers import (ModelStateHandler, OptimizerStateHandler, SamplerStateHandler,
                                            StateDictHandler)

try:
    from torch.optim.optimizer import register_optimizer_step_pre_hook
except ImportError:  # before torch 2.0
    register_optimizer_step_pre_hook = None

DEFAULT_COMMITS_PER_COPY = 100


class Offer(typing.NamedTuple):
    """What a rank can go on from. Commits have numbers; the same number is the same commit on all ranks."""
    number: int  # of the commit; 0: the rank has had no part in the training
    last: int  # of the last commit that the rank has made

    @staticmethod
    def of(mark, copy, is_kept):
        """mark: the last commit. copy: the commit that was copied last. is_kept: no step was made since the mark."""
        return Offer(mark if is_kept else copy, mark)


def choose(offers):
    """Returns the rank from which all go on, and how many commits are undone by that."""
    number = max(offer.number for offer in offers)
    root = next(rank for rank, offer in enumerate(offers) if offer.number == number)
    return root, max(offer.last for offer in offers) - number


# ---- marks ------------------------------------------------------------------------------------------------------


def _place(tensor):
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided and not is_lazy(tensor) else None


class _Watch:
    """Sees whether tensors are changed or replaced."""

    def __init__(self, tensors):
        self._seen = [(weakref.ref(each), version_of(each), _place(each)) for each in tensors]

    def are_as_seen(self, tensors):
        tensors = list(tensors)
        return len(tensors) == len(self._seen) and all(
            before() is now and version == version_of(now) and place == _place(now)
            for now, (before, version, place) in zip(tensors, self._seen))


def _tensors_of(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _tensors_of(each)


class LiveModelHandler(ModelStateHandler):
    """Copies what a forward pass may change, as buffers, and watches the parameters."""

    def save(self):
        places = {_place(each) for each in self.value.parameters()} - {None}
        state = self.value.state_dict()
        for name, entry in list(state.items()):
            if isinstance(entry, torch.Tensor) and _place(entry) in places:
                del state[name]
        self.save_copy_of(state)
        self._watch = _Watch(self.value.parameters())

    def restore(self):
        if self._saved:
            state = self.value.state_dict()
            state.update(copy.deepcopy(self._saved))
            self.value.load_state_dict(state)

    def is_kept(self):
        return self._watch.are_as_seen(self.value.parameters())


class LiveOptimizerHandler(OptimizerStateHandler):
    """Copies the options, as the learning rate, which schedulers change, and watches the rest."""

    def save(self):
        state = self.value.state_dict()
        self.save_copy_of({**state, "state": {}})
        self._watch = _Watch(_tensors_of(state["state"]))

    def restore(self):
        tensors = dict(self.value.state)  # these stay: to load them might convert them
        self.value.load_state_dict(copy.deepcopy(self._saved))
        self.value.state.update(tensors)

    def is_kept(self):
        state = self.value.state_dict()
        groups = [each["params"] for each in self._saved["param_groups"]]
        return groups == [each["params"] for each in state["param_groups"]] and \
            self._watch.are_as_seen(_tensors_of(state["state"]))


def live_class(handler, name, value):
    """Returns the class that marks what this class of a handler copies. What is small is copied by each commit."""
    if handler is ModelStateHandler:
        return LiveModelHandler
    if handler is OptimizerStateHandler:
        is_plain = value.state_dict().keys() == {"state", "param_groups"}
        return LiveOptimizerHandler if is_plain else handler
    if handler in (StateDictHandler, SamplerStateHandler) or getattr(handler, "follows_root", False):
        return handler
    raise ValueError(f"TorchState(live=True): expected models, optimizers and values with state_dict(), found {name!r} "
                     f"with a handler of its own ({handler.__name__}), which takes over the value of rank 0, while a "
                     "live state may go on from another rank. Leave out live=True, or set follows_root = True in the "
                     "class if its sync() uses self.root")


# ---- steps ------------------------------------------------------------------------------------------------------

_all = weakref.WeakSet()


def _note_step(*_):
    """A step of any optimizer in this process, before it changes anything. Some change tensors without a trace in
    their versions. Gradients that are still being reduced on a GPU become NaN if a rank is lost, so they are waited
    for: then the parameters are those of the mark."""
    if _all:
        _devices.await_results()
    is_captured = _devices.is_captured()
    for each in list(_all):
        each.is_changed = True
        if is_captured and not each.is_blind:
            each.is_blind = True
            warnings.warn("TorchState(live=True): a step of an optimizer is captured in a graph of a GPU, and is not "
                          "seen when the graph is replayed. From now on each commit makes a copy.", stacklevel=2)


@functools.lru_cache(maxsize=None)
def _see_steps():
    if register_optimizer_step_pre_hook is None:
        raise ValueError("TorchState(live=True): expected torch 2.0 or later, which tells of the steps of optimizers, "
                         f"found {torch.__version__}; leave out live=True")
    register_optimizer_step_pre_hook(_note_step)


# ---- commits ----------------------------------------------------------------------------------------------------


class LiveCommits:
    """The marks and copies of a state.

    The handlers of the state mark. commits_per_copy: each so many commits make a copy, too.
    """

    def __init__(self, state, commits_per_copy):
        if not isinstance(commits_per_copy, int) or commits_per_copy < 1:
            raise ValueError(f"TorchState: commits_per_copy: expected a number of commits, found {commits_per_copy!r}")
        _see_steps()
        self.is_changed = True  # since the mark: a step, another value, or a part of another rank's state
        self.is_blind = False
        self.progress = 0  # of the rank at its last failure, whatever commit it went back to
        self._state, self._per_copy = weakref.proxy(state), commits_per_copy
        self._copies = {}  # handlers that copy, by name
        self._kept, self._saves = None, 0  # of the copy; None: not whole
        self.commit = 0  # the number of the one to which the state belongs
        self._copied = self._last = 0
        self._has_part = False  # in the training; until then each commit makes a copy
        self._must_copy = False
        _all.add(self)

    @property
    def _handlers(self):
        return self._state._handlers

    def replace(self, name, copying_handler):
        """copying_handler: of another object, or None if the attribute is no object with a handler now."""
        self._copies = {other: handler for other, handler in self._copies.items() if other != name}
        if copying_handler is not None:
            self._copies[name] = copying_handler
        self.is_changed = self._must_copy = True

    def note_commit(self):
        """The handlers have marked the state."""
        self._mark_is_of(self.commit + 1)
        is_due = self.commit - self._copied >= self._per_copy
        if is_due or self._must_copy or self.is_blind or not self._has_part:
            self._copy()

    def _mark_is_of(self, commit):
        self.commit = self._last = commit
        self.is_changed = False  # before the copy: if that is interrupted, there is the mark

    def _copy(self):
        self._kept = None
        for each in self._copies.values():
            each.save()
        self._copied, self._saves = self.commit, self._state._saves
        self._kept = self._state._kept._replace(values=dict(self._state._kept.values), copies=self._copies)
        self._must_copy = False

    def is_kept(self):
        watching = [each for each in self._handlers.values() if hasattr(each, "is_kept")]
        return not self.is_changed and not self.is_blind and all(each.is_kept() for each in watching)

    def restore(self):
        """Goes back to the mark, or to the copy if a step was made since."""
        is_kept = self.is_kept()
        # A rank that can give its last commit is ahead of one that has made another commit and cannot give that.
        self.progress = self._state._saves + (3 if is_kept else 0)
        self.commit = Offer.of(self.commit, self._copied, is_kept).number
        if is_kept:
            for each in self._handlers.values():
                each.restore()
        else:
            self._restore_copy()
        ObjectState.restore(self._state)
        if not is_kept:
            self._copies, self._must_copy = self._kept.copies, False
        self.is_changed = True  # until all marks are of one commit again
        for each in self._handlers.values():
            each.save()
        self.is_changed = False

    def _restore_copy(self):
        if self._kept is None:
            raise RuntimeError("hvd.elastic: the last copy was interrupted, so that nothing can be restored")
        self._state._kept = self._kept._replace(values=dict(self._kept.values))
        self._state._saves = self._saves
        for name, each in self._kept.copies.items():
            each.restore()
            setattr(self._state, name, each.value)  # it gets a mark if it was not there any more

    def begin_sync(self, of_all_ranks, rank):
        """Returns the rank from which all go on."""
        offers = of_all_ranks(Offer(self.commit, self._last) if self._has_part else Offer(0, 0))
        root, undone = choose(offers)
        is_root = len(offers) == 1 or rank() == root
        if is_root and undone > 0:
            print("Horovod: no rank that is left had the state of the last commit any more, so the training goes on "
                  f"from an earlier one ({undone} before)", file=sys.stderr, flush=True)
        self.is_changed = self.is_changed or not is_root  # until the sync is complete
        return root

    def end_sync(self, commit):
        """The state is that of this commit, and the handlers have marked it."""
        self._mark_is_of(commit)
        self._has_part = True
        self._copy()
