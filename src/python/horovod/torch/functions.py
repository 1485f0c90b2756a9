"""Makes models, optimizers and objects equal on all ranks."""
import collections
import itertools

import torch

from horovod.common.objects import allgather_object, broadcast_object
from horovod.common.process_sets import global_process_set
from horovod.torch._tensors import DTYPES
from horovod.torch.mpi_ops import broadcast_async_, synchronize


def broadcast_parameters(params, root_rank, process_set=global_process_set):
    """Copies the root's parameters to all ranks, in place.

    params: model.state_dict(), a list of tensors, or a list of (name, tensor) such as model.named_parameters().
    root_rank: the root's rank in the whole job, even if process_set is not the global set.
    """
    if isinstance(params, dict):
        params = sorted(params.items())
    elif isinstance(params, (list, tuple)) or hasattr(params, "__next__"):
        params = [entry if isinstance(entry, tuple) else (None, entry) for entry in params]
    else:
        raise ValueError(f"broadcast_parameters takes a state_dict, a list of tensors or a list of (name, tensor), "
                         f"not {type(params).__name__}")
    unnamed = itertools.count()
    started = []
    for name, tensor in params:
        if not isinstance(tensor, torch.Tensor):
            _check_is_no_state_of_more(name, tensor)
            continue  # other entries of a state_dict (get_extra_state)
        name = name or f"broadcast_parameters.noname.{next(unnamed)}"
        started += _start_broadcasts(tensor, root_rank, name, process_set)
    for finish in started:
        finish()


def _check_is_no_state_of_more(name, entry):
    """Raises ValueError for the state_dict of a model or optimizer within a checkpoint, of which nothing would be
    sent. A module's own state (get_extra_state) may be anything."""
    if str(name).endswith("_extra_state"):
        return
    if isinstance(entry, (torch.nn.Module, torch.optim.Optimizer)) or _is_dict_with_tensors(entry):
        raise ValueError(f"broadcast_parameters: expected tensors, found {name!r} of type {type(entry).__name__}; give "
                         "it the state_dict of one model, broadcast_optimizer_state an optimizer, and broadcast_object "
                         "anything else")


def _is_dict_with_tensors(entry):
    return isinstance(entry, dict) and any(isinstance(value, torch.Tensor) or _is_dict_with_tensors(value)
                                           for value in entry.values())


def _start_broadcasts(tensor, root_rank, name, process_set):
    """Starts the broadcasts of a tensor. Returns functions that wait for their ends."""
    if tensor.layout in _PARTS:  # all ranks have the same number of elements that are not zero
        return [_start_broadcast(part(tensor.detach()), root_rank, f"{name}.{part.__name__}", process_set)
                for part in _PARTS[tensor.layout]]
    return [_start_broadcast(tensor, root_rank, name, process_set)]


# Methods that return the tensors of which a sparse tensor consists; no copies.
_PARTS = {torch.sparse_coo: (torch.Tensor._indices, torch.Tensor._values),
          torch.sparse_csr: (torch.Tensor.crow_indices, torch.Tensor.col_indices, torch.Tensor.values),
          torch.sparse_csc: (torch.Tensor.ccol_indices, torch.Tensor.row_indices, torch.Tensor.values),
          torch.sparse_bsr: (torch.Tensor.crow_indices, torch.Tensor.col_indices, torch.Tensor.values),
          torch.sparse_bsc: (torch.Tensor.ccol_indices, torch.Tensor.row_indices, torch.Tensor.values)}


def _start_broadcast(tensor, root_rank, name, process_set):
    """Starts an in-place broadcast, of a copy if the tensor is not contiguous. Returns a function that waits for its
    end."""
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    # Types that the library cannot reduce (complex, small floating-point types) are sent as bytes.
    sent = dense if dense.dtype in DTYPES else dense.reshape(-1).view(torch.uint8)
    handle = broadcast_async_(sent, root_rank, name, process_set)

    def finish():
        synchronize(handle)
        if dense.data_ptr() != tensor.data_ptr():
            with torch.no_grad():
                _once(tensor, tensor).copy_(_once(dense, tensor))

    return finish


