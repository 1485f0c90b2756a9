"""Shared by the tests of the contract: tensors that depend on the rank, their expected results, and further jobs."""
import contextlib
import os
import pathlib
import subprocess
import sys
import textwrap
import time

import pytest
import torch

import horovod.torch as hvd

SIZE = int(os.environ.get("CONTRACT_RANKS", 0))  # the job's ranks; 0: one process without a launcher
HOROVODRUN = os.environ.get("HOROVODRUN", "horovodrun")
LIMIT = int(os.environ.get("CONTRACT_LIMIT", 60))  # the longest time of a test in seconds

alone = pytest.mark.alone  # the test runs once, in one process without a launcher
at_least = pytest.mark.at_least  # at_least(2): the test needs at least two ranks
power_of_two = pytest.mark.power_of_two  # the test runs with 1, 2 or 4 ranks
limit = pytest.mark.limit  # limit(120): the longest time of this test in seconds

REDUCED = [torch.int32, torch.int64, torch.float16, torch.float32, torch.float64]
MOVED = [torch.uint8, torch.int8, torch.int16, *REDUCED]
SHAPES = [(5,), (5, 3), (5, 3, 2)]


def everyone():
    return range(hvd.size())


def of(rank, shape=(17,), dtype=torch.float32):
    """A tensor whose values depend on rank and position. Sums and products over four ranks are exact in every dtype."""
    count = 1
    for extent in shape:
        count *= extent
    return (torch.arange(count) % 5 + rank + 1).reshape(shape).to(dtype)


def mine(shape=(17,), dtype=torch.float32):
    return of(hvd.rank(), shape, dtype)


def total(shape=(17,), dtype=torch.float32, ranks=None):
    return sum(of(rank, shape, torch.float64) for rank in (everyone() if ranks is None else ranks)).to(dtype)


def gathered(rows, tail=(), dtype=torch.float32, ranks=None):
    """The result of an allgather to which each rank gives `of(rank, (rows(rank), *tail))`."""
    return torch.cat([of(rank, (rows(rank), *tail), dtype) for rank in (everyone() if ranks is None else ranks)])


def share(rows, rank, size):
    """The slice of a rank when `rows` rows are divided. If they cannot be divided evenly, the first ranks get one
    more."""
    each, more = divmod(rows, size)
    first = rank * each + min(rank, more)
    return slice(first, first + each + (rank < more))


def equal(found, expected):
    if isinstance(found, Exception):
        raise found
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def near(found, expected):
    """Asserts equality: exact up to three ranks, as in Horovod's own tests; within rounding from four ranks on, where
    the order of a sum matters."""
    if isinstance(found, Exception):
        raise found
    coarse = 2e-3 if expected.dtype == torch.float16 else 1e-4
    integer = not expected.dtype.is_floating_point
    torch.testing.assert_close(found, expected, rtol=0 if integer or hvd.size() <= 3 else coarse, atol=1e-8)


def error_of(function, *arguments, **named):
    """The exception of the call, or None. Tests check it later, after every rank has made all its calls."""
    try:
        function(*arguments, **named)
    except Exception as error:  # the test checks the kind
        return error
    return None


def outcome(function, *arguments, **named):
    """The result of the call, or its exception. For calls of some ranks only, after which all ranks must go on
    together."""
    try:
        return function(*arguments, **named)
    except Exception as error:  # the test raises the error when it uses the outcome
        return error


def is_error(error, *kinds):
    assert isinstance(error, kinds), f"expected {[kind.__name__ for kind in kinds]}, found {error!r}"


def environment(**changes):
    """Sets variables, and removes those whose value is None. environment(**result) restores the old values."""
    before = {name: os.environ.get(name) for name in changes}
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = str(value)
    return before


@contextlib.contextmanager
def restarted(process_sets=None, **changes):
    """Restarts the runtime with these environment variables. Restarts it without them afterwards."""
    hvd.barrier()
    hvd.shutdown()
    before = environment(**changes)
    try:
        hvd.init(process_sets=process_sets)
        yield hvd
        if hvd.is_initialized():
            hvd.barrier()
    finally:
        hvd.shutdown()
        environment(**before)
        hvd.init()


@contextlib.contextmanager
def sets_of(*lists):
    """One process set for each list of ranks. The sets are removed afterwards."""
    sets = [hvd.add_process_set(ranks) for ranks in lists]
    try:
        yield sets if len(sets) > 1 else sets[0]
    finally:
        for process_set in sets:
            hvd.remove_process_set(process_set)


@contextlib.contextmanager
def halves():
    """Makes two process sets, of the even and of the odd ranks. Yields the set of this rank and the ranks in it."""
    sides = [[rank for rank in everyone() if rank % 2 == side] for side in (0, 1)]
    with sets_of(*sides) as sets:
        yield sets[hvd.rank() % 2], sides[hvd.rank() % 2]


def wait_for(found, what="", seconds=LIMIT / 2):
    """Waits until found() is true, for instance until another process has written a file. Returns the value of
    found()."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, f"waited in vain for {what or found}"
        time.sleep(0.01)  # before found() is called again
    return value


class Job:
    """A job of `horovodrun -np RANKS python PROGRAM`, whose output goes to a file."""

    def __init__(self, folder, ranks, program, *arguments, options=(), hold=False, **changes):
        folder = pathlib.Path(folder)
        if not isinstance(program, pathlib.Path):
            (folder / "program.py").write_text("import horovod.torch as hvd, os, pathlib, sys, time, torch\n"
                                               "folder = pathlib.Path(sys.argv[1])\n"
                                               "def wait_for(name):\n"
                                               "    while not (folder / name).exists(): time.sleep(0.01)\n"
                                               + textwrap.dedent(program))
            program, arguments = folder / "program.py", (folder, *arguments)
        self.folder = folder
        self.output = folder / "output"
        command = [sys.executable, str(program), *map(str, arguments)]
        if hold:  # a shell around each rank waits for the file `over`, so that the launcher does not see a dead rank
            waits = '"${@:2}"; while [ ! -e "$1/over" ]; do sleep 0.1; done'
            command = ["bash", "-c", waits, "bash", str(folder), *command]
        variables = {**os.environ, **{name: str(value) for name, value in changes.items()}}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen([HOROVODRUN, "-np", str(ranks), *options, *command], env=variables,
                                            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.say("over")
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()

    def text(self):
        return self.output.read_text(errors="replace")

    def say(self, name):
        (self.folder / name).touch()

    def heard(self, name):
        wait_for(lambda: (self.folder / name).exists() or self.process.poll() is not None, name)
        assert (self.folder / name).exists(), self.text()
        return (self.folder / name).read_text()

    def ends(self, seconds=LIMIT):
        """Waits for the end of the job, and returns its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job does not end: {self.text()}") from None
