"""save, restore and latest: collective functions. Only rank 0 opens files; the other ranks get the contents by
broadcasts."""
import contextlib
import datetime
import importlib.util
import json
import os
import pathlib
import sys

import torch

import horovod
from horovod import _core, _ops
from horovod.checkpoint import resharded
from horovod.checkpoint import sharded as sharded_files
from horovod.checkpoint import training, tree
from horovod.torch._job import rank, size
from horovod.torch.functions import allgather_object


# The names at the top of the tree that are not names of the user's objects.
_OURS = ("model", "optimizer", "extra", "step", "ranks", "random", "horovod", "saved_at", "shards",
         "split")


# ---- what ranks tell each other ---------------------------------------------------------------------------------


def _broadcast(name, address, count, keep):
    operation = _ops.transient(f"checkpoint.{name}", _core.BROADCAST, _core.UINT8, (count,))
    return _ops.submit(operation, address, address, 0, None, keep)


def share(value=None):
    """Returns rank 0's value, which JSON can express, on every rank."""
    text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8) if rank() == 0 else None
    length = torch.tensor([text.numel() if rank() == 0 else 0], dtype=torch.int64)
    _ops.finish(_broadcast("length", length.data_ptr(), 8, length))
    if text is None:
        text = torch.empty(int(length), dtype=torch.uint8)
    _ops.finish(_broadcast("text", text.data_ptr(), text.numel(), text))
    return json.loads(tree._bytes_of(text))


def share_outcome(failure, value=None):
    """Raises rank 0's failure on every rank, or returns rank 0's value if it has none. `failure`: an exception, or
    None."""
    told = share(sharded_files.told(failure) if failure else ["", value]) if size() > 1 else \
        ["", value] if failure is None else None
    if failure is not None:
        raise failure
    if told[0]:
        raise sharded_files.failure_of(told)
    return told[1]


def _tried_on_rank_0(do):
    """(the result of do(), the exception that do() raised) on rank 0; (None, None) elsewhere."""
    if rank() != 0:
        return None, None
    try:
        return do(), None
    except Exception as error:  # an exception of any kind: the other ranks wait for rank 0's answer
        return None, error


def on_rank_0(do):
    """Runs do() on rank 0. Every rank returns its result, which must be plain data, or raises its exception."""
    value, failure = _tried_on_rank_0(do)
    return share_outcome(failure, value)


def _refuse_together(problem):
    """Raises on all ranks if any rank has a problem. Otherwise the other ranks would wait for that rank."""
    answers = allgather_object(problem, "checkpoint.problems") if size() > 1 else [problem]
    for who, found in enumerate(answers):
        if found:
            raise ValueError(found if size() == 1 else f"{found} (rank {who})")


# ---- the HDF5 library ---------------------------------------------------------------------------------------------


def find_library():
    """Opens the HDF5 library. If the loader finds none, opens the copy that came with h5py."""
    try:
        _core.checkpoint_library(None)
        return
    except NotImplementedError as error:
        bundled = _library_of_h5py()
        if bundled is None:
            raise
        reason = error
    try:
        _core.checkpoint_library(str(bundled))
    except NotImplementedError:
        raise reason from None


def _library_of_h5py():
    with contextlib.suppress(ImportError, AttributeError, ValueError):
        folder = pathlib.Path(importlib.util.find_spec("h5py").origin).parent.parent / "h5py.libs"
        return next((file for file in sorted(folder.glob("libhdf5-*.so*"))), None)
    return None


# ---- saving ---------------------------------------------------------------------------------------------------------


def collect(model, optimizer, step, extra, objects, with_random):
    """Returns the whole state as tree.Tensors on rank 0, None elsewhere. Collective if random numbers are wanted."""
    generators = None
    if with_random:
        mine = training.random_state()
        everybodys = allgather_object(mine, "checkpoint.random") if size() > 1 else [mine]
        generators = dict(enumerate(everybodys))
    return on_this_rank_0(lambda: _flatten(model, optimizer, step, extra, objects, generators))


def on_this_rank_0(do):
    """Runs do() on rank 0. Returns its result there and None elsewhere; all ranks raise its exception."""
    value, failure = _tried_on_rank_0(do)
    share_outcome(failure)
    return value


