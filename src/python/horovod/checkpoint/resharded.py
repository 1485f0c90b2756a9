"""Restores a checkpoint in shards in a job with another number of ranks than the job that saved it.

 1. Each file is opened by one rank, its server. The servers tell all ranks what is in the files; for a tensor that
    several ranks have saved under one name also a digest of its bytes.
 2. Each rank puts together the state that it needs, by the names of its own model and optimizer (_Union).
 3. Each rank tells the servers which tensors, or slices of them, it wants, and the servers send these.
"""
import hashlib
import json

import torch

from horovod import _core
from horovod.checkpoint import training, tree
from horovod.checkpoint.sharded import Nodes, _bytes_tensor, _send, _text, agree, open_shard
from horovod.torch._job import rank, size
from horovod.torch.functions import allgather_object


class Wanted:
    """What this rank's model and optimizer have: the shapes of their tensors by name."""

    def __init__(self, model, optimizer, strict):
        self.model = None if model is None else training.unwrapped(model).state_dict()
        self.groups = None if optimizer is None else _groups(optimizer, model)
        self.strict = strict
        self.shapes = {}
        if optimizer is not None:
            for parameter, name in zip(*training.names_of_parameters(optimizer, model)):
                self.shapes[name] = tuple(parameter.shape)
        for name, value in (self.model or {}).items():
            self.shapes[name] = tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def _groups(optimizer, model):
    names = iter(training.names_of_parameters(optimizer, model)[1])
    return [[next(names) for _ in group["params"]] for group in optimizer.param_groups]


def read(path, shards, split, wanted, open_file, nodes=None):
    """Returns this rank's tree.Node with its tensors in memory. `split`: {name: dimension} of the tensors of which
    every rank has a slice. Collective. All ranks raise OSError if a shard is not whole, ValueError if the ranks' parts
    do not tell what this job's ranks need."""
    nodes = Nodes() if nodes is None else nodes
    leaders = [nodes.of_rank.index(name) for name in nodes.names]
    files = sorted(shards.values(), key=lambda each: each["file"])
    own = [each for i, each in enumerate(files) if leaders[i % len(leaders)] == rank()]
    opened = agree(lambda: {who: part for each in own for who, part in open_shard(path, each, open_file).items()})
    server_of = {int(who): leaders[i % len(leaders)] for i, each in enumerate(files) for who in each["ranks"].split()}
    saved = _exchange_entries(opened)
    digests = _exchange_digests(opened, saved, split)
    everybodys = allgather_object(wanted.shapes, "checkpoint.shapes")
    root = agree(lambda: _Union(path, saved, digests, split, wanted, everybodys).root())
    _fetch(root, opened, server_of)
    return root


def _exchange_entries(opened):
    """Returns {saved rank: its state, as a tree.Node}."""
    own = {}
    for who, (capsule, entries) in opened.items():
        group = f"/rank_{who}"
        entries = tree.with_names_of_parameters(capsule, entries, group)
        own[who] = [(where[len(group):] or "/", *rest) for where, *rest in entries
                    if where == group or where.startswith(f"{group}/")]
    text = tree.as_text([[who, entries] for who, entries in own.items()])
    parts = allgather_object(text, "checkpoint.parts")
    return {who: tree.unflatten([tuple(entry) for entry in entries])
            for part in parts for who, entries in sorted(tree.from_text(part))}


def _exchange_digests(opened, saved, split):
    """Returns {(saved rank, path): digest} for the tensors that several ranks have saved."""
    ranks_of = {}
    for who, root in saved.items():
        for name in ("model", "optimizer"):
            for item in root[name].tensors() if isinstance(root.get(name), tree.Node) else ():
                ranks_of.setdefault(item.path, []).append((who, item))

    def digest_own():
        found = []
        for where, holders in ranks_of.items():
            for who, item in holders if len(holders) > 1 else ():
                if who in opened:
                    data = _read_tensor(opened[who][0], f"/rank_{who}{where}", item)
                    found.append((who, where, hashlib.blake2b(data.view(-1).view(torch.uint8).numpy().data
                                                              if data.numel() else b"").hexdigest()))
        return found

    everybodys = allgather_object(agree(digest_own), "checkpoint.digests")
    return {(who, where): digest for part in everybodys for who, where, digest in part}


def _read_tensor(capsule, where, item):
    tensor = torch.empty(item.shape, dtype=item.dtype)
    if item.bytes():
        _core.checkpoint_read(capsule, where, tensor.data_ptr(), item.bytes())
    return tensor


# ---- what this rank needs -------------------------------------------------------------------------------------------