def _once(tensor, repeated):
    """Returns the part of the tensor that is each element of `repeated` once, if that was made by expand()."""
    for dimension, (length, stride) in enumerate(zip(repeated.shape, repeated.stride())):
        if stride == 0 and length > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def broadcast_optimizer_state(optimizer, root_rank, model=None, process_set=global_process_set):
    """Copies the root's optimizer state and options (learning rate, …) to all ranks, also those for groups that are
    added later.

    Every rank takes over the root's state, whatever its own was. No step is made. If the root's optimizer is fresh, so
    are all others. model: no longer needed.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state: it is not a set of tensors of known shape")
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    described = broadcast_object(_describe(optimizer, parameters), root_rank, "broadcast_optimizer_state", process_set)
    _adopt(optimizer, parameters, described, root_rank, process_set)
    _take_names(optimizer, process_set)
    if not optimizer.state:
        show_zero_gradients(optimizer, parameters, model)


def _take_names(optimizer, process_set):
    """A copy of a distributed optimizer has no number until it is used. A rank that had joined (hvd.join) has not used
    it, and others have: here all of them give it one, before they make other optimizers."""
    distributed = getattr(optimizer, "_distributed", None)
    if distributed is not None and distributed.gradients is not None \
            and distributed.settings.process_set.process_set_id == process_set.process_set_id:
        distributed.gradients.take_names()


def show_zero_gradients(optimizer, parameters, model):
    """Sets zero gradients at a fresh distributed optimizer. Scripts written for Horovod expect these; no step is
    made with them."""
    if not hasattr(optimizer, "_distributed") or isinstance(optimizer, torch.optim.SparseAdam):
        return
    sparse = {id(module.weight) for module in model.modules() if getattr(module, "sparse", False) is True} \
        if model is not None else set()
    for parameter in parameters:
        if parameter.requires_grad and parameter.grad is None and id(parameter) not in sparse:
            optimizer._distributed.shown.show(parameter)


def _describe(optimizer, parameters):
    """Returns what the root sends: options per group and those of new groups, its parameters, and their state with
    tensors as shape and dtype.

    An optimizer may have state under other keys than parameters. Such state is sent unchanged. One tensor may be the
    learning rate of several groups and of new ones: it arrives as one tensor, because all options travel together.
    """
    defaults = getattr(optimizer, "defaults", {})
    options = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    states = []
    for parameter in parameters:
        state = optimizer.state.get(parameter)
        if isinstance(state, dict):
            state = {key: _TensorLike(value) if _is_dense(value) else value for key, value in state.items()}
        states.append(state)
    others = {key: value for key, value in optimizer.state.items() if not isinstance(key, torch.Tensor)}
    return options, defaults, _known_as(optimizer, parameters), states, others


def _known_as(optimizer, parameters):
    """The name (None if there is none), the shape and the group of each parameter."""
    names = optimizer._parameter_names if hasattr(optimizer, "_distributed") else {}
    groups = [i for i, group in enumerate(optimizer.param_groups) for _ in group["params"]]
    return [(names.get(parameter), tuple(parameter.shape), group) for parameter, group in zip(parameters, groups)]


def _is_dense(value):
    """True for a tensor that is broadcast by itself. A sparse one (momentum of an embedding) is sent with the other
    values."""
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


class _TensorLike:
    """The shape and dtype of a tensor, and whether it is on its parameter's device. Adam's step, for example, stays
    on the host."""

    def __init__(self, tensor):
        self.shape, self.dtype, self.on_host = tensor.shape, tensor.dtype, tensor.is_cpu

    def fits(self, found):
        return _is_dense(found) and found.shape == self.shape and found.dtype == self.dtype

    def make(self, parameter):
        return torch.zeros(self.shape, dtype=self.dtype, device="cpu" if self.on_host else parameter.device)


def _in_the_order_of(known_as, optimizer, parameters):
    """Returns this rank's parameters in the root's order, matched by name if they have names. Or a text that tells
    what differs."""
    own = _known_as(optimizer, parameters)
    if len(own) != len(known_as):
        return f"{len(known_as)} parameters there, {len(own)} here"
    of_name = {entry[0]: (parameter, entry) for parameter, entry in zip(parameters, own)}
    if of_name.keys() == {name for name, *_ in known_as} and len(of_name) == len(own):
        parameters, own = zip(*[of_name[name] for name, *_ in known_as]) if own else ([], [])
    for i, ((name, shape, group), (_, own_shape, own_group)) in enumerate(zip(known_as, own)):
        if own_shape != shape:
            return f"parameter {name or i} has shape {list(shape)} there, {list(own_shape)} here"
        if own_group != group:
            return f"parameter {name or i} is in group {group} there, in group {own_group} here"
    return parameters


def _adopt(optimizer, parameters, described, root_rank, process_set):
    options, defaults, known_as, states, others = described
    problem = None
    if len(options) != len(optimizer.param_groups):
        problem = f"{len(options)} parameter groups there, {len(optimizer.param_groups)} here"
    else:
        parameters = _in_the_order_of(known_as, optimizer, parameters)
        problem = parameters if isinstance(parameters, str) else None
    answers = allgather_object(problem, "broadcast_optimizer_state", process_set)
    problems = {who: found for who, found in zip(process_set.ranks, answers) if found}
    if problems:  # all ranks know of the difference, so all of them raise
        who, found = next(iter(problems.items()))
        raise ValueError(f"broadcast_optimizer_state: the optimizers of rank {root_rank} (there) and rank {who} (here) "
                         f"differ: {found}; build the optimizer in the same way on all ranks")
    for group, values in zip(optimizer.param_groups, options):
        group.update(values)
    if hasattr(optimizer, "defaults"):
        optimizer.defaults.update(defaults)
    for key in [key for key in optimizer.state if not isinstance(key, torch.Tensor) and key not in others]:
        del optimizer.state[key]
    optimizer.state.update(others)
    occurrences = collections.Counter()
    started = []
    for parameter, wanted in zip(parameters, states):
        if not isinstance(wanted, dict):
            optimizer.state.pop(parameter, None)
            if wanted is not None:
                optimizer.state[parameter] = wanted
            continue
        found = optimizer.state.get(parameter, {})
        state = optimizer.state[parameter] = {}
        for key, value in wanted.items():
            if not isinstance(value, _TensorLike):
                state[key] = value
                continue
            state[key] = found[key] if key in found and value.fits(found[key]) else value.make(parameter)
            started.append(_start_broadcast(state[key], root_rank, f"{key}.{occurrences[key]}", process_set))
            occurrences[key] += 1
    for finish in started:
        finish()


def load_as_saved(optimizer, state):
    """optimizer.load_state_dict(state), after which the values are those of the state bit for bit, whatever types they
    have."""
    optimizer.load_state_dict(state)
    if not isinstance(state.get("state"), dict) or "param_groups" not in state:
        return  # a layout of the optimizer's own
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    put_types_right(optimizer, {parameter: state["state"][number] for number, parameter in zip(numbers, parameters)
                                if number in state["state"]})


def put_types_right(optimizer, saved):
    """Gives the state of each parameter its saved types. load_state_dict() converts tensors to the type of their
    parameter, which may be less precise, also those within lists and dicts, and makes other things of some values."""
    for parameter, values in saved.items():
        loaded = optimizer.state.get(parameter)
        if isinstance(values, dict) and isinstance(loaded, dict):
            for key, value in values.items():
                if key in loaded:
                    loaded[key] = _as_saved(value, loaded[key], parameter.device)


def _as_saved(saved, loaded, device):
    """Returns the loaded value if it has the type of the saved one, else the saved one on the device."""
    if isinstance(saved, torch.Tensor):
        if isinstance(loaded, torch.Tensor):
            return loaded if loaded.dtype == saved.dtype else saved.to(loaded.device)
        return saved.to(device)
    if isinstance(saved, dict):
        there = loaded if isinstance(loaded, dict) else {}
        made = type(saved)()
        for key, value in saved.items():  # one by one: a Counter would count the pairs that it is made of
            made[key] = _as_saved(value, there.get(key), device)
        return made
    if type(saved) in (list, tuple):
        there = loaded if isinstance(loaded, (list, tuple)) and len(loaded) == len(saved) else [None] * len(saved)
        return type(saved)(_as_saved(value, now, device) for value, now in zip(saved, there))
    return saved
