"""Batch normalisation over the batches of all ranks."""
import torch
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from horovod.common.process_sets import global_process_set
from horovod.torch.mpi_ops import Sum, allgather, allreduce


class SyncBatchNorm(_BatchNorm):
    """Like torch.nn.BatchNorm1d/2d/3d, over the batches of all ranks together. Their sizes may differ.

    Input: at least two dimensions; the second one counts the channels. The operations of all such layers have the same
    names. Therefore only one layer may run at a time, the same one on all ranks.
    process_set: the ranks whose batches are taken together. On all other ranks the layer is a plain one.
    """

    process_set = global_process_set  # the layer itself has the attribute only for another set

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True,
                 process_set=global_process_set):
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        if process_set is not global_process_set:
            self.process_set = process_set

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm: expected an input of at least 2 dimensions, found {input.dim()}")

    def forward(self, input):
        self._check_input_dim(input)
        uses_batch = self.training or self.running_mean is None and self.running_var is None
        momentum = 0.0 if self.momentum is None else self.momentum
        tracks = self.training and self.track_running_stats
        if tracks and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # None: the mean of all batches so far
                momentum = 1.0 / float(self.num_batches_tracked)
        mean, variance = (self.running_mean, self.running_var) if not self.training or tracks else (None, None)
        if not uses_batch or not self._has_others():
            return functional.batch_norm(input, mean, variance, self.weight, self.bias, uses_batch, momentum, self.eps)
        output, mean, variance, count = _Normalise.apply(input, self.weight, self.bias, self.eps, self.process_set)
        if tracks and self.running_mean is not None:
            _move_towards(self.running_mean, mean, momentum)
            _move_towards(self.running_var, variance * (count / (count - 1)), momentum)
        return output

    def _has_others(self):
        is_in = self.process_set._check_id() == 0 or self.process_set.included()
        return is_in and self.process_set.size() > 1


def _move_towards(running, found, momentum):
    with torch.no_grad():
        running.lerp_(found.to(running.dtype), momentum)


class _Normalise(torch.autograd.Function):
    """input, weight, bias, eps, process set -> output, mean, variance (divided by count, not count - 1) and count, a
    tensor. (To know its value would be to wait for the device.)"""

    @staticmethod
    def forward(ctx, input, weight, bias, eps, process_set):
        x = input.to(_type_of_sums(input))
        mean, variance, count = _statistics(x, process_set)
        if _count(x) <= 1 and count <= 1:
            raise ValueError(f"SyncBatchNorm: expected more than 1 value per channel when training, found {int(count)} "
                             "on all ranks together")
        ctx.save_for_backward(input, weight, mean, variance, count)
        ctx.how = eps, process_set
        output, _ = _normal(x, mean, variance, eps)
        if weight is not None:
            output = output * _along_channels(weight.to(x.dtype), x)
        if bias is not None:
            output = output + _along_channels(bias.to(x.dtype), x)
        ctx.mark_non_differentiable(mean, variance, count)
        return output.to(input.dtype), mean, variance, count

    @staticmethod
    def backward(ctx, gradient, *_):
        input, weight, mean, variance, count = ctx.saved_tensors
        eps, process_set = ctx.how
        x = input.to(_type_of_sums(input))
        g = gradient.to(x.dtype)
        if torch.is_grad_enabled():  # create_graph=True: what follows is differentiated again
            mean, variance = _with_derivatives(x, mean, count, process_set)
        normal, inverse = _normal(x, mean, variance, eps)
        over = _all_but_channels(g)
        of_bias, of_weight = g.sum(over), (g * normal).sum(over)
        of_input = None
        if ctx.needs_input_grad[0]:
            # The input changes the mean and the variance, and so the output on all ranks.
            sums = allreduce(torch.stack([of_bias, of_weight]), name="sync_batch_norm.sum_dy", op=Sum,
                             process_set=process_set) / count
            of_input = g - _along_channels(sums[0], g) - normal * _along_channels(sums[1], g)
            of_input = of_input * _along_channels(inverse if weight is None else inverse * weight.to(g.dtype), g)
            of_input = of_input.to(gradient.dtype)
        if weight is None:
            return of_input, None, None, None, None
        # Not summed over ranks: the optimizer averages them like the gradients of all other parameters.
        return of_input, of_weight.to(weight.dtype), of_bias.to(weight.dtype), None, None


def _normal(x, mean, variance, eps):
    """Returns x with mean 0 and variance 1, and the factor for that."""
    inverse = torch.rsqrt(variance + eps)
    return (x - _along_channels(mean, x)) * _along_channels(inverse, x), inverse


def _with_derivatives(x, mean, count, process_set):
    """Returns the mean and the variance over all ranks as functions of x. The sums are of what differs from the known
    mean: no large numbers are subtracted from each other."""
    difference = x - _along_channels(mean, x)
    over = _all_but_channels(x)
    sums = torch.stack([difference.sum(over), (difference * difference).sum(over)])
    first, second = (allreduce(sums, name="sync_batch_norm.again", op=Sum, process_set=process_set) / count).unbind()
    return mean + first, second - first * first


def _type_of_sums(tensor):
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _along_channels(values, x):
    return values.view(1, -1, *[1] * (x.dim() - 2))


def _all_but_channels(x):
    return [0, *range(2, x.dim())]


def _count(x):
    """Returns how many values each channel has on this rank."""
    return x.numel() // x.shape[1] if x.shape[1] else 0


def _statistics(x, process_set):
    """Returns the mean and variance of each channel, and its number of values, over all ranks together."""
    count = _count(x)
    own = torch.zeros(2 * x.shape[1] + 1, dtype=torch.float64, device=x.device)
    own[0] = count
    if count:
        variance, mean = torch.var_mean(x, _all_but_channels(x), correction=0)
        own[1:] = torch.cat([mean, variance])
    found = allgather(own.unsqueeze(0), name="sync_batch_norm.mean", process_set=process_set)
    counts, means, variances = found[:, :1], *found[:, 1:].chunk(2, 1)
    total = counts.sum()
    share = counts / total.clamp(min=1)
    mean = (means * share).sum(0)
    # The variance within each rank's part, plus that of the parts' means around the whole mean. No large numbers are
    # subtracted from each other.
    variance = ((variances + (means - mean) ** 2) * share).sum(0)
    return mean.to(x.dtype), variance.to(x.dtype), total
