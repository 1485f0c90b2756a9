"""torch's gradient scaler and distributed optimizers.

A scaler divides the gradients and looks for infinities in them. It must do that with the gradients of all ranks, also
with those that only other ranks have computed. Therefore the scaler waits for them first. With Adasum, where each rank
makes its own step, all ranks skip the step if one of them found an infinity.
"""
import functools

import torch


def wait_for_gradients():
    """From now on every GradScaler of torch waits for the gradients first. A second call changes nothing."""
    scaler_class = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    if hasattr(scaler_class.step, "_of_horovod"):
        return
    unscale, step = scaler_class.unscale_, scaler_class.step

    @functools.wraps(unscale)
    def unscale_of_all_ranks(self, optimizer):
        _synchronize(self, optimizer)
        result = unscale(self, optimizer)
        if self.is_enabled() and getattr(optimizer, "_combines_steps", False):
            found = self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
            optimizer._agree_about_infinities(list(found.values()))
        return result

    @functools.wraps(step)
    def step_of_all_ranks(self, optimizer, *args, **kwargs):
        _synchronize(self, optimizer)
        try:
            return step(self, optimizer, *args, **kwargs)
        finally:
            gradients = _gradients_of(optimizer)
            if gradients is not None:  # None if the scaler has skipped the step
                gradients.is_synchronized = gradients.is_ahead = False
            elif getattr(optimizer, "_combines_steps", False):
                optimizer._distributed.passes.are_there = False

    step_of_all_ranks._of_horovod = True
    scaler_class.unscale_, scaler_class.step = unscale_of_all_ranks, step_of_all_ranks


def _gradients_of(optimizer):
    distributed = getattr(optimizer, "_distributed", None)
    return getattr(distributed, "gradients", None)


def _synchronize(scaler, optimizer):
    gradients = _gradients_of(optimizer)
    if scaler.is_enabled() and gradients is not None and optimizer._distributed.should_synchronize and \
            not gradients.is_synchronized:
        optimizer.synchronize()
        gradients.is_ahead = True
