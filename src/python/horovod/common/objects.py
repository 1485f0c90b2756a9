"""Python objects of the ranks, for all frameworks: they travel as bytes, in memory that no framework owns."""
import array
import io
import pickle

from horovod import _core, _ops
from horovod.common.operations import full_name_of, place_in, root_of
from horovod.common.process_sets import global_process_set


def _to_bytes(obj):
    import cloudpickle
    stream = io.BytesIO()
    cloudpickle.dump(obj, stream)
    return array.array("B", stream.getbuffer())


# (module, name) -> the function that is called in its place when an object of another rank is unpickled. For frameworks
# whose tensors come to the device of this rank.
instead_of = {}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        return instead_of.get((module, name)) or super().find_class(module, name)


class _Reader(io.RawIOBase):
    """Reads a buffer without a copy of all of it."""

    def __init__(self, data):
        self._left = memoryview(data)

    def readable(self):
        return True

    def readinto(self, place):
        count = min(len(place), len(self._left))
        place[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def _from_bytes(data):
    return _Unpickler(io.BufferedReader(_Reader(data), 1 << 16)).load()


def _broadcast(numbers, dtype, root_rank, name, set_id):
    """Copies the root's array into that of this rank, of the same length."""
    address, count = numbers.buffer_info()
    full_name = full_name_of("broadcast", name, set_id)
    found = _ops.operation((full_name, set_id, dtype, count, root_rank, "object"), full_name, _core.BROADCAST, dtype,
                           (count,), root=root_rank, process_set=set_id)
    _ops.finish(_ops.submit(found, address, address, 0, None, numbers))


def broadcast_object(obj, root_rank=0, name=None, process_set=global_process_set):
    """Returns the root's object on every rank; the root gets its own object back. Other ranks may pass any object.

    name: distinguishes several calls that are in flight.
    """
    name = name or "broadcast_object"
    set_id, root_rank = process_set._check_id(), root_of(root_rank, "broadcast_object")
    at_root = _core.world()[0] == root_rank
    data = _to_bytes(obj) if at_root else None
    length = array.array("q", [len(data) if at_root else 0])
    _broadcast(length, _core.INT64, root_rank, f"{name}.sz", set_id)
    if not at_root:
        data = array.array("B", bytes(length[0]))
    _broadcast(data, _core.UINT8, root_rank, f"{name}.t", set_id)
    return obj if at_root else _from_bytes(data)


def allgather_object(obj, name=None, process_set=global_process_set):
    """Returns the list of all ranks' objects, in the order of ranks."""
    set_id = process_set._check_id()
    data = _to_bytes(obj)
    address, count = data.buffer_info()
    full_name = full_name_of("allgather", f"{name or 'allgather_object'}.t", set_id)
    found = _ops.operation((full_name, set_id, "object"), full_name, _core.ALLGATHER, _core.UINT8, (count,),
                           process_set=set_id)
    _, size = place_in(set_id)

    def parts(handle, _):
        everything = memoryview(_core.result_bytes(handle, 0))
        lengths = _core.received_splits(handle, 0, size)
        ends = [sum(lengths[:i + 1]) for i in range(size)]
        return [everything[end - length:end] for end, length in zip(ends, lengths)]

    return [_from_bytes(part) for part in _ops.finish(_ops.submit(found, address, 0, count, None, data, parts))]
