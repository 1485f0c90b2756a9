"""save, and how ranks tell each other what happened. Only rank 0 opens files, but those of checkpoints in shards."""
import collections.abc
import datetime
import json
import os

import torch

import horovod
from horovod import _core, _ops
from horovod.checkpoint import sharded as sharded_files
from horovod.checkpoint import own_parameters, training, tree
from horovod.common.hdf5 import find_library
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


def from_rank_0(value):
    """Returns rank 0's value, plain data, on every rank."""
    return on_rank_0(lambda: value)


def refuse_together(problem):
    """Raises on all ranks if any rank has a problem. Otherwise the other ranks would wait for that rank."""
    answers = allgather_object(problem, "checkpoint.problems") if size() > 1 else [problem]
    for who, found in enumerate(answers):
        if found:
            raise ValueError(found if size() == 1 else f"{found} (rank {who})")


# ---- saving ---------------------------------------------------------------------------------------------------------


def collect(model, optimizer, step, extra, objects, with_random):
    """Collective. Returns the whole state as tree.Tensors on rank 0, None elsewhere."""
    own_parameters.warn_of_own_parameters(model)
    generators = None
    if with_random:
        mine = training.random_state()
        everybodys = allgather_object(mine, "checkpoint.random") if size() > 1 else [mine]
        generators = dict(enumerate(everybodys))
    return on_this_rank_0(lambda: _flatten_for_all(model, optimizer, step, extra, objects, generators))


def on_this_rank_0(do):
    """Runs do() on rank 0. Returns its result there and None elsewhere; all ranks raise its exception."""
    value, failure = _tried_on_rank_0(do)
    share_outcome(failure)
    return value


def states_of_their_own(optimizer, objects, ranks):
    """The names of the objects of which each of so many ranks has another state."""
    named = {"optimizer": optimizer, **objects}
    return [name for name, each in named.items() if ranks > 1 and training.has_state_of_its_own(each)]


def _flatten_for_all(model, optimizer, step, extra, objects, generators):
    for name in states_of_their_own(optimizer, objects, size()):
        raise ValueError(
            f"the state of {name} is another one on each rank, because with op=hvd.Adasum each rank steps by its "
            "own gradients, and a checkpoint in one piece has that of rank 0 for all. Save with sharded=True")
    return _flatten(model, optimizer, step, extra, objects, generators)


def flatten_alone(model, optimizer, step, extra, objects, ranks):
    """Returns the whole state as tree.Tensors, of a process that has left the job of so many ranks."""
    for name in states_of_their_own(optimizer, objects, ranks):
        raise ValueError(f"the state of {name} is another one on each rank (op=hvd.Adasum), and one rank cannot save "
                         "that of all")
    return _flatten(model, optimizer, step, extra, objects, None, ranks)


def _check_names(step, extra, objects):
    taken = sorted(set(objects) & set(_OURS))
    if taken:
        raise ValueError(f"{taken[0]} is a name of the checkpoint's own; give the object another one")
    # restore() returns one dict of the extra items, the step and the objects.
    for name in extra if isinstance(extra, collections.abc.Mapping) else ():
        if name == "step" and (step is None or extra[name] != step):
            raise ValueError(f"extra has the name 'step' ({extra[name]!r}), under which restore() returns what save() "
                             f"was given as step={step!r}; give step=… instead, or choose another name")
        if name in objects:
            raise ValueError(f"extra has the name {name!r}, and so has an object that is to be saved; choose another")


def _flatten(model, optimizer, step, extra, objects, generators, ranks=None):
    _check_names(step, extra, objects)
    state = _about(step, ranks)
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


def _about(step, ranks=None):
    about = {"horovod": horovod.__version__, "ranks": ranks or size(),
             "saved_at": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}
    return about if step is None else {**about, "step": int(step)}


def path_text(path):
    return os.fsdecode(path)


def end_of_links(path):
    """Returns where a symbolic link at `path` leads. Its folder stays as it is written."""
    for _ in range(40):
        if not os.path.islink(path):
            break
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return path


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
    _core.checkpoint_save(path, entries, -1 if step is None else int(step), compression, keep_previous, lease or path,
                          keep)
    del kept


def save_sharded(*arguments, **options):
    gather_shards(*arguments, **options)[0]()


def gather_shards(path, model, optimizer, step, extra, objects, compression, keep_previous, random_numbers,
                  sharded=True, lease=None, keep=0):
    """Copies the state to the ranks that write it. Returns (write, bytes): write() is collective and may run on another
    thread while the training goes on; bytes: how large this rank's copy is. Rank 0's path is used on all ranks."""
    path = on_rank_0(lambda: end_of_links(path))
    lease = from_rank_0(lease) or path
    own = {rank(): training.random_state()} if random_numbers else None
    split = sharded_files.agree_on_split(sharded, None if model is None else training.unwrapped(model).state_dict())
    state = sharded_files.agree(lambda: _flatten(model, optimizer, step, extra, objects, own))
    # The name need not be unique in time, because a path has only one save at a time.
    name = "checkpoint.to." + lease.encode("utf-8", "backslashreplace").decode()
    write_shards, size_of_copy = sharded_files.gather(path, state, name)

    def write_shard(file, entries, kept):
        try:
            write(file, entries, kept, step, compression, False)
        finally:
            # Each save has new names for its shards, so the right to write this one is not needed again.
            _core.checkpoint_release(file)

    def write_index(shards):
        before = sharded_files.names_in(f"{path}.shards")
        index = tree.flatten({**_about(step), "shards": shards, "split": split})
        write(path, *index.on_host(), step, None, keep_previous, lease, keep)
        return before

    def remove_old(before):
        sharded_files.remove_old_shards(path, before, lease)
        if keep:
            sharded_files.remove_shards_without_index(lease)

    def write_all():
        sharded_files.being_written.add(path)
        try:
            write_in_order()
        finally:
            sharded_files.being_written.discard(path)

    def write_in_order():
        shards, mark = write_shards(write_shard, lease)
        before, failure = sharded_files.tried(lambda: write_index(shards) if rank() == 0 else None, f"{name}.index")
        # If a rank is lost now, nobody knows whether the index was written. The shards stay, because the index may name
        # them.
        if failure is not None:
            sharded_files.remove_shards(path, f"-{mark}.h5")
            raise failure
        sharded_files.agree(lambda: remove_old(before) if rank() == 0 else None, f"{name}.old")

    return write_all, size_of_copy
