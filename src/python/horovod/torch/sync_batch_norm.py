"""Batch normalisation over the batches of all ranks."""
import torch
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from horovod.torch.mpi_ops import Sum, allgather, allreduce, size


class SyncBatchNorm(_BatchNorm):
    """Like torch.nn.BatchNorm1d/2d/3d, over the batches of all ranks together. Their sizes may differ.

    Input: at least two dimensions; the second one counts the channels. The operations of all such layers have the same
    names. Therefore only one layer may run at a time, the same one on all ranks.
    """

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

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
        if not uses_batch or size() == 1:
            return functional.batch_norm(input, mean, variance, self.weight, self.bias, uses_batch, momentum, self.eps)
        output, mean, variance, count = _Normalise.apply(input, self.weight, self.bias, self.eps)
        if tracks and self.running_mean is not None:
            _move_towards(self.running_mean, mean, momentum)
            _move_towards(self.running_var, variance * (count / (count - 1)), momentum)
        return output


def _move_towards(running, found, momentum):
    with torch.no_grad():
        running.lerp_(found.to(running.dtype), momentum)


class _Normalise(torch.autograd.Function):
    """input, weight, bias, eps -> output, mean, variance (divided by count, not count - 1) and count."""

    @staticmethod
    def forward(ctx, input, weight, bias, eps):
        x = input.to(_type_of_sums(input))
        mean, variance, count = _statistics(x)
        if count <= 1:
            raise ValueError(f"SyncBatchNorm: expected more than 1 value per channel when training, found {int(count)} "
                             "on all ranks together")
        inverse = torch.rsqrt(variance + eps)
        normal = (x - _along_channels(mean, x)) * _along_channels(inverse, x)
        ctx.save_for_backward(normal, weight, inverse)
        ctx.count = count
        output = normal if weight is None else normal * _along_channels(weight.to(x.dtype), x)
        if bias is not None:
            output = output + _along_channels(bias.to(x.dtype), x)
        ctx.mark_non_differentiable(mean, variance)
        return output.to(input.dtype), mean, variance, count

    @staticmethod
    def backward(ctx, gradient, *_):
        normal, weight, inverse = ctx.saved_tensors
        g = gradient.to(normal.dtype)
        over = [0, *range(2, g.dim())]
        of_bias, of_weight = g.sum(over), (g * normal).sum(over)
        of_input = None
        if ctx.needs_input_grad[0]:
            # The input changes the mean and the variance, and so the output on all ranks.
            sums = allreduce(torch.stack([of_bias, of_weight]), name="sync_batch_norm.sum_dy", op=Sum) / ctx.count
            of_input = g - _along_channels(sums[0], g) - normal * _along_channels(sums[1], g)
            of_input = of_input * _along_channels(inverse if weight is None else inverse * weight.to(g.dtype), g)
            of_input = of_input.to(gradient.dtype)
        if weight is None:
            return of_input, None, None, None
        # Not summed over ranks: the optimizer averages them like the gradients of all other parameters.
        return of_input, of_weight.to(weight.dtype), of_bias.to(weight.dtype), None


def _type_of_sums(tensor):
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _along_channels(values, x):
    return values.view(1, -1, *[1] * (x.dim() - 2))


def _statistics(x):
    """Returns the mean and variance of each channel, and its number of values, over all ranks together."""
    over = [0, *range(2, x.dim())]
    count = x.numel() // x.shape[1] if x.shape[1] else 0
    own = torch.zeros(2 * x.shape[1] + 1, dtype=torch.float64, device=x.device)
    own[0] = count
    if count:
        variance, mean = torch.var_mean(x, over, correction=0)
        own[1:] = torch.cat([mean, variance])
    found = allgather(own.unsqueeze(0), name="sync_batch_norm.mean")
    counts, means, variances = found[:, :1], *found[:, 1:].chunk(2, 1)
    total = counts.sum()
    share = counts / total.clamp(min=1)
    mean = (means * share).sum(0)
    # The variance within each rank's part, plus that of the parts' means around the whole mean. No large numbers are
    # subtracted from each other.
    variance = ((variances + (means - mean) ** 2) * share).sum(0)
    return mean.to(x.dtype), variance.to(x.dtype), float(total)
