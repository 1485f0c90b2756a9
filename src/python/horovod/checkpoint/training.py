"""The parts of a training that are saved: models, optimizers by the names of their parameters, and random numbers."""
import random
import sys

import torch

from horovod.checkpoint.tree import Node, Read, value_of
from horovod.torch._devices import accelerator
from horovod.torch.functions import load_as_saved, put_types_right


def unwrapped(model):
    """Returns the model inside the wrapper that torch.compile() makes, or the model itself."""
    return getattr(model, "_orig_mod", model)


# ---- optimizers -----------------------------------------------------------------------------------------------------


def names_of_parameters(optimizer, model):
    """Returns the optimizer's parameters in its order, and a name for each: the model's name for it, else param.0
    and so on, or optimizer.param.0 if the model has that name."""
    known, taken = {}, set()
    if model is not None:
        for name, parameter in unwrapped(model).named_parameters(remove_duplicate=False):
            known.setdefault(id(parameter), name)
            taken.add(name)
    parameters = _parameters_of(optimizer)
    names = [known.get(id(parameter)) or _free_name(f"param.{i}", taken) for i, parameter in enumerate(parameters)]
    return parameters, names


def _parameters_of(optimizer):
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _free_name(name, taken):
    while name in taken:
        name = f"optimizer.{name}"
    return name


def has_state_of_its_own(optimizer):
    """True for an optimizer with op=hvd.Adasum that keeps more than the count of its steps: each rank steps by its own
    gradients, and so has other moments than the other ranks."""
    return getattr(optimizer, "_combines_steps", False) and any(
        value is not None for state in optimizer.state.values() for key, value in state.items() if key != "step")


def optimizer_state(optimizer, model):
    """The optimizer's state_dict(), with the names of parameters instead of their numbers."""
    parameters, names = names_of_parameters(optimizer, model)
    state = optimizer.state_dict()
    groups = state["param_groups"]
    numbers = [number for group in groups for number in group["params"]]
    name_of = dict(zip(numbers, names)) if len(numbers) == len(parameters) else {}
    named = dict(state)
    named["state"] = {str(name_of.get(number, number)): value for number, value in state["state"].items()}
    named["param_groups"] = [{**group, "params": [str(name_of.get(number, number)) for number in group["params"]]}
                             for group in groups]
    return named


# The parts of an optimizer's state that have the shape of the parameter.
_LIKE_PARAMETERS = ("exp_avg", "exp_avg_sq", "momentum_buffer", "square_avg")


def problem_with_optimizer(found, optimizer, model):
    """Returns the reason why this optimizer cannot load the saved one (a Node), or None."""
    parameters, names = names_of_parameters(optimizer, model)
    groups = found.get("param_groups")
    if not isinstance(found.get("state"), Node) or not isinstance(groups, Node):
        return "the checkpoint's optimizer has no state and param_groups"
    if len(groups) != len(optimizer.param_groups):
        return f"{len(groups)} parameter groups were saved, this optimizer has {len(optimizer.param_groups)}"
    saved = _saved_names(groups)
    missing = sorted(set(names) - set(saved))
    surplus = sorted(set(saved) - set(names))
    if missing or surplus:
        return "; ".join(filter(None, (_listed("not saved", missing), _listed("not in this optimizer", surplus))))
    return _problem_with_shapes(found["state"], names, parameters)


def _problem_with_shapes(states, names, parameters):
    for name, parameter in zip(names, parameters):
        state = states.get(name)
        for key in _LIKE_PARAMETERS if isinstance(state, Node) else ():
            moment = state.get(key)
            if isinstance(moment, Read) and moment.shape != tuple(parameter.shape):
                return f"{name} was of shape {list(moment.shape)}, and is {list(parameter.shape)} here"
    return None


def _saved_names(groups):
    names = []
    for key in sorted(groups, key=int):
        names += value_of(groups[key]["params"])
    return names


def _listed(what, names):
    if not names:
        return ""
    return f"{what}: {', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}"


def load_optimizer(optimizer, model, saved):
    """The inverse of optimizer_state(). The values stay the same bit for bit, whatever types the state has."""
    parameters, names = names_of_parameters(optimizer, model)
    number_of = {name: number for number, name in enumerate(names)}
    of_name = dict(zip(names, parameters))
    state = dict(saved)
    state["state"] = {number_of.get(name, name): value for name, value in saved["state"].items()}
    state["param_groups"] = []
    for ours, group in zip(optimizer.param_groups, saved["param_groups"]):
        # In the order of this optimizer, which may differ from the order when the state was saved.
        numbers = [number_of[names[_position(parameters, parameter)]] for parameter in ours["params"]]
        state["param_groups"].append({**group, "params": numbers})
    optimizer.load_state_dict(state)
    put_types_right(optimizer, {of_name[name]: values for name, values in saved["state"].items() if name in of_name})


def _position(parameters, wanted):
    return next(i for i, parameter in enumerate(parameters) if parameter is wanted)


# ---- other objects --------------------------------------------------------------------------------------------------


def is_checked_beforehand(each):
    """True for objects whose state is compared with them before anything is loaded: problem_with_object() knows them.
    The others refuse a state themselves, when they load it."""
    return isinstance(each, (torch.nn.Module, torch.optim.Optimizer))


