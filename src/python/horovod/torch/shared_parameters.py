"""Parameters that several distributed optimizers step.

The gradient of such a parameter is one tensor. The optimizer that submits it first reduces it for all of them.
Therefore all must reduce it over the same ranks and by the same operation.
"""
import gc

from horovod.torch.mpi_ops import Adasum, Average, Max, Min, Product, Sum

_sharers = {}  # id of a parameter -> the list of its Gradient objects, one of each optimizer

_NAMES_OF_OPS = {Average: "hvd.Average", Sum: "hvd.Sum", Adasum: "hvd.Adasum", Min: "hvd.Min", Max: "hvd.Max",
                 Product: "hvd.Product"}


def join(gradient):
    """Returns the list of all Gradient objects of this one's parameter. It grows and shrinks with them."""
    sharers = _sharers.setdefault(id(gradient.parameter), [])
    sharers.append(gradient)
    return sharers


def leave(gradient):
    sharers = _sharers.get(id(gradient.parameter), [])
    sharers[:] = [other for other in sharers if other is not gradient]
    if not sharers:
        _sharers.pop(id(gradient.parameter), None)


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
