"""Checkpoints of models of which every rank has a part: one file per node, and a small file that lists these files.

    run/big.h5                        the index: a checkpoint whose group `shards` names the files
    run/big.h5.shards/node-0-MARK.h5  the states of the first node's ranks, each under /rank_N

The ranks of a node send their state to the node's lowest rank, which writes the file. The index is written last.
Therefore a save takes effect as a whole or not at all: until then the old index names the shards of the last save.
"""
import collections.abc
import contextlib
import os
import re
import secrets
import shutil
import socket

import torch

from horovod import _core
from horovod.checkpoint import tree
from horovod.torch._job import rank, size
from horovod.torch.functions import allgather_object
from horovod.torch.mpi_ops import alltoall


being_written = set()  # on rank 0: paths of the indexes whose shards this process's job is writing


class Nodes:
    """Tells which ranks share a host. The lowest of them is their leader."""

    def __init__(self, own=None):
        self.of_rank = allgather_object(socket.gethostname() if own is None else own, "checkpoint.nodes")
        self.names = list(dict.fromkeys(self.of_rank))
        self.own = self.of_rank[rank()]
        self.members = [who for who, node in enumerate(self.of_rank) if node == self.own]
        self.leader = self.members[0]

    def leads(self):
        return rank() == self.leader


def _send(what, data):
    """Sends bytes to ranks and returns the bytes received, as a list by sender. `data` is {rank: uint8 tensor}.

    The size of each tensor is a multiple of 64. The bytes are sent as rows of 64, because the number of rows must fit
    32 bits.
    """
    rows = {who: data[who].view(-1, 64) for who in sorted(data)}
    splits = [len(rows[who]) if who in rows else 0 for who in range(size())]
    parts = list(rows.values()) or [torch.empty(0, 64, dtype=torch.uint8)]
    # a part may be as large as the model, so it is not copied
    whole = parts[0] if len(parts) == 1 else torch.cat(parts)
    received, counts = alltoall(whole, splits, f"checkpoint.{what}")
    return [part.reshape(-1) for part in torch.split(received, counts.tolist())]


def _bytes_tensor(text):
    data = text.encode()
    return torch.frombuffer(bytearray(data.ljust(tree.aligned(len(data)))), dtype=torch.uint8)


def _text(tensor):
    return tree._bytes_of(tensor.contiguous()).decode()


_FAILURES = {each.__name__: each for each in (ValueError, TypeError, OSError, NotImplementedError, MemoryError)}


def told(failure):
    """Describes an exception for the other ranks: the name of its class, or of a class that it is derived from, its
    text and its id (docs/errors.md)."""
    known = next((name for name, each in _FAILURES.items() if isinstance(failure, each)), type(failure).__name__)
    return [known, str(failure), getattr(failure, "id", None)]


def failure_of(told, who=None):
    """Returns the exception that another rank has described."""
    kind, text, error_id = told
    failure = _FAILURES.get(kind, RuntimeError)(text if who is None else f"{text} (rank {who})")
    failure.id = error_id
    return failure


def tried(do, name="checkpoint.agree"):
    """Runs do() on this rank. Returns (its result, the first failure of do() on any rank or None), the latter the same
    on all ranks. Raises only if the ranks cannot tell each other; other ranks may have heard more than this one then.
    """
    value = failure = None
    try:
        value = do()
    except Exception as error:  # an exception of any kind: the other ranks wait for this rank's answer
        failure = error
    for who, found in enumerate(allgather_object(failure and told(failure), name)):
        if found:
            return value, failure if failure is not None else failure_of(found, who)
    return value, None


def agree(do, name="checkpoint.agree"):
    """Runs do() on this rank. If do() fails on any rank, all ranks raise the first failure."""
    value, failure = tried(do, name)
    if failure is not None:
        raise failure
    return value


# ---- saving ---------------------------------------------------------------------------------------------------------