def problem_with_object(found, each):
    """Returns the reason why this object cannot load the saved state, or None if it can or only it knows."""
    if not is_checked_beforehand(each):
        return None
    if not isinstance(found, Node):
        return "what was saved is no state of such an object"
    if isinstance(each, torch.nn.Module):
        return problem_with_model(found, each)
    return _problem_with_numbered(found, each)


def _problem_with_numbered(found, optimizer):
    """As problem_with_optimizer(), for a state in which parameters have numbers."""
    groups = found.get("param_groups")
    if not isinstance(found.get("state"), Node) or not isinstance(groups, Node):
        return "the checkpoint's optimizer has no state and param_groups"
    saved = [_count(groups[key]["params"]) for key in sorted(groups, key=int)]
    own = [len(group["params"]) for group in optimizer.param_groups]
    if saved != own:
        return f"groups of {saved} parameters were saved, this optimizer has {own}"
    parameters = _parameters_of(optimizer)
    return _problem_with_shapes(found["state"], [str(number) for number in range(len(parameters))], parameters)


def _count(params):
    return params.shape[0] if isinstance(params, Read) else len(params)


def load_checked(each, state):
    """Loads an object for which problem_with_object() has found no problem."""
    if isinstance(each, torch.optim.Optimizer):
        load_as_saved(each, state)
    else:
        each.load_state_dict(state)


# ---- models ---------------------------------------------------------------------------------------------------------


def problem_with_model(found, model):
    """Returns the reason why this model cannot load the saved one (a Node), or None."""
    own = unwrapped(model).state_dict()
    missing = sorted(set(own) - set(found))
    surplus = sorted(set(found) - set(own))
    problems = [_listed("not saved", missing), _listed("not in this model", surplus)]
    for name, tensor in own.items():
        saved = found.get(name)
        if isinstance(saved, Read) and isinstance(tensor, torch.Tensor) and saved.shape != tuple(tensor.shape):
            problems.append(f"{name} was of shape {list(saved.shape)}, and is {list(tensor.shape)} here")
        elif isinstance(saved, Read) and isinstance(tensor, torch.Tensor) and \
                saved.dtype.is_floating_point != tensor.dtype.is_floating_point:
            problems.append(f"{name} was of {saved.dtype}, and is of {tensor.dtype} here")
    return "; ".join(filter(None, problems[:7])) or None


def places_in_model(found, model):
    """Returns {path: tensor} for what can be read directly into the model's memory, and whether this is the whole
    model."""
    module = unwrapped(model)
    own = module.state_dict()
    memory = {tensor.data_ptr() for tensor in (*module.parameters(), *module.buffers())}
    places = {}
    for name, saved in found.items():
        tensor = own.get(name)
        if isinstance(saved, Read) and isinstance(tensor, torch.Tensor) and tensor.is_cpu and \
                tensor.layout == torch.strided and tensor.is_contiguous() and tensor.dtype == saved.dtype and \
                tuple(tensor.shape) == saved.shape and tensor.data_ptr() in memory and tensor.numel():
            places[saved.path] = tensor.detach()
    return places, len(places) == len(found)


# ---- random numbers -------------------------------------------------------------------------------------------------


def random_state():
    """Returns the states of this process's generators: torch's, Python's, and NumPy's if it is loaded."""
    state = {"torch": torch.get_rng_state(), "python": list(random.getstate())}
    kind, gpus = accelerator()
    if hasattr(gpus, "get_rng_state") and getattr(gpus, "is_initialized", gpus.is_available)():
        # The current GPU may have another number after the restart.
        state[kind] = gpus.get_rng_state()
        others = {str(ordinal): gpus.get_rng_state(ordinal) for ordinal in _other_gpus(gpus)}
        if others:
            state["other_gpus"] = others
    if "numpy" in sys.modules:
        name, keys, position, has_gauss, gauss = sys.modules["numpy"].random.get_state(legacy=True)
        state["numpy"] = {"name": name, "keys": keys, "position": int(position), "has_gauss": int(has_gauss),
                          "gauss": float(gauss)}
    return state


def _other_gpus(gpus):
    """The GPUs that this process sees besides the current one."""
    if gpus.device_count() < 2:
        return []  # a module for one GPU may not know numbers of GPUs
    return [ordinal for ordinal in range(gpus.device_count()) if ordinal != gpus.current_device()]


def set_random_state(state):
    torch.set_rng_state(state["torch"].clone())  # copied: some versions of torch crash on a part of another tensor
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, gpus = accelerator()
    if kind in state:
        gpus.set_rng_state(state[kind])
        others = state.get("other_gpus", {})  # older checkpoints have none
        for ordinal in _other_gpus(gpus):
            if str(ordinal) in others:
                gpus.set_rng_state(others[str(ordinal)], ordinal)
    if "numpy" in state and "numpy" in sys.modules:
        numbers = state["numpy"]
        sys.modules["numpy"].random.set_state(
            (numbers["name"], numbers["keys"], numbers["position"], numbers["has_gauss"], numbers["gauss"]))