def _flatten(model, optimizer, step, extra, objects, generators):
    taken = sorted(set(objects) & set(_OURS))
    if taken:
        raise ValueError(f"{taken[0]} is a name of the checkpoint's own; give the object another one")
    state = _about(step)
    if model is not None:
        state["model"] = training.unwrapped(model).state_dict()
    if optimizer is not None:
        state["optimizer"] = training.optimizer_state(optimizer, model)
    if extra is not None:
        state["extra"] = extra
    for name, each in objects.items():
        state[name] = each.state_dict() if hasattr(each, "state_dict") else each
    if generators is not None:
        state["random"] = {f"rank_{who}": values for who, values in generators.items()}
    return tree.flatten(state)


def _about(step):
    about = {"horovod": horovod.__version__, "ranks": size(),
             "saved_at": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}
    return about if step is None else {**about, "step": int(step)}


def path_text(path):
    return os.fspath(path) if not isinstance(path, bytes) else os.fsdecode(path)


def save(path, model=None, optimizer=None, step=None, extra=None, *, compression=None, keep_previous=True,
         random_numbers=True, sharded=False, **objects):
    """Saves the training's state as one file. Collective: all ranks call it, rank 0 writes.

    path: the file, for example "run/model.h5". An older file there is kept as path + ".previous" if keep_previous.
    model, optimizer: rank 0's are saved. extra: any numbers, texts, tensors, lists and dicts.
    objects: objects with a state_dict(), under names of your choice: scheduler=…, scaler=…, sampler=….
    compression: None, "gzip", "gzip:9", or, if the HDF5 library has the filter, "zstd" or "lz4".
    random_numbers: save the random number generators of all ranks.
    sharded: True for ranks that have different models, or parts of one. The ranks of a node write one file, in the
    folder path + ".shards"; the file at `path` lists these files. A dict {name: dimension} names the tensors of the
    model of which every rank has a slice: then another number of ranks can share them out anew.

    Returns when the file is safe on the disk. Raises on all ranks, and then leaves the older file untouched: OSError
    (no room, no permission), ValueError (the path is no file, or belongs to another running job), TypeError (an object
    that cannot be stored in a checkpoint).
    """
    if sharded is not False and sharded is not None:
        save_sharded(path_text(path), model, optimizer, step, extra, objects, compression, keep_previous,
                     random_numbers, sharded)
        return
    state = collect(model, optimizer, step, extra, objects, random_numbers)
    on_rank_0(lambda: write(path_text(path), *state.on_host(), step, compression, keep_previous))


def write(path, entries, kept, step, compression, keep_previous, lease=None, keep=0):
    """Runs on the one process that writes. `kept`: the tensors that the addresses in `entries` point to."""
    find_library()
    _core.checkpoint_save(path, entries, -1 if step is None else int(step), compression, keep_previous, lease, keep)
    del kept


def save_sharded(*arguments, **options):
    gather_shards(*arguments, **options)[0]()


def gather_shards(path, model, optimizer, step, extra, objects, compression, keep_previous, random_numbers,
                  sharded=True, lease=None, keep=0):
    """Copies the state to the ranks that write it. Returns (write, bytes): write() is collective and may run on another
    thread while the training goes on; bytes: how large this rank's copy is."""
    own = {rank(): training.random_state()} if random_numbers else None
    split = sharded_files.agree_on_split(sharded, None if model is None else training.unwrapped(model).state_dict())
    state = sharded_files.agree(lambda: _flatten(model, optimizer, step, extra, objects, own))
    # The name need not be unique in time, because a path has only one save at a time.
    name = f"checkpoint.to.{lease or path}"
    write_shards, size_of_copy = sharded_files.gather(path, state, name)

    def write_shard(file, entries, kept):
        write(file, entries, kept, step, compression, False)
        # Each save has new names for its shards, so the right to write this one is not needed again.
        _core.checkpoint_release(file)

    def write_index(shards):
        index = tree.flatten({**_about(step), "shards": shards, "split": split})
        write(path, *index.on_host(), step, None, keep_previous, lease, keep)

    def write_all():
        shards, mark = write_shards(write_shard)
        _, failure = sharded_files.tried(lambda: write_index(shards) if rank() == 0 else None, f"{name}.index")
        # If a rank is lost now, nobody knows whether the index was written. The shards stay, because the index may name
        # them.
        if failure is not None:
            sharded_files.remove_shards(path, f"-{mark}.h5")
            raise failure
        sharded_files.agree(lambda: sharded_files.remove_old_shards(path) if rank() == 0 else None, f"{name}.old")

    return write_all, size_of_copy


# ---- restoring ------------------------------------------------------------------------------------------------------


def _open(path):
    find_library()
    return _core.checkpoint_open(path)