def agree_on_split(sharded, model):
    """Returns {name: dimension}, the same on all ranks, of the tensors of which every rank has a slice. `sharded`: as
    given to save()."""
    own = dict(sharded) if isinstance(sharded, collections.abc.Mapping) else {}
    shapes = {} if model is None else {name: tuple(value.shape) for name, value in model.items() if
                                       isinstance(value, torch.Tensor)}
    everybodys = allgather_object((own, shapes), "checkpoint.split")
    split = {}
    for who, (given, _) in enumerate(everybodys):
        for name, dimension in given.items():
            if split.setdefault(name, dimension) != dimension:
                raise ValueError(f"sharded={{{name!r}: {dimension}}} on rank {who}, but {split[name]} on a lower rank; "
                                 "the ranks' slices lie along one dimension")
    for name, dimension in split.items():
        known = [shapes[name] for _, shapes in everybodys if name in shapes]
        if not isinstance(dimension, int) or model is not None and not known or \
                any(not 0 <= dimension < len(shape) for shape in known):
            raise ValueError(f"sharded={{{name!r}: {dimension!r}}}: expected a name of the model's state_dict() and a "
                             f"dimension of that tensor, whose shape is {known[0] if known else 'unknown'}")
    return split


def gather(path, state, name, nodes=None):
    """Copies the ranks' tree.Tensors to the leaders of the nodes. Returns (write, bytes): write(write_file, lease)
    writes one file per node and returns {node: its entry in the index} and the mark of the files. It is collective and
    may run on another thread; `name` tells its operations from those of other threads. bytes: how large this rank's
    copy is. `lease`: what this job must have the right to write to.
    """
    nodes = Nodes() if nodes is None else nodes
    mark = allgather_object(secrets.token_hex(6), "checkpoint.mark")[0]
    memory = torch.empty(state.room_needed(), dtype=torch.uint8)
    entries, _ = state.copied_into(memory)
    base = memory.data_ptr() if memory.numel() else 0
    relative = [(where, kind, type_,
                 [*value[:2], value[2] - base if value[2] else 0] if type_ == tree.TENSOR else value)
                for where, kind, type_, value in entries]
    descriptions = _send("entries", {nodes.leader: _bytes_tensor(tree.as_text(relative))})
    parts = _send("tensors", {nodes.leader: memory})
    file = f"node-{nodes.names.index(nodes.own)}-{mark}.h5"

    def write_own(write_file):
        os.makedirs(f"{path}.shards", exist_ok=True)
        write_file(f"{path}.shards/{file}", *_shard(descriptions, parts, nodes.members, mark))
        return {"file": file, "mark": mark, "ranks": " ".join(map(str, nodes.members))}

    def claim(lease):
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):  # asked here alone, because a new folder may not be known on other nodes yet
            raise FileNotFoundError(f"the folder {folder} is not there on host {socket.gethostname()}; make it, or "
                                    "give another path")
        was_there = os.path.exists(f"{path}.shards")
        os.makedirs(f"{path}.shards", exist_ok=True)
        try:
            _core.checkpoint_claim(lease)
        except Exception:
            if not was_there:
                with contextlib.suppress(OSError):
                    os.rmdir(f"{path}.shards")
            raise

    def write(write_file, lease):
        # Before any file is written: the job that has the right removes what no index names, so it must be this one.
        agree(lambda: claim(lease) if rank() == 0 else None, f"{name}.lease")
        described, failure = tried(lambda: write_own(write_file) if nodes.leads() else None, f"{name}.written")
        if failure is not None:  # all ranks know of the failure, so none of them writes an index of these shards
            remove_shards(path, f"-{mark}.h5")
            # Another job that has the right now may have removed the folder. Then that is the reason.
            agree(lambda: _core.checkpoint_claim(lease) if rank() == 0 else None, f"{name}.lease")
            raise failure
        found = filter(None, allgather_object(described, f"{name}.shards"))
        return {f"node-{i}": each for i, each in enumerate(found)}, mark

    return write, sum(part.numel() for part in parts)


def _shard(descriptions, parts, members, mark):
    """Returns the entries of a node's file, and the tensors that must live until the file is written."""
    entries, kept = [("/", "dict", tree.GROUP, None), ("/mark", "", tree.TEXT, mark)], []
    for who in members:
        part = parts[who].contiguous()
        kept.append(part)
        base = part.data_ptr() if part.numel() else 0
        for where, kind, type_, value in tree.from_text(_text(descriptions[who])):
            if type_ == tree.TENSOR:
                dtype, shape, offset = value
                value = (dtype, tuple(shape), base + offset if base else 0)
            entries.append((f"/rank_{who}{where if where != '/' else ''}", kind, type_, value))
    return entries, kept


def remove_shards(path, ending):
    folder = f"{path}.shards"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.endswith(ending):
                with contextlib.suppress(OSError):
                    os.unlink(f"{folder}/{name}")
        os.rmdir(folder)


