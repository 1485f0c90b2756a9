"""A rank of horovod.run: gets the function from the process that called it, calls it and sends the result there."""
import collections
import os
import pickle
import sys
import traceback

from horovod import _core
from horovod.common.exceptions import HorovodInternalError
from horovod.common.meeting import Meeting, start_timeout

PATH, TASK = "path", "task"
ADDRESSES, PORT, KEY = "HOROVOD_RUN_ADDRESSES", "HOROVOD_RUN_PORT", "HOROVOD_RUN_KEY"
_RANKS = ("HOROVOD_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_ID", "JSM_NAMESPACE_RANK",
          "MV2_COMM_WORLD_RANK", "FLUX_TASK_RANK", "PALS_RANKID", "SLURM_PROCID")

# `what` completes "Rank 3 …". A consequence: the rank only noticed that another one had failed.
Failure = collections.namedtuple("Failure", "rank what is_consequence")


def variables_of(meeting):
    """Returns the environment variables by which ranks find the meeting."""
    return dict(zip((ADDRESSES, PORT, KEY), meeting.place()))


def result_of(rank):
    return f"result/{rank}"


_SMALLEST_BUFFER = 1 << 20


def pickled(value):
    """Returns the pickled value, and the large buffers of its arrays, which need no copy on the way."""
    import cloudpickle
    buffers = []

    def keep(buffer):
        """False if it travels by itself."""
        try:
            memory = buffer.raw()
        except BufferError:  # it is not in one piece
            return True
        if memory.readonly or memory.nbytes < _SMALLEST_BUFFER:
            return True
        buffers.append(memory)
        return False

    return cloudpickle.dumps(value, protocol=5, buffer_callback=keep), buffers


def put(meeting, key, value, buffers):
    """Puts what pickled() has returned. Who finds the key finds all of it."""
    for number, memory in enumerate(buffers):
        meeting.put(f"{key}/{number}", memory)
    meeting.put(f"{key}/sizes", pickle.dumps([memory.nbytes for memory in buffers]))
    meeting.put(key, value)


def get(meeting, key, timeout, forget=False):
    """Returns what pickled() had returned in another process. The buffers can be written to."""
    value = meeting.get(key, timeout, forget)
    buffers = [bytearray(size) for size in pickle.loads(meeting.get(f"{key}/sizes", 0, forget))]
    for number, memory in enumerate(buffers):
        meeting.get_into(f"{key}/{number}", memory, forget)
    return value, buffers


def failures_in(meeting, ranks):
    """Returns the failures that these ranks have reported."""
    found = []
    for rank in ranks:
        try:
            found.append(Failure(*pickle.loads(meeting.get(_failure_of(rank), timeout=0))))
        except TimeoutError:
            continue
    return found


def _failure_of(rank):
    return f"failure/{rank}"


def main():
    missing = [name for name in (ADDRESSES, PORT, KEY) if name not in os.environ]
    if missing:
        sys.exit(f"horovod.runner.run_task: {', '.join(missing)} is not set. horovod.run starts this program; it is "
                 "not meant to be started by hand")
    place = [os.environ[name] for name in (ADDRESSES, PORT, KEY)]
    del os.environ[KEY]  # what the function starts need not know it
    with _enter(place) as meeting:
        task = [*get(meeting, TASK, start_timeout()), pickle.loads(meeting.get(PATH, timeout=0))]
    try:
        result, kept = _call(task)
    except BaseException as error:
        _report(place, error)
        if not isinstance(error, Exception):
            raise  # Python ends the process as it does without us
        traceback.print_exception(type(error), error, _own_part_of(error))
        sys.exit(1)
    with _enter(place) as meeting:
        put(meeting, result_of(_rank()), *result)
    del kept


def _enter(place):
    try:
        return Meeting.enter(*place, timeout=start_timeout())
    except (OSError, ValueError) as error:
        sys.exit(f"rank {_rank()} cannot reach the program that called horovod.run: {error}")


def _rank():
    if _core.has_place():
        return _core.world()[0]
    return next((int(os.environ[name]) for name in _RANKS if os.environ.get(name, "").isdigit()), 0)


def _call(task):
    """Returns the pickled result of the pickled function, and what has to live until it is sent: arrays are sent from
    their memory, which may be that of the function or of an object in the result."""
    value, buffers, path = task
    task.clear()
    sys.path += [folder for folder in path if folder not in sys.path]  # modules beside the program are found
    try:
        function = pickle.loads(value, buffers=buffers)
        del value, buffers
    except Exception as error:
        raise RuntimeError("the function of horovod.run cannot be loaded here. What it imports must be installed on "
                           f"this host, too: {type(error).__name__}: {error}") from error
    result = function()
    if os.environ.get("HOROVOD_ELASTIC") == "1" and not os.environ.get("HOROVOD_RANK"):  # set by hvd.init()
        raise RuntimeError("the function of horovod.run has returned without a rank. In an elastic job (min_num_proc, "
                           "host_discovery_script) a process gets its rank in hvd.init(): call it in the function")
    try:
        return pickled(result), (function, result)
    except Exception as error:
        raise pickle.PicklingError("the result of the function cannot be sent to the program that called horovod.run: "
                                   f"it is a {type(result).__qualname__}: {error}") from error


def _report(place, error):
    """Tells the caller why this rank fails."""
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return
    what = (f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else "raised\n" + "".join(
        traceback.format_exception(type(error), error, _own_part_of(error))).rstrip())
    try:
        with Meeting.enter(*place, timeout=start_timeout()) as meeting:
            failure = Failure(_rank(), what, isinstance(error, HorovodInternalError))
            meeting.put(_failure_of(failure.rank), pickle.dumps(tuple(failure)))
    except (OSError, ValueError) as lost:
        print(f"rank {_rank()} cannot tell the program that called horovod.run why it fails: {lost}", file=sys.stderr)


def _own_part_of(error):
    """Returns the traceback from the function on, without the calls of this file."""
    own = error.__traceback__
    while own is not None and own.tb_frame.f_code.co_filename == __file__:
        own = own.tb_next
    return own


if __name__ == "__main__":
    main()
