"""Turns Python objects into the entries of a checkpoint and back. Reading such a tree runs no code from the file.

An entry is (path, kind, type, value), as in horovod.h. Nothing is pickled. An object that cannot be stored is refused
when it is saved, and the error names it. docs/checkpoint-layout.md lists the kinds.
"""
import collections
import collections.abc
import ctypes
import json
import math
import re

import torch

from horovod import _core, _ops
from horovod.torch._devices import is_on_gpu, synchronize

GROUP, NONE, BOOL, INTEGER, NUMBER, TEXT, TENSOR = range(7)

DEEPEST = 100
LONGEST_TEXT = 32 << 10  # longer texts are stored as datasets of bytes

# torch's names of the types are also their names in the file.
DTYPES = {
    str(dtype).split(".")[1]: dtype
    for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
                  torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)
}
DTYPES.update({
    name: getattr(torch, name)
    for name in ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
                 "float8_e8m0fnu") if hasattr(torch, name)
})
NAMES = {dtype: name for name, dtype in DTYPES.items()}

_MAPPINGS = {"dict": dict, "OrderedDict": collections.OrderedDict, "Counter": collections.Counter}
_SEQUENCES = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "Size": torch.Size}
_ALL_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
_RESERVED = ("kind", "dtype", "unit", ".", "..")


def escape(name):
    """Writes a name so that it can be part of a path; see escape() in src/checkpoint/state.hpp."""
    if not name:
        return "%"
    if name in _RESERVED:
        return f"%{ord(name[0]):02X}{name[1:]}"
    return name.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")


def unescape(part):
    import urllib.parse
    return "" if part == "%" else urllib.parse.unquote(part)


class Tensors:
    """Entries whose tensors are torch tensors on any device. Their addresses are filled in just before they are
    written."""

    def __init__(self):
        self.entries = []

    def add(self, path, kind, type_, value=None):
        self.entries.append((path, kind, type_, value))

    def bytes(self):
        return sum(value.numel() * value.element_size() for _, _, type_, value in self.entries if type_ == TENSOR)

    def on_host(self):
        """Returns (entries with addresses, the tensors that must live until they are written). Copies only tensors
        that are not contiguous in the host's memory."""
        found = self._addressed(lambda tensor: tensor.to("cpu").contiguous())
        if any(type_ == TENSOR and is_on_gpu(value) for _, _, type_, value in self.entries):
            _ops.check_results_on_devices()
        return found

    def copied_into(self, memory):
        """Like on_host(), but all tensors are copied into `memory`, a uint8 tensor of at least room_needed() bytes."""
        at = 0
        sources = []
        gpus = set()

        def copy(tensor):
            nonlocal at
            size = tensor.numel() * tensor.element_size()
            place = memory[at:at + size].view(tensor.dtype).view(tensor.shape)
            is_plain = tensor.is_cpu and tensor.is_contiguous()
            if not is_plain:
                place.copy_(tensor, non_blocking=is_on_gpu(tensor))  # only these are waited for below
            if is_on_gpu(tensor):
                gpus.add(tensor.device)
            sources.append(tensor if is_plain else None)
            at += aligned(size)
            return place

        entries, kept = self._addressed(copy)
        _core.checkpoint_copy(list(_with_addresses_of(sources, entries)), memory.data_ptr(), memory.numel())
        for gpu in gpus:  # the current one need not be among them
            synchronize(gpu)
        if gpus:
            _ops.check_results_on_devices()
        return entries, kept

    def room_needed(self):
        return sum(
            aligned(value.numel() * value.element_size()) for _, _, type_, value in self.entries if type_ == TENSOR)

    def _addressed(self, place):
        entries, kept = [], []
        for path, kind, type_, value in self.entries:
            if type_ == TENSOR:
                tensor = place(value.detach().resolve_conj().resolve_neg())
                kept.append(tensor)
                value = (NAMES[tensor.dtype], tuple(tensor.shape), tensor.data_ptr() if tensor.numel() else 0)
            entries.append((path, kind, type_, value))
        return entries, kept


def _with_addresses_of(sources, entries):
    """Returns the entries with the addresses of other tensors. A tensor that is None has no address."""
    tensors = iter(sources)
    for path, kind, type_, value in entries:
        if type_ == TENSOR:
            source = next(tensors)
            value = (*value[:2], source.data_ptr() if source is not None and source.numel() else 0)
        yield path, kind, type_, value