def names_in(folder):
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def remove_old_shards(path, before, lease):
    """Runs on rank 0 when the new index is in its place: removes those of the names `before`, which were there before
    it, that neither it nor the previous index names."""
    named = set()
    for index in (path, f"{path}.previous"):
        if os.path.exists(index):
            try:
                root = tree.unflatten(_core.checkpoint_open(index)[1])
            except (OSError, ValueError):
                return  # nobody knows what it names; a later save removes the rest
            named.update(each["file"] for each in root.get("shards", {}).values())
    with contextlib.suppress(OSError):
        for name in before:
            if name.startswith("node-") and name not in named:
                _core.checkpoint_claim(lease)  # raises if this job has lost the right meanwhile
                os.unlink(f"{path}.shards/{name}")


def remove_shards_without_index(folder):
    """Runs on rank 0 of a Checkpointer: removes the shards of steps whose index `keep` has removed, or that a killed
    job has left. Folders under other names may belong to other jobs."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            index = f"{folder}/{name.removesuffix('.shards')}"
            if re.fullmatch(r"step-\d+\.h5\.shards", name) and not os.path.exists(index) and \
                    not os.path.exists(f"{index}.previous") and index not in being_written:
                _core.checkpoint_claim(folder)
                shutil.rmtree(f"{folder}/{name}")


# ---- restoring ------------------------------------------------------------------------------------------------------


def read_own(path, shards, open_file, nodes=None):
    """Returns this rank's tree.Node with its tensors in memory. Collective; fails on all ranks if a shard is not
    whole."""
    nodes = Nodes() if nodes is None else nodes
    opened = agree(lambda: _open_shards(path, shards, open_file, nodes.members) if nodes.leads() else {})
    texts, parts = {}, {}

    def read():
        for who in nodes.members if nodes.leads() else ():
            capsule, entries = opened[who]
            texts[who], parts[who] = _read_part(capsule, entries, f"/rank_{who}")

    agree(read)
    text = _send("entries", texts)[nodes.leader]
    part = _send("tensors", parts)[nodes.leader].contiguous()
    root = tree.unflatten(tree.from_text(_text(text)))
    at = 0
    for item in root.tensors():
        item.tensor = part[at:at + item.bytes()].view(item.dtype).view(item.shape)
        at += tree.aligned(item.bytes())
    return root


def problem_with_shards(path, shards, open_file, nodes=None):
    """Returns why the files that the index at `path` names are not whole, the same on all ranks; None if they are.
    Collective."""
    nodes = Nodes() if nodes is None else nodes
    leaders = [nodes.of_rank.index(name) for name in nodes.names]
    files = sorted(shards.values(), key=lambda each: each["file"])
    own = [each for i, each in enumerate(files) if leaders[i % len(leaders)] == rank()]
    _, failure = tried(lambda: [open_shard(path, each, open_file) and None for each in own])
    return None if failure is None else str(failure)


def count_ranks(shards):
    return sum(len(each["ranks"].split()) for each in shards.values())


def _open_shards(path, shards, open_file, members):
    opened = {}
    for each in shards.values():
        wanted = {int(who) for who in each["ranks"].split()} & set(members)
        if wanted:
            opened.update((who, part) for who, part in open_shard(path, each, open_file).items() if who in wanted)
    return opened


def open_shard(path, shard, open_file):
    """Opens a file that the index at `path` names. Returns {rank: (capsule, the file's entries)}."""
    file = f"{os.path.realpath(path).removesuffix('.previous')}.shards/{shard['file']}"
    try:
        capsule, entries = open_file(file)[:2]
    except ValueError as error:  # no checkpoint at all
        raise OSError(f"{error}, but {path} names it") from None
    if ("/mark", "", tree.TEXT, shard["mark"]) not in [tuple(entry) for entry in entries]:
        raise OSError(f"{file} is damaged: it is not the shard that {path} names")
    return {int(who): (capsule, entries) for who in shard["ranks"].split()}


def _read_part(capsule, entries, group):
    own = [(where[len(group):] or "/", kind, type_, value, where) for where, kind, type_, value in entries
           if where == group or where.startswith(f"{group}/")]
    items = [tree.Read(where, kind, *value) for _, kind, type_, value, where in own if type_ == tree.TENSOR]
    memory = torch.empty(sum(tree.aligned(item.bytes()) for item in items), dtype=torch.uint8)
    at = 0
    for item in items:
        if item.bytes():
            _core.checkpoint_read(capsule, item.path, memory.data_ptr() + at, item.bytes())
        at += tree.aligned(item.bytes())
    return _bytes_tensor(tree.as_text([entry[:4] for entry in own])), memory