def restore(path, model=None, optimizer=None, *, strict=True, random_numbers=True, **objects):
    """Loads a checkpoint into the given objects, on all ranks. Returns the rest as a dict with "step". Collective.

    path: a file, or a folder: then its newest whole checkpoint is loaded. If a checkpoint is damaged, the one before it
    is loaded, with a warning. The number of ranks may differ from the number when it was saved.
    strict: refuse a checkpoint that does not have exactly the model's tensors; otherwise load the tensors that fit.
    random_numbers: set the random number generators of the ranks that had saved theirs.
    objects: objects as given to save(); their load_state_dict() is called.

    The dict has the items that were saved as `extra`, "step" (None if save() was not given one), and the state of
    saved objects that are not given here. If anything does not fit, nothing is loaded and all ranks raise ValueError.
    """
    path = path_text(path)
    tried = []
    while True:
        tried.append(path)
        try:
            return _restore(path, model, optimizer, strict, random_numbers, objects)
        except _ShardsDamaged as damaged:
            older = on_rank_0(lambda: _one_before(damaged.index, tried))
            if older is None:
                raise OSError(str(damaged)) from None
            if rank() == 0:
                print(f"Horovod: {damaged}; using {older} instead", file=sys.stderr)
            path = older


class _ShardsDamaged(Exception):
    def __init__(self, index, why):
        super().__init__(why)
        self.index = index


def _one_before(index, tried):
    """The index of shards that comes before this one: the file that this one replaced, or the next older name in its
    folder."""
    if os.path.exists(f"{index}.previous"):
        return f"{index}.previous"
    around = os.path.dirname(index) or "."
    names = sorted((name for name in os.listdir(around) if name.endswith(".h5") and not name.startswith(".")),
                   reverse=True)
    older = [f"{around}/{name}" for name in names if name < os.path.basename(index)]
    return next((each for each in older if each not in tried), None)


def _restore(path, model, optimizer, strict, random_numbers, objects):
    opened = on_this_rank_0(lambda: _open(path))
    entries, found = share(opened[1:3] if opened else None) if size() > 1 else opened[1:3]
    root = tree.unflatten([tuple(entry) for entry in entries])
    is_sharded = "shards" in root
    if is_sharded:
        step = root.get("step")
        try:
            root = _read_shards(found, root, model, optimizer, strict)
        except OSError as error:
            raise _ShardsDamaged(found, str(error)) from None
        root["step"] = step
    _refuse_together(_problem_with(root, found, model, optimizer, strict, objects))
    places, in_place = ({}, False) if model is None or is_sharded else training.places_in_model(root["model"], model)
    generators = root.pop("random", None)
    for name, wanted in (("model", model), ("optimizer", optimizer)):
        if wanted is None:
            root.pop(name, None)  # a caller that wants only the step need not read the rest of the file
    if is_sharded:
        own = generators.get(f"rank_{rank()}") if random_numbers and generators else None
    else:
        capsule = opened[0] if opened else None
        _read(capsule, list(root.tensors()), places)
        own = _read_own(capsule, generators) if random_numbers and generators else None
    _load(root, model, in_place, optimizer, strict, objects)
    if own is not None:
        training.set_random_state(own.value())
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


def _load(root, model, in_place, optimizer, strict, objects):
    if model is not None and not in_place:
        values = root["model"].value()
        own = training.unwrapped(model).state_dict()
        if not strict:
            values = {name: value for name, value in values.items() if name in own and (
                not isinstance(value, torch.Tensor) or value.shape == own[name].shape)}
        training.unwrapped(model).load_state_dict(values, strict=strict)
    if optimizer is not None:
        training.load_optimizer(optimizer, model, root["optimizer"].value())
    for name, each in objects.items():
        value = root[name].value() if isinstance(root[name], (tree.Node, tree.Read)) else root[name]
        each.load_state_dict(value)


def _rest_of(root, objects):
    rest = {}
    for name, item in root.items():
        if name in objects or name in ("model", "optimizer", "step", "ranks", "horovod", "saved_at"):
            continue
        value = item.value() if isinstance(item, (tree.Node, tree.Read)) else item
        if name == "extra" and isinstance(value, dict):
            rest.update(value)
        else:
            rest[name] = value
    rest["step"] = root.get("step")
    return rest


def latest(folder):
    """Returns the path of the newest whole checkpoint in a folder, on all ranks; None if there is none. Collective."""
    folder = path_text(folder)

    def find():
        if not os.path.isdir(folder):
            return None
        find_library()
        try:
            return _core.checkpoint_open(folder)[2]
        except ValueError:
            return None  # the warnings have told the user the reason

    return on_rank_0(find)