def aligned(size):
    return (size + 63) // 64 * 64


# ---- to entries ---------------------------------------------------------------------------------------------------


def flatten(value, path="/", into=None):
    """Returns the entries of a value. A TypeError names the part that cannot be an entry."""
    into = Tensors() if into is None else into
    _put(value, path, into, 0)
    return into


def _inside(path, name):
    return f"{path if path != '/' else ''}/{escape(name)}"


def _put(value, path, into, depth):
    if depth > DEEPEST:
        raise TypeError(f"the checkpoint's {path} is inside more than {DEEPEST} groups; does it contain itself?")
    if value is None:
        into.add(path, "", NONE)
    elif isinstance(value, bool):
        into.add(path, "", BOOL, int(value))
    elif isinstance(value, torch.Tensor):
        _put_tensor(value, path, into, depth)
    elif _is_numpy(value):
        _put_numpy(value, path, into)
    elif isinstance(value, int):
        fits = -(1 << 63) <= value < 1 << 63
        into.add(path, "" if fits else "int", INTEGER if fits else TEXT, int(value) if fits else str(int(value)))
    elif isinstance(value, float):
        into.add(path, "", NUMBER, float(value))
    elif isinstance(value, complex):
        into.add(path, "complex", TENSOR, torch.tensor(value, dtype=torch.complex128))
    elif isinstance(value, str):
        _put_text(value, path, into)
    elif isinstance(value, (bytes, bytearray)):
        into.add(path, "bytes", TENSOR, _as_tensor(value))
    elif isinstance(value, collections.abc.Mapping):
        _put_mapping(value, path, into, depth)
    elif isinstance(value, _ALL_SEQUENCES):
        _put_sequence(value, path, into, depth)
    elif isinstance(value, (torch.dtype, torch.device)):
        into.add(path, f"torch.{type(value).__name__}", TEXT, str(value).replace("torch.", ""))
    else:
        raise TypeError(
            f"the checkpoint's {path} is a {type(value).__module__}.{type(value).__qualname__}, which has no "
            f"place in a checkpoint: give its numbers, texts, lists, dicts and tensors instead (state_dict())")


def _kind_of_mapping(value):
    return next((name for name in ("OrderedDict", "Counter") if isinstance(value, _MAPPINGS[name])), "dict")


def _kind_of_sequence(value):
    return next((name for name in ("Size", "tuple", "set", "frozenset") if isinstance(value, _SEQUENCES[name])), "list")


def without_graphs(value, depth=0):
    """Returns the value as a checkpoint has it, with its tensors cut off from the graphs of their gradients. A value
    that cannot be an entry is returned as it is."""
    if isinstance(value, torch.Tensor):
        return value.detach() if value.requires_grad else value
    if depth <= DEEPEST and isinstance(value, _ALL_SEQUENCES):
        return _SEQUENCES[_kind_of_sequence(value)](without_graphs(item, depth + 1) for item in value)
    if depth <= DEEPEST and isinstance(value, collections.abc.Mapping):
        items = {key: without_graphs(item, depth + 1) for key, item in value.items()}
        return _MAPPINGS[_kind_of_mapping(value)](items)
    return value


def _as_tensor(data):
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def _put_text(value, path, into, kind=""):
    plain = "\0" not in value and len(value) <= LONGEST_TEXT and not any("\ud800" <= c <= "\udfff" for c in value)
    if plain:
        into.add(path, kind, TEXT, value)
    else:
        into.add(path, kind or "str", TENSOR, _as_tensor(value.encode("utf-8", "surrogatepass")))


def _put_mapping(value, path, into, depth):
    kind = _kind_of_mapping(value)
    keys = {type(key) for key in value}
    if keys == {int}:
        kind += " of int"
    elif keys - {str}:
        odd = next(key for key in value if type(key) is not str)
        raise TypeError(f"the checkpoint's {path} has the key {odd!r}; expected texts, or whole numbers alone")
    into.add(path, kind, GROUP)
    for key, item in value.items():
        _put(item, _inside(path, str(key)), into, depth + 1)


