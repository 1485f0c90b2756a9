"""restore and latest: collective functions. Rank 0 opens the files; the other ranks get the contents by broadcasts. Of
checkpoints in shards the nodes open the files themselves."""
import contextlib
import copy
import os
import sys

import torch

from horovod import _core, _ops
from horovod.checkpoint import resharded
from horovod.checkpoint import sharded as sharded_files
from horovod.checkpoint import training, tree
from horovod.checkpoint.collective import (
    _OURS, _broadcast, end_of_links, find_library, on_rank_0, on_this_rank_0, path_text, refuse_together,
    share_outcome)
from horovod.checkpoint.sampler import Sampler
from horovod.torch._job import rank, size


def _open(path, *before):
    find_library()
    return _core.checkpoint_open(path, *before)


def restore(path, model=None, optimizer=None, *, strict=True, random_numbers=True, **objects):
    """Loads a checkpoint into the given objects, on all ranks. Returns the rest as a dict with "step". Collective.

    path: a file, or a folder: then its newest whole checkpoint is loaded. If a checkpoint is damaged, the one before it
    is loaded, with a warning: of a file PATH.previous, of a folder the next newest. The number of ranks may differ from
    the number when it was saved.
    strict: refuse a checkpoint that does not have exactly the model's tensors; otherwise load the tensors that fit.
    random_numbers: set the random number generators of the ranks that had saved theirs.
    objects: objects as given to save(); their load_state_dict() is called.

    The dict has the items that were saved as `extra`, "step" (None if save() was not given one), and the state of
    saved objects that are not given here. If anything does not fit, nothing is loaded and all ranks raise ValueError,
    or what an object's load_state_dict() raised.
    """
    path = path_text(path)
    return _restore_newest(path, on_this_rank_0(lambda: _open(path)), model, optimizer, strict, random_numbers, objects)


def restore_or_none(folder, model, optimizer, *, strict=True, random_numbers=True, **objects):
    """As restore(), but returns None if there is no checkpoint in the folder."""
    opened = on_this_rank_0(lambda: _open_if_any(folder))
    if on_rank_0(lambda: opened is None):
        return None
    return _restore_newest(folder, opened, model, optimizer, strict, random_numbers, objects)


def _open_if_any(folder):
    try:
        return _open(folder)
    except ValueError:  # the folder has no checkpoint, be it whole or damaged
        return None


def _restore_newest(path, opened, *arguments):
    """Restores what rank 0 has opened; if its shards are not whole, the checkpoint before it."""
    why = None
    while True:
        try:
            return _restore(opened, *arguments)
        except _ShardsDamaged as damaged:
            why = str(damaged)
        opened = on_this_rank_0(lambda: _open_before(path, opened, why))


def _open_before(path, opened, why):
    """Opens the checkpoint before the one that is open, whose shards are not whole."""
    _, _, found, _, sequence, _ = opened
    try:
        if os.path.isdir(path):
            older = _open(path, sequence)
        else:
            found = end_of_links(found)
            previous = f"{found.removesuffix('.previous')}.previous"
            older = _open(previous) if previous != found and os.path.exists(previous) else None
    except (OSError, ValueError):
        older = None
    if older is None:
        raise OSError(why)
    print(f"Horovod: {why}; using {older[2]} instead", file=sys.stderr)
    return older


class _ShardsDamaged(Exception):
    pass


def _restore(opened, model, optimizer, strict, random_numbers, objects):
    entries, found = on_rank_0(lambda: (tree.with_names_of_parameters(*opened[:2]), opened[2]))
    root = tree.unflatten([tuple(entry) for entry in entries])
    is_sharded = "shards" in root
    if is_sharded:
        step = root.get("step")
        try:
            root = _read_shards(found, root, model, optimizer, strict)
        except OSError as error:
            raise _ShardsDamaged(str(error)) from None
        root["step"] = step
    refuse_together(_problem_with(root, found, model, optimizer, strict, objects))
    generators = root.pop("random", None)
    for name, wanted in (("model", model), ("optimizer", optimizer)):
        if wanted is None:
            root.pop(name, None)  # a caller that wants only the step need not read the rest of the file
    capsule = opened[0] if opened and not is_sharded else None
    if is_sharded:
        own = generators.get(f"rank_{rank()}") if random_numbers and generators else None
    else:
        # The model's memory is written last: until then an object may still refuse its state.
        _read(capsule, [item for name, part in root.items() if name != "model" for item in tree.tensors_in(part)], {})
        own = _read_own(capsule, generators) if random_numbers and generators else None
    _load_objects(root, objects)
    _load_model(capsule, root, model, strict, is_sharded)
    _load_optimizers(root, model, optimizer, objects)
    if own is not None:
        training.set_random_state(own.value())
        state = [torch.get_rng_state()]
        for each in objects.values():
            if isinstance(each, Sampler):
                each.keep_random_state(state)
    return _rest_of(root, objects)


def _read_shards(path, index, model, optimizer, strict):
    shards, split = index["shards"], dict(index.get("split", {}))
    if sharded_files.count_ranks(shards) == size():
        return sharded_files.read_own(path, shards, _open)
    return resharded.read(path, shards, split, resharded.Wanted(model, optimizer, strict), _open)


