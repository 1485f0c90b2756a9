"""A meeting: the place where ranks find each other if horovodrun does not start them. The ranks, and the program that
starts them, put values there and get them (hvd_meeting_open in horovod.h). The program itself has no rank."""
import ctypes

from horovod import _core, _ops

_VARIABLES = ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT", "HOROVOD_SECRET_KEY")


class Meeting:
    """A meeting that this process has opened, or has entered with `enter`.

    `size` is the number of ranks. It listens on `interfaces` (names, separated by commas). The default is
    HOROVOD_GLOO_IFACE, and all interfaces without it. The port is one of `ports` (first, last). The default is
    HOROVOD_PORT_RANGE, and any port without it.
    """

    def __init__(self, size, interfaces=None, ports=(0, 0)):
        self._meeting = _core.meeting_open(size, interfaces, *ports)

    @classmethod
    def enter(cls, addresses, port, secret, timeout=None):
        """Enters the meeting of another process, whose `place()` gives the first three arguments. TimeoutError after
        `timeout` seconds (None: HOROVOD_START_TIMEOUT), ConnectionError if nobody listens there."""
        meeting = cls.__new__(cls)
        meeting._meeting = _core.meeting_enter(addresses, port, secret,
                                               _milliseconds(start_timeout() if timeout is None else timeout))
        return meeting

    def variables(self, rank):
        """Returns the environment variables by which a process becomes this rank in hvd.init(). One of them is a
        secret: keep it out of command lines and of files that other users can read."""
        return _core.meeting_variables(self._meeting, rank)

    def place(self):
        """Returns (addresses, port, secret) for `enter`."""
        variables = self.variables(0)
        return tuple(variables[name] for name in _VARIABLES)

    def rank_ended(self, rank, how):
        """Tells the ranks that wait for rank `rank` that its process has ended. `how` completes "rank 3 …"."""
        _core.meeting_rank_ended(self._meeting, rank, how)

    def put(self, key, value):
        """Puts bytes under a key, in place of an earlier value. Memory that can be written to, as of a bytearray or of
        an array, is sent without a copy."""
        if isinstance(value, bytes) or memoryview(value).readonly:
            _core.meeting_put(self._meeting, key, bytes(value))
        else:
            memory = _Memory(value)
            _core.meeting_put_from(self._meeting, key, memory.address, memory.size)

    def get(self, key, timeout=None, forget=False):
        """Returns the bytes of that key as soon as they are there. TimeoutError after `timeout` seconds; 0 only looks.
        With `forget` they are not kept for others. ConnectionError if the process that opened the meeting has ended."""
        return _core.meeting_get(self._meeting, key, _milliseconds(timeout), forget)

    def get_into(self, key, place, forget=False):
        """Gets a value that is there into memory of its size that can be written to, as of a bytearray."""
        memory = _Memory(place)
        _core.meeting_get_into(self._meeting, key, memory.address, memory.size, forget)

    def close(self):
        """Ends the meeting, or leaves it. It may wait some seconds for ranks that are still in hvd.init()."""
        self._meeting = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class _Memory:
    """The address of memory that can be written to. The memory stays as long as this object."""

    def __init__(self, value):
        view = memoryview(value).cast("B")
        self.size = view.nbytes
        self._memory = (ctypes.c_char * self.size).from_buffer(view)
        self.address = ctypes.addressof(self._memory)


def start_timeout():
    """Returns how many seconds a start may take (HOROVOD_START_TIMEOUT)."""
    return float(_ops.setting("HOROVOD_START_TIMEOUT"))


def _milliseconds(seconds):
    return -1 if seconds is None else round(seconds * 1000)