def _put_sequence(value, path, into, depth):
    kind = _kind_of_sequence(value)
    items = list(value)
    types = {type(item) for item in items}
    if types == {int} and all(-(1 << 63) <= item < 1 << 63 for item in items):
        into.add(path, f"{kind} of int", TENSOR, torch.tensor(items, dtype=torch.int64))
    elif types == {float}:
        into.add(path, f"{kind} of float", TENSOR, torch.tensor(items, dtype=torch.float64))
    elif types == {str} and not any("\n" in item for item in items):
        _put_text("\n".join(items), path, into, f"{kind} of str")
    else:
        into.add(path, kind, GROUP)
        for i, item in enumerate(items):
            _put(item, _inside(path, str(i)), into, depth + 1)


def _put_tensor(value, path, into, depth):
    if value.layout == torch.sparse_coo:
        parts = {"indices": value._indices(), "values": value._values(), "size": list(value.shape),
                 "is_coalesced": value.is_coalesced()}
    elif value.layout in (torch.sparse_csr, torch.sparse_csc):
        rows = value.layout == torch.sparse_csr
        parts = {"compressed": value.crow_indices() if rows else value.ccol_indices(),
                 "plain": value.col_indices() if rows else value.row_indices(),
                 "values": value.values(), "size": list(value.shape)}
    elif value.layout != torch.strided or value.is_quantized or value.is_meta or value.is_nested:
        raise TypeError(
            f"the checkpoint's {path} is a tensor without plain memory ({value.layout}, {value.device}), which "
            f"has no place in a checkpoint")
    elif value.dtype not in NAMES:
        raise TypeError(f"the checkpoint's {path} is a tensor of {value.dtype}; expected one of {', '.join(DTYPES)}")
    else:
        into.add(path, "", TENSOR, value)
        return
    into.add(path, str(value.layout).split(".")[1], GROUP)
    for name, part in parts.items():
        _put(part, _inside(path, name), into, depth + 1)


def _is_numpy(value):
    return type(value).__module__ == "numpy" and hasattr(value, "dtype") and hasattr(value, "tobytes")


def _put_numpy(value, path, into):
    import numpy
    name = value.dtype.name
    # Types that another package has added have names of ours, too, but NumPy alone cannot read them back.
    if name not in DTYPES or not value.dtype.isnative or value.dtype.type.__module__ != "numpy":
        raise TypeError(
            f"the checkpoint's {path} is of NumPy's type {value.dtype} ({value.dtype.type.__module__}); expected a "
            f"tensor, or one of NumPy's own {', '.join(name for name in DTYPES if hasattr(numpy, name))}")
    array = numpy.array(value, order="C")  # a copy, because torch refuses read-only arrays
    kind = "ndarray" if isinstance(value, numpy.ndarray) else "numpy"
    tensor = torch.from_numpy(array.reshape(-1).view(numpy.uint8))
    into.add(path, kind, TENSOR, tensor.view(DTYPES[name]).reshape(array.shape))


# ---- from entries -------------------------------------------------------------------------------------------------


def _bytes_of(tensor):
    return ctypes.string_at(tensor.data_ptr(), tensor.numel()) if tensor.numel() else b""


class Read:
    """A tensor that is to be read: its description, and later its memory."""

    def __init__(self, path, kind, dtype, shape):
        self.path, self.kind, self.shape = path, kind, tuple(shape)
        if dtype not in DTYPES:
            raise NotImplementedError(
                f"{path} is of type {dtype}, which this version of torch ({torch.__version__}) lacks")
        self.dtype = DTYPES[dtype]
        self.tensor = None

    def bytes(self):
        return math.prod(self.shape) * torch.empty(0, dtype=self.dtype).element_size()

    def value(self):
        tensor, kind = self.tensor, self.kind
        if kind in ("bytes", "str"):
            data = _bytes_of(tensor)
            return data if kind == "bytes" else data.decode("utf-8", "surrogatepass")
        if kind == "complex":
            return complex(tensor.item())
        if kind in ("ndarray", "numpy"):
            import numpy
            try:
                array = tensor.numpy()
            except TypeError:  # a type that NumPy lacks
                return tensor
            return array if kind == "ndarray" else numpy.asarray(array)[()]
        if kind.endswith(" of str"):
            return _SEQUENCES[kind[:-7]](_bytes_of(tensor).decode("utf-8", "surrogatepass").split("\n"))
        sequence, _, element = kind.partition(" of ")
        if element in ("int", "float"):
            return _SEQUENCES[sequence](tensor.tolist())
        return tensor


