"""torch's gradient scaler and distributed optimizers.

A scaler divides the gradients and looks for infinities in them. It must do that with the gradients of all ranks, also
with those that only other ranks have computed. Therefore the scaler waits for them first. With Adasum, where each rank
makes its own step, all ranks skip the step if one of them found an infinity.

One process has one scale. A rank may find an infinity in parameters that other ranks do not have: of a stage of its
own, of an expert, of a process set. Therefore the ranks of each distributed optimizer tell each other in update() what
they have found, and compare their scales.
"""
import functools
import weakref

import torch

from horovod import _ops
from horovod.torch.mpi_ops import Max, allreduce_async_

_agreements = weakref.WeakKeyDictionary()  # scaler -> _Agreement


def wait_for_gradients():
    """From now on every GradScaler of torch waits for the gradients first. A second call changes nothing."""
    scaler_class = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    if hasattr(scaler_class.step, "_of_horovod"):
        return
    unscale, check, step, update = (scaler_class.unscale_, scaler_class._check_inf_per_device, scaler_class.step,
                                    scaler_class.update)

    @functools.wraps(unscale)
    def unscale_of_all_ranks(self, optimizer):
        _synchronize(self, optimizer)
        result = unscale(self, optimizer)
        if self.is_enabled():
            _agree_about_infinities(self, optimizer)
        return result

    @functools.wraps(check)
    def check_of_all_ranks(self, optimizer):  # takes the place of unscale_() for fused optimizers
        check(self, optimizer)
        return _agree_about_infinities(self, optimizer)

    @functools.wraps(step)
    def step_of_all_ranks(self, optimizer, *args, **kwargs):
        _synchronize(self, optimizer)
        try:
            return step(self, optimizer, *args, **kwargs)
        finally:
            gradients = _gradients_of(optimizer)
            if gradients is not None:  # None if the scaler has skipped the step
                gradients.is_synchronized = gradients.is_ahead = False
            elif _combines_steps(optimizer):
                optimizer._distributed.passes.are_there = False

    @functools.wraps(update)
    def update_of_all_ranks(self, new_scale=None):
        if new_scale is None and self.is_enabled() and self in _agreements:
            _agreements[self].agree(self)
        return update(self, new_scale)

    step_of_all_ranks._of_horovod = True
    scaler_class.unscale_, scaler_class._check_inf_per_device = unscale_of_all_ranks, check_of_all_ranks
    scaler_class.step, scaler_class.update = step_of_all_ranks, update_of_all_ranks


def _gradients_of(optimizer):
    distributed = getattr(optimizer, "_distributed", None)
    return getattr(distributed, "gradients", None)


def _combines_steps(optimizer):
    return getattr(optimizer, "_combines_steps", False)


def _synchronize(scaler, optimizer):
    if not scaler.is_enabled():
        return
    gradients = _gradients_of(optimizer)
    if gradients is None and not _combines_steps(optimizer):
        return
    _make_scale(scaler, optimizer)
    if gradients is not None:
        gradients.take_names()
    if gradients is not None and optimizer._distributed.should_synchronize and not gradients.is_synchronized:
        optimizer.synchronize()
        gradients.is_ahead = True
    _agreement_of(scaler).add(optimizer)


def _make_scale(scaler, optimizer):
    """A scaler has no scale before its first scale(). A rank without a batch has not called that."""
    if scaler._scale is None:
        parameter = next(parameter for group in optimizer.param_groups for parameter in group["params"])
        scaler.scale(torch.zeros((), device=parameter.device))


def _agree_about_infinities(scaler, optimizer):
    found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
    if _combines_steps(optimizer):
        optimizer._agree_about_infinities(found)
    return found


def _agreement_of(scaler):
    found = _agreements.get(scaler)
    if found is None:
        found = _agreements[scaler] = _Agreement()
    return found


class _Agreement:
    """What the ranks tell each other in a scaler's update().

    A rank keeps telling after it has stepped a distributed optimizer once, because others may step more often than it:
    one process would have one scale for all of them.
    """

    def __init__(self):
        self._names = {}  # process set -> the names of the optimizers of this set that the scaler has stepped
        _ops.to_begin_anew.add(self)

    def begin_anew(self):
        self._names.clear()

    def add(self, optimizer):
        distributed = optimizer._distributed
        self._names.setdefault(distributed.settings.process_set, set()).add(distributed.names.of("scale"))

    def agree(self, scaler):
        """Makes all ranks know if one of them has found an infinity. Raises RuntimeError if their scales differ."""
        scale = scaler.get_scale()
        inverse = 1 / scale if scale else torch.inf
        found = max((value.item() for state in scaler._per_optimizer_states.values()
                     for value in state["found_inf_per_device"].values()), default=0.0)
        # Max leaves the numbers as they are where a rank has joined, which takes part with zeros.
        told = [(torch.tensor([found, scale, inverse], dtype=torch.float64, device="cpu"), process_set, min(names))
                for process_set, names in self._names.items()
                if process_set.process_set_id is not None and process_set.size() > 1]
        _ops.synchronize_all([allreduce_async_(tensor, None, name, Max, process_set=process_set)
                              for tensor, process_set, name in told])
        for tensor, _, _ in told:
            found_anywhere, greatest, greatest_inverse = tensor.tolist()
            if greatest != scale or greatest_inverse != inverse:
                other = greatest if greatest != scale else 1 / greatest_inverse
                raise RuntimeError(
                    f"The scale of a GradScaler is {scale} on this rank and {other} on another, and gradients of both "
                    "scales were averaged. Give the scaler the same init_scale on all ranks, load its state on all of "
                    "them or none, and call update() equally often on all. Give each process set its own scaler if "
                    "ranks step optimizers of sets that overlap.")
            found = max(found, found_anywhere)
        if told:
            of_all_ranks = {torch.device("cpu"): torch.tensor(found, dtype=torch.float32, device="cpu")}
            scaler._per_optimizer_states[id(self)]["found_inf_per_device"] = of_all_ranks
