"""Child processes of a rank: workers of data loaders, forks, programs with the rank's environment."""
import multiprocessing
import os
import subprocess
import sys

import pytest
import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    """Each item contains the number of processors on which its worker may run."""

    def __len__(self):
        return 2000

    def __getitem__(self, index):
        return torch.full((8,), float(index)), len(os.sched_getaffinity(0))


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_data_loader(hvd, rank, size, way):
    own_processors = len(os.sched_getaffinity(0))
    loader = DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context=way)
    batches = 0
    for values, processors in loader:
        assert processors.tolist() == [own_processors] * 2, "a worker has other processors than its rank"
        if batches % 100 == 0:
            total = hvd.allreduce(values, op=hvd.Sum, name="batch")
            assert torch.equal(total, values * size)
        batches += 1
    assert batches == 1000


def in_child(hvd, calls):
    """Makes the calls in a forked child. Returns for each the exception's type and text, or "nothing raised"."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        answers = []
        for call in calls:
            try:
                call()
                answers.append("nothing raised")
            except BaseException as error:
                answers.append(f"{type(error).__name__}: {error}")
        os.write(writer, "\n".join(answers).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answers = pipe.read().split("\n")
    assert os.waitpid(child, 0)[1] == 0
    return answers


def test_all_communication_raises_in_a_forked_child(hvd, rank, size):
    answers = in_child(hvd, [hvd.init, lambda: hvd.allreduce(torch.ones(1)),
                             lambda: hvd.allreduce_async_(torch.ones(1), name="a"), hvd.barrier,
                             lambda: hvd.broadcast_object(1)])
    for answer in answers:
        assert "fork" in answer and answer.split(":")[0] in ("ValueError", "HorovodInternalError"), answers
    assert torch.equal(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(size)]))


def test_a_forked_child_may_exit_as_it_likes(hvd, size):
    """The job must go on after a forked child has run shutdown() and its atexit functions."""
    child = os.fork()
    if child == 0:
        import atexit
        hvd.shutdown()
        atexit._run_exitfuncs()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.equal(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(size)]))


def test_fork_with_operations_in_flight(hvd, rank, size):
    handles = [hvd.allreduce_async(torch.full((10_000,), float(i)), op=hvd.Sum, name=f"f.{i}") for i in range(20)]
    process = multiprocessing.get_context("fork").Process(target=sum, args=([1, 2],))
    process.start()
    process.join()
    assert process.exitcode == 0
    for i, handle in enumerate(handles):
        assert torch.equal(hvd.synchronize(handle), torch.full((10_000,), float(i * size)))


JOINS = """
from horovod.common.basics import HorovodBasics
try:
    HorovodBasics().init()
    print("joined")
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize("environment", ["inherited", "copied"])
def test_a_program_started_by_a_rank_does_not_join_in_its_place(hvd, rank, size, environment):
    given = None if environment == "inherited" else dict(os.environ)
    found = subprocess.run([sys.executable, "-c", JOINS], env=given, stdout=subprocess.PIPE, text=True, timeout=100)
    assert str(os.getpid()) in found.stdout and "child" in found.stdout, found.stdout
    assert torch.equal(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(size)]))


def init_in_spawned_process(results):
    import horovod.torch as hvd
    try:
        hvd.init()
        results.put("joined")
    except ValueError as error:
        results.put(str(error))


def test_a_spawned_process_does_not_join(hvd, rank):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=init_in_spawned_process, args=(results,))
    process.start()
    assert "child" in results.get(timeout=100)
    process.join()