class _Union:
    """The state of this rank, put together from what all ranks had saved. Each tree.Read of it gets `pieces`, a list of
    (saved rank, path, start, stop), and `dimension`, along which the pieces lie; None for a whole tensor.

    A tensor of the model or the optimizer is looked up by its name. If several ranks have saved it, their bytes must be
    equal, or it is in `split`: then the ranks' slices, in the order of ranks, are one tensor. All other state is that
    of the lowest rank, as in a checkpoint that is one file.
    """

    def __init__(self, path, saved, digests, split, wanted, everybodys):
        self._path, self._saved, self._digests, self._split = path, saved, digests, split
        self._wanted, self._everybodys = wanted, everybodys

    def root(self):
        lowest = min(self._saved)
        root = tree.Node(self._saved[lowest].kind)
        for name, item in self._saved[lowest].items():
            if name not in ("model", "optimizer", "random"):
                root[name] = self._whole(lowest, item)
        if self._wanted.model is not None and self._parts("model"):
            root["model"] = self._model()
        if self._wanted.groups is not None and self._parts("optimizer"):
            root["optimizer"] = self._optimizer()
        if "random" in self._saved.get(rank(), {}):
            root["random"] = self._whole(rank(), self._saved[rank()]["random"])
        return root

    def _parts(self, name):
        """Returns {saved rank: its Node of that name}."""
        return {who: root[name] for who, root in self._saved.items() if isinstance(root.get(name), tree.Node)}

    def _whole(self, who, item):
        for each in item.tensors() if isinstance(item, tree.Node) else [item] if isinstance(item, tree.Read) else []:
            each.dimension, each.pieces = None, [(who, each.path, 0, 0)]
        return item

    def _model(self):
        parts = self._parts("model")
        surplus = set().union(*parts.values()) - set().union(*self._everybodys)
        if surplus and self._wanted.strict:
            raise ValueError(f"{self._path} is of another model than this one: {sorted(surplus)[0]} was saved, and no "
                             "rank of this job has it")
        model = tree.Node(next(iter(parts.values())).kind)
        for name in self._wanted.model:
            holders = {who: part[name] for who, part in parts.items() if name in part}
            if holders:
                model[name] = self._merged(name, f"the model's {name}", holders)
        return model

    def _optimizer(self):
        parts = self._parts("optimizer")
        first = next(iter(parts.values()))
        optimizer = tree.Node(first.kind)
        lowest = min(parts)
        for key, item in first.items():
            if key not in ("state", "param_groups"):
                optimizer[key] = self._whole(lowest, item)
        optimizer["state"] = state = tree.Node("dict")
        for name in (name for group in self._wanted.groups for name in group):
            holders = {who: part["state"][name] for who, part in parts.items() if name in part["state"]}
            if holders:
                state[name] = self._merged(name, f"the optimizer's state of {name}", holders)
        optimizer["param_groups"] = self._param_groups(parts)
        return optimizer

    def _param_groups(self, parts):
        groups = tree.Node("list")
        names = set()
        for part in parts.values():
            names |= set(training._saved_names(part["param_groups"]))
        count = max(len(part["param_groups"]) for part in parts.values())
        for i in range(count):
            holders = {who: part["param_groups"][str(i)] for who, part in parts.items() if str(i) in
                       part["param_groups"]}
            first = next(iter(holders.values()))
            group = tree.Node("dict")
            for key in first:
                if key != "params":
                    having = {who: each[key] for who, each in holders.items() if key in each}
                    group[key] = self._merged(None, f"the optimizer's {key}", having)
            own = self._wanted.groups[i] if i < len(self._wanted.groups) else []
            group["params"] = [name for name in own if name in names]
            groups[str(i)] = group
        return groups

    def _merged(self, name, what, holders):
        """Combines {saved rank: entry} to one entry. `name` is that of the parameter."""
        first = holders[min(holders)]
        if isinstance(first, tree.Node) and all(isinstance(each, tree.Node) for each in holders.values()):
            node = tree.Node(first.kind)
            for key in dict.fromkeys(key for each in holders.values() for key in each):
                having = {who: each[key] for who, each in holders.items() if key in each}
                node[key] = self._merged(name, what, having)
            return node
        if all(isinstance(each, tree.Read) for each in holders.values()):
            if self._is_slice(name, holders):
                return self._slice(name, what, holders)
            if self._who_differs(holders) is None:
                who = sorted(holders)[rank() % len(holders)]
                return self._whole(who, holders[who])
        elif self._who_differs(holders) is None:
            return first
        raise ValueError(self._differs(what, holders))

    def _differs(self, what, holders):
        first = min(holders)
        other = self._who_differs(holders)
        other = first if other is None else other
        return (f"{self._path} was saved in shards by {len(self._saved)} ranks, and this job has {size()}. {what} was "
                f"not the same in ranks {first} and {other}, so it belongs to its rank. Start {len(self._saved)} "
                "ranks; or, if it was a slice of one tensor in each rank, save with sharded={name: dimension}")

    def _who_differs(self, holders):
        """Returns the lowest saved rank whose entry is not that of the lowest of all; None if all are equal."""
        first, *others = sorted(holders)
        return next((who for who in others if not self._equal(holders, first, who)), None)

    def _equal(self, holders, one, other):
        a, b = holders[one], holders[other]
        if isinstance(a, tree.Read) and isinstance(b, tree.Read):
            return (a.dtype, a.shape, self._digests.get((one, a.path))) == \
                (b.dtype, b.shape, self._digests.get((other, b.path)))
        return type(a) is type(b) and a == b

    def _is_slice(self, name, holders):
        """Returns whether the tensors have the shape of the parameter, which is split. The optimizer may also keep
        tensors of other shapes."""
        if name not in self._split:
            return False
        for who, each in holders.items():
            parameter = self._saved[who].get("model", {}).get(name)
            if len(each.shape) <= self._split[name] or \
                    (isinstance(parameter, tree.Read) and parameter.shape != each.shape):
                return False
        return True

    def _slice(self, name, what, holders):
        dimension = self._split[name]
        first = holders[min(holders)]
        own = self._wanted.shapes.get(name, ())
        others = {(each.dtype, each.shape[:dimension], each.shape[dimension + 1:]) for each in holders.values()}
        if len(others) > 1:
            raise ValueError(self._differs(what, holders))
        extents = [shapes[name][dimension] if len(shapes.get(name, ())) > dimension else 0 for shapes in
                   self._everybodys]
        total = sum(each.shape[dimension] for each in holders.values())
        if sum(extents) != total:
            raise ValueError(
                f"{self._path}: the slices of {what} had {total} entries along dimension {dimension} in all ranks "
                f"together, and have {sum(extents)} in this job of {size()} ranks")
        begin = sum(extents[:rank()])
        item = tree.Read(first.path, first.kind, tree.NAMES[first.dtype],
                         (*first.shape[:dimension], own[dimension], *first.shape[dimension + 1:]))
        item.dimension, item.pieces, at = dimension, [], 0
        for who in sorted(holders):
            extent = holders[who].shape[dimension]
            start, stop = max(begin, at) - at, min(begin + own[dimension], at + extent) - at
            if start < stop:
                item.pieces.append((who, first.path, start, stop))
            at += extent
        return item


