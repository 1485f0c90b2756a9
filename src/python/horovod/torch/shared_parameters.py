"""Parameters that several distributed optimizers step.

The gradient of such a parameter is one tensor, which one of the optimizers reduces for all of them: the one that was
made or used last, so that an old optimizer that nobody uses any more does not matter. The program makes and uses its
optimizers in the same order on all ranks. An optimizer that is used takes over what another one has in flight. All must
reduce over the same ranks and by the same operation.
"""
import gc

from horovod.common.operations import REDUCE_OPS
from horovod.torch.gradient_presence import DENSE
from horovod.torch.gradients_in_flight import land, take_off

_sharers = {}  # id of a parameter -> the list of its Gradient objects, one of each optimizer

_NAMES_OF_OPS = {op: f"hvd.{name}" for name, op in REDUCE_OPS.items()}


class OfSeveralOptimizers:
    """A part of Gradient: `sharers` are the Gradients of its parameter."""
    __slots__ = ()

    def leave_shared_group(self):
        """Called when another optimizer steps the parameter, too."""
        if self.group is not None:
            self.handle = self._handle()
            self.group.leave(self)
            self.group = None

    @property
    def reducing(self):
        """The Gradient that reduces what backward passes compute for the parameter."""
        return self.sharers[-1] if self.is_shared else self

    @property
    def is_reducing(self):
        return self.reducing is self

    def take_over(self):
        """From now on this optimizer reduces the gradient, and no longer the one that did so last. What that one has in
        flight keeps its name: other ranks may have started it, or take part in it later."""
        if self.is_reducing:
            return
        last = self.reducing
        self.sharers.remove(self)
        self.sharers.append(self)
        self.round_name = last.round_name or last.name
        self.left = max(1, self.settings.passes - last.settings.passes + last.left)
        self.kept_back, self.seen, self.used_version, self.given = (last.kept_back, last.seen, last.used_version,
                                                                    last.given)
        if last.is_submitted:
            self._take_what_is_in_flight(last)
        last.begin_round()
        last.seen = last.given = None

    def _take_what_is_in_flight(self, last):
        tensor, mine, others = last.tensor, self.of_all, last.of_all
        self.tensor, self.version, self.is_done = tensor, last.version, last.is_done
        self.handle, self.gathering, self.store = last._handle(), last.gathering, last.store
        last.tensor, last.handle, last.gathering, last.store = None, None, (), None
        if tensor is not None:
            land(tensor)
            take_off(tensor, self)
        mine.submitted, others.submitted = mine.submitted + 1, others.submitted - 1
        mine.kinds[self.place] = others.kinds[last.place]
        others.kinds[last.place] = DENSE
        mine.was_used, mine.was_read = mine.was_used or others.was_used, mine.was_read or others.was_read


def join(gradient):
    """The Gradient reduces from now on. All Gradients of the parameter have one list, `sharers`."""
    gradient.sharers = sharers = _sharers.setdefault(id(gradient.parameter), [])
    last = sharers[-1] if sharers else gradient
    sharers.insert(0, gradient)
    _note_whether_shared(sharers)
    for each in sharers if gradient.is_shared else ():
        each.leave_shared_group()
    if last is not gradient:
        if last.is_submitted or last.kept_back:
            gradient.take_over()
        else:
            sharers.append(sharers.pop(0))


def end_unused(parameters):
    """Called before Gradients of these parameters join. An optimizer that nobody has any more may have ended already on
    other ranks."""
    if any(id(parameter) in _sharers for parameter in parameters):
        gc.collect()


def leave(gradient):
    """Called when its optimizer no longer exists, or does not step the parameter any more."""
    sharers = gradient.sharers
    if gradient.is_shared and gradient.is_reducing:
        sharers[-2].take_over()
    sharers.remove(gradient)
    if not sharers:
        _sharers.pop(id(gradient.parameter), None)
    _note_whether_shared(sharers)
    gradient.sharers, gradient.is_shared = (), False


def _note_whether_shared(sharers):
    for each in sharers:
        each.is_shared = len(sharers) > 1


def check_reductions(gradient):
    """Raises RuntimeError if another optimizer reduces the gradient in another way."""
    if _rival_of(gradient) is None:
        return
    gc.collect()  # perhaps nobody has the other optimizer any more
    rival = _rival_of(gradient)
    if rival is not None:
        raise RuntimeError(
            f"The gradient of {gradient.name!r} would be reduced in two ways: by an optimizer with "
            f"{_described(gradient.settings)}, and by one with {_described(rival.settings)}. It is one tensor, so the "
            "first result would be taken for the other one, too. Give both optimizers the same op and process_set. To "
            "change these from step to step, wrap the same optimizer again. Delete an optimizer that is not used any "
            "more.")


def _rival_of(gradient):
    return next((other for other in gradient.sharers if _way(other.settings) != _way(gradient.settings)), None)


def _way(settings):
    return settings.op, settings.process_set.process_set_id


def _described(settings):
    process_set = settings.process_set
    ranks = "all ranks" if process_set.process_set_id == 0 else f"the ranks {process_set.ranks}"
    return f"op={_NAMES_OF_OPS[settings.op]} over {ranks}"
