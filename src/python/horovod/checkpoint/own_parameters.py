"""A warning before a checkpoint in one piece loses parameters that ranks have of their own, such as experts."""
import warnings
import weakref
import zlib

import torch

from horovod.checkpoint import training
from horovod.torch._job import rank, size
from horovod.torch.mpi_ops import Max, allreduce

_LOOKED_AT = 64  # elements of each parameter: parameters that were trained apart differ nearly everywhere
_NONE = -(1 << 62)  # of a rank that was given no model; below all sums and their negatives

_told = weakref.WeakSet()  # the models of which the user has been told


def warn_of_own_parameters(model):
    """Collective. Rank 0 warns, once for each model, if ranks have other parameters than it has."""
    if size() == 1:
        return
    names, sums = _sums(model)
    # First a number for all of it, since jobs are large and parameters are mostly equal.
    (same, _), (same_count, count) = _agreed([zlib.crc32(repr((names, sums)).encode()), len(names)], bool(names))
    if same:
        return
    name = None
    if same_count:
        each = _agreed(sums if names else [0] * count, bool(names))
        name = next((name for name, (same, _) in zip(names, each) if not same), None)
    if rank() == 0 and names and training.unwrapped(model) not in _told:
        _told.add(training.unwrapped(model))
        which = f"such as {name!r}" if name else "also in their number or names"
        warnings.warn(f"the parameters of the model differ between ranks, {which}; a checkpoint in one piece has those "
                      "of rank 0 for all. Save with sharded=True, which keeps those of every rank", stacklevel=4)


def _agreed(numbers, counts):
    """For each number, whether all ranks that count have the same, and the greatest."""
    none = [_NONE] * len(numbers)
    both = torch.tensor([numbers, [-each for each in numbers]] if counts else [none, none], dtype=torch.int64)
    most, least = allreduce(both, op=Max, name=f"checkpoint.parameters.{len(numbers)}").tolist()
    return [(a == -b or a == _NONE, a) for a, b in zip(most, least)]


def _sums(model):
    """The names of the model's parameters, and a checksum of some elements of each."""
    model = training.unwrapped(model)
    if not isinstance(model, torch.nn.Module):
        return [], []
    parameters = [(name, each.detach()) for name, each in model.named_parameters() if _can_be_looked_at(each)]
    if not parameters:
        return [], []
    samples = [each.reshape(-1)[::max(1, each.numel() // _LOOKED_AT)].double().cpu()
               for _, each in parameters]
    return [name for name, _ in parameters], [zlib.crc32(bytes(memoryview(each.numpy()))) for each in samples]


def _can_be_looked_at(parameter):
    return parameter.is_floating_point() and parameter.device.type != "meta" and \
        not torch.nn.parameter.is_lazy(parameter) and parameter.numel() > 0