# ---- getting it -----------------------------------------------------------------------------------------------------


def _fetch(root, opened, server_of):
    """Fills the tensors of `root`."""
    items = [item for item in root.tensors() if item.bytes()]
    requests = {server: [] for server in set(server_of.values())}
    for item in items:
        for who, where, start, stop in item.pieces:
            requests[server_of[who]].append((who, where, item.dimension, start, stop))
    asked = _send("requests", {server: _bytes_tensor(json.dumps(each)) for server, each in requests.items()})
    answers = _send("answers", agree(lambda: _answers(asked, opened)))
    at = dict.fromkeys(requests, 0)
    for item in root.tensors():
        pieces = []
        for who, _, start, stop in item.pieces if item.bytes() else ():
            shape = list(item.shape)
            if item.dimension is not None:
                shape[item.dimension] = stop - start
            server = server_of[who]
            piece = tree.Read(item.path, item.kind, tree.NAMES[item.dtype], shape)
            data = answers[server][at[server]:at[server] + piece.bytes()]
            pieces.append(data.view(item.dtype).view(shape))
            at[server] += tree.aligned(piece.bytes())
        item.tensor = pieces[0] if len(pieces) == 1 else torch.cat(pieces, item.dimension) if pieces else \
            torch.empty(item.shape, dtype=item.dtype)


def _answers(asked, opened):
    """Returns {rank: the tensors that it wants, one after the other}."""
    answers = {}
    described = {where: value for _, entries in opened.values() for where, _, type_, value in entries
                 if type_ == tree.TENSOR}
    for asking, text in enumerate(asked):
        for who, where, dimension, start, stop in json.loads(_text(text)) if text.numel() else ():
            path = f"/rank_{who}{where}"
            tensor = _read_tensor(opened[who][0], path, tree.Read(path, "", *described[path]))
            if dimension is not None:
                tensor = tensor.narrow(dimension, start, stop - start)
            data = tensor.contiguous().view(-1).view(torch.uint8)
            padded = torch.zeros(tree.aligned(data.numel()), dtype=torch.uint8)
            padded[:data.numel()] = data
            answers.setdefault(asking, []).append(padded)
    return {asking: torch.cat(parts) for asking, parts in answers.items()}