class Node(dict):
    """A group that is read. Maps names to Nodes, Read tensors and values."""

    def __init__(self, kind=""):
        super().__init__()
        self.kind = kind

    def tensors(self):
        for item in self.values():
            if isinstance(item, Node):
                yield from item.tensors()
            elif isinstance(item, Read):
                yield item

    def value(self):
        """Returns the Python object. All its tensors must have been read before."""
        items = {name: item.value() if isinstance(item, (Node, Read)) else item for name, item in self.items()}
        kind, _, key = self.kind.partition(" of ")
        if self.kind.startswith("sparse_"):
            return _sparse(self.kind, items)
        if kind in _SEQUENCES:
            return _SEQUENCES[kind](items[name] for name in sorted(items, key=int))
        made = _MAPPINGS.get(kind, dict)()
        for name in sorted(items, key=int) if key == "int" else items:
            made[int(name) if key == "int" else name] = items[name]
        return made


def _sparse(kind, parts):
    if kind == "sparse_coo":
        made = torch.sparse_coo_tensor(parts["indices"], parts["values"], parts["size"])
        return made._coalesced_(parts["is_coalesced"])
    make = {"sparse_csr": torch.sparse_csr_tensor, "sparse_csc": torch.sparse_csc_tensor}[kind]
    return make(parts["compressed"], parts["plain"], parts["values"], parts["size"])


def value_of(item):
    """Returns the Python object of an item of a Node, whose tensors must have been read."""
    return item.value() if isinstance(item, (Node, Read)) else item


def tensors_in(item):
    return list(item.tensors()) if isinstance(item, Node) else [item] if isinstance(item, Read) else []


def with_names_of_parameters(capsule, entries, group=""):
    """Reads the names of an optimizer's parameters, which are a tensor of bytes if they are long, since they tell
    whether it is this optimizer. Returns the entries with these names as texts. `group`: where the state begins."""
    names = re.compile(re.escape(group) + r"/optimizer/param_groups/\d+/params")
    return [_with_text(capsule, entry) if entry[2] == TENSOR and entry[1].endswith(" of str") and
            names.fullmatch(entry[0]) else entry for entry in entries]


def _with_text(capsule, entry):
    path, kind, _, value = entry
    memory = torch.empty(value[1], dtype=torch.uint8)
    _core.checkpoint_read(capsule, path, memory.data_ptr(), memory.numel())
    return path, kind, TEXT, _bytes_of(memory).decode("utf-8", "surrogatepass")


def unflatten(entries):
    """Returns the root Node of entries that were read. The value of a tensor's entry is (dtype, shape)."""
    nodes = {"/": Node()}
    for path, kind, type_, _ in entries:
        if type_ == GROUP:
            nodes.setdefault(path, Node()).kind = kind
    for path, kind, type_, value in entries:
        if path == "/":
            continue
        around, _, last = path.rpartition("/")
        nodes[around or "/"][unescape(last)] = _item(path, kind, type_, value, nodes)
    return nodes["/"]


def _item(path, kind, type_, value, nodes):
    if type_ == GROUP:
        return nodes[path]
    if type_ == TENSOR:
        return Read(path, kind, *value)
    if type_ == TEXT:
        return _text_of(kind, value)
    if type_ in (NONE, BOOL, INTEGER, NUMBER):
        return value
    raise NotImplementedError(f"{path} is of the type {type_}, which this version of Horovod does not know; expected "
                              f"one of 0 to {TENSOR}")


def _text_of(kind, value):
    if kind == "int":
        return int(value)
    if kind == "torch.dtype":
        return getattr(torch, value)
    if kind == "torch.device":
        return torch.device(value)
    if kind.endswith(" of str"):
        return _SEQUENCES[kind[:-7]](value.split("\n"))
    return value


def as_text(entries):
    """Turns entries into text, to send them to the other ranks."""
    return json.dumps(entries)


def from_text(text):
    return [tuple(entry) for entry in json.loads(text)]