def _problem_with(root, path, model, optimizer, strict, objects):
    problem = None
    if model is not None:
        problem = training.problem_with_model(root["model"], model) if isinstance(root.get("model"), tree.Node) else \
            "no model was saved"
        if problem and strict:
            return f"{path} is of another model than this one: {problem}"
        if not isinstance(root.get("model"), tree.Node):
            root["model"] = tree.Node("dict")
    if optimizer is not None:
        problem = training.problem_with_optimizer(root["optimizer"], optimizer, model) \
            if isinstance(root.get("optimizer"), tree.Node) else "no optimizer was saved"
        if problem:
            return f"{path} is of another optimizer than this one: {problem}"
    missing = [name for name in objects if name not in root]
    if missing:
        return f"{path} has no {missing[0]}; it has {', '.join(sorted(set(root) - set(_OURS))) or 'no objects'}"
    for name, each in objects.items():
        problem = training.problem_with_object(root[name], each)
        if problem:
            return f"{path} is of another {name} than this one: {problem}"
    return None


def _read(opened, wanted, places):
    """Fills the tensors. While rank 0 reads a tensor from the file, the broadcasts of earlier ones are already under
    way."""
    handles, failure = [], None
    for item in wanted:
        item.tensor = places.get(item.path)
        if item.tensor is None:
            item.tensor = torch.empty(item.shape, dtype=item.dtype)
        failure = _fetch(opened, item, failure)
        if size() > 1 and item.bytes():
            handles.append(_broadcast(item.path, item.tensor.data_ptr(), item.bytes(), item.tensor))
    _ops.synchronize_all(handles)
    share_outcome(failure)


def _fetch(opened, item, failure):
    """Reads one tensor on rank 0. After a failure it reads no more, but its caller still starts the broadcasts,
    because the other ranks have started theirs."""
    if opened is None or failure is not None or not item.bytes():
        return failure
    try:
        _core.checkpoint_read(opened, item.path, item.tensor.data_ptr(), item.bytes())
    except (OSError, ValueError) as error:
        return error
    return None


def _read_own(opened, generators):
    """Returns this rank's random number generators, None if none were saved for it. The generators of all ranks are
    broadcast in one piece."""
    items = list(generators.tensors())
    memory = torch.empty(sum(tree.aligned(item.bytes()) for item in items), dtype=torch.uint8)
    at, failure = 0, None
    for item in items:
        item.tensor = memory[at:at + item.bytes()].view(item.dtype).view(item.shape)
        at += tree.aligned(item.bytes())
        failure = _fetch(opened, item, failure)
    if size() > 1:
        _ops.finish(_broadcast("random", memory.data_ptr(), memory.numel(), memory))
    share_outcome(failure)
    return generators.get(f"rank_{rank()}")


def _load_objects(root, objects):
    """Loads the objects that alone know what fits them. If one refuses, all of them get back what they had, on all
    ranks, and all ranks raise its exception."""
    before = {}

    def load():
        for name, each in objects.items():
            if not training.is_checked_beforehand(each):
                with contextlib.suppress(Exception):  # some states cannot be copied
                    before[name] = copy.deepcopy(each.state_dict())
                each.load_state_dict(tree.value_of(root[name]))

    _, failure = sharded_files.tried(load, "checkpoint.loaded")
    if failure is not None:
        for name, state in before.items():
            with contextlib.suppress(Exception):
                objects[name].load_state_dict(state)
        raise failure


def _load_model(capsule, root, model, strict, is_sharded):
    if model is None:
        return
    places, in_place = ({}, False) if is_sharded else training.places_in_model(root["model"], model)
    if not is_sharded:
        _read(capsule, list(root["model"].tensors()), places)
    if in_place:
        return
    values = root["model"].value()
    own = training.unwrapped(model).state_dict()
    if not strict:
        values = {name: value for name, value in values.items() if name in own and (
            not isinstance(value, torch.Tensor) or value.shape == own[name].shape)}
    training.unwrapped(model).load_state_dict(values, strict=strict)


def _load_optimizers(root, model, optimizer, objects):
    if optimizer is not None:
        training.load_optimizer(optimizer, model, root["optimizer"].value())
    for name, each in objects.items():
        if training.is_checked_beforehand(each):
            training.load_checked(each, tree.value_of(root[name]))


def _rest_of(root, objects):
    rest = {}
    for name, item in root.items():
        if name in objects or name in ("model", "optimizer", "step", "ranks", "horovod", "saved_at"):
            continue
        value = tree.value_of(item)
        if name == "extra" and isinstance(value, dict):
            rest.update(value)
        else:
            rest[name] = value
    rest["step"] = root.get("step")
    return rest


def latest(folder):
    """Returns the path of the newest whole checkpoint in a folder, on all ranks; None if there is none. Collective. All
    files of a checkpoint in shards must be whole."""
    folder = path_text(folder)
    before = ()
    while True:
        opened = on_this_rank_0(lambda: _open_newest_or_none(folder, before))
        told = on_rank_0(lambda: opened and [opened[2], opened[4], _shards_of(opened[1])])
        if told is None:
            return None
        path, sequence, shards = told
        why = sharded_files.problem_with_shards(path, shards, _open) if shards else None
        if why is None:
            return path
        if rank() == 0:
            print(f"Horovod: {why}; {path} is not whole", file=sys.stderr)
        before = (sequence,)


def _open_newest_or_none(folder, before):
    if not os.path.isdir(folder):
        return None
    os.listdir(folder)  # raises if it may not be read
    try:
        return _open(folder, *before)
    except (OSError, ValueError):
        return None  # the warnings have told the user the reason


def _shards_of(entries):
    return tree.unflatten([tuple(entry) for entry in entries]).get("shards")
