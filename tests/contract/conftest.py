"""Every rank of a job runs these tests in the same order. Tests marked `alone` run in one process without a launcher.

After each test the ranks agree on whether it failed on any rank. If it failed, the runtime starts anew.

The docstring of a test names the sections of the contract that the test checks. The contract says what Horovod's users
rely on. "[Horovod tests this]": one of Horovod's own tests asserts the behaviour.
"""
import faulthandler
import json
import os
import pathlib
import sys

import pytest

os.environ.setdefault("HOROVOD_DYNAMIC_PROCESS_SETS", "1")

import torch  # noqa: E402

import horovod.torch as hvd  # noqa: E402
from ranks import LIMIT, SIZE  # noqa: E402

# The file in which this rank tells tests/contract/run its progress.
RECORD = os.environ.get("CONTRACT_RECORD")
outcomes = {}


def pytest_configure(config):
    for line in ("alone: one process, no launcher", "at_least(n): from n ranks on", "power_of_two: 1, 2 or 4 ranks",
                 "limit(seconds): instead of $CONTRACT_LIMIT"):
        config.addinivalue_line("markers", line)


def pytest_make_parametrize_id(val):
    return str(val).removeprefix("torch.") if isinstance(val, torch.dtype) else None


def belongs_here(item):
    if bool(item.get_closest_marker("alone")) != (SIZE == 0):
        return False
    least = item.get_closest_marker("at_least")
    if least and SIZE < least.args[0]:
        return False
    return not item.get_closest_marker("power_of_two") or SIZE in (1, 2, 4)


def section_of(item):
    return (item.function.__doc__ or "").strip().split("\n")[0]


def pytest_collection_modifyitems(items):
    for item in items:
        if not section_of(item).startswith("Contract §") or len(item.originalname) > 80:
            raise pytest.UsageError(f"{item.nodeid}: expected a docstring that begins with 'Contract §', and a name of "
                                    "at most 80 characters")
    kept = [item for item in items if belongs_here(item)]
    after = os.environ.get("CONTRACT_AFTER")  # the test that ended the previous job
    if after:
        kept = kept[[item.nodeid for item in kept].index(after) + 1:]
    items[:] = kept


def record(**what):
    if RECORD:
        with pathlib.Path(RECORD).open("a") as file:
            file.write(json.dumps(what) + "\n")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    longest = item.get_closest_marker("limit")
    record(test=item.nodeid, section=section_of(item), outcome="started")
    faulthandler.dump_traceback_later(longest.args[0] if longest else LIMIT, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()
    record(test=item.nodeid, section=section_of(item), **outcomes.pop(item.nodeid, {"outcome": "passed"}))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    report = (yield).get_result()
    if report.failed:
        item.failed_here = True
        outcomes.setdefault(item.nodeid, {"outcome": "failed", "text": str(report.longrepr)})
    elif report.skipped:
        outcomes.setdefault(item.nodeid, {"outcome": "skipped", "text": str(report.longrepr)})


def pytest_sessionfinish(exitstatus):
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        record(outcome="finished")


@pytest.fixture(autouse=True)
def the_next_test_finds_a_runtime(request):
    torch.manual_seed(1234)
    if SIZE == 0:
        yield
        return
    hvd.init()
    yield
    try:
        failed = torch.tensor([1.0 if getattr(request.node, "failed_here", False) else 0.0])
        anew = hvd.allreduce(failed, op=hvd.Sum, name="contract.failed").item() > 0
    except Exception:  # the runtime has ended on this rank or on another one
        anew = True
    if anew:
        hvd.shutdown()
        hvd.init()
    hvd.barrier()


@pytest.fixture
def rank():
    return hvd.rank()


@pytest.fixture
def size():
    return hvd.size()


@pytest.fixture
def shared_folder(request):
    """An empty folder for one test, the same on all ranks."""
    name = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
    folder = pathlib.Path(os.environ["CONTRACT_FOLDER"], name)
    folder.mkdir(exist_ok=True, parents=True)
    return folder
