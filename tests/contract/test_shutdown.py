"""Tests of shutdown, of failures of other ranks, and of starting again."""
import signal
import threading

import pytest
import torch

import horovod.torch as hvd
from ranks import SIZE, Job, alone, at_least, equal, error_of, gathered, is_error, mine, restarted, total


def works():
    equal(hvd.allreduce(mine(), op=hvd.Sum), total())
    equal(hvd.allgather(mine((hvd.rank() + 1,))), gathered(lambda rank: rank + 1))


@at_least(2)
def test_a_shutdown_of_one_rank_ends_the_ops_of_the_others():
    """Contract §6.12, §2.10 op in flight when Horovod shuts down"""
    handle = hvd.allreduce_async(mine(), name="pending") if hvd.rank() else None
    hvd.barrier()
    if hvd.rank() == 0:
        hvd.shutdown()
        pending = later = None
    else:
        pending = error_of(hvd.synchronize, handle)
        later = error_of(hvd.allreduce, mine(), name="later")
    here = hvd.is_initialized()
    hvd.shutdown()
    hvd.init()
    works()
    if hvd.rank():
        is_error(pending, hvd.HorovodInternalError)
        is_error(later, hvd.HorovodInternalError)
        assert "shut down" in str(pending) and here
    else:
        assert not here


@at_least(2)
@pytest.mark.parametrize("verb", ["allgather_async", "alltoall_async", "reducescatter_async", "broadcast_async"])
def test_pending_ops_of_every_verb_end_with_an_error(verb):
    """Contract §6.12 shutdown and failure"""
    arguments = (torch.ones(12), 1) if "broadcast" in verb else (torch.ones(12),)
    handle, submitted = None, None
    if hvd.rank():
        def submit():
            nonlocal handle
            handle = getattr(hvd, verb)(*arguments, name="pending")
        submitted = error_of(submit)
    hvd.barrier()
    if hvd.rank() == 0:
        hvd.shutdown()
    error = error_of(hvd.synchronize, handle) if handle is not None else None
    hvd.shutdown()
    hvd.init()
    works()
    assert submitted is None
    if hvd.rank():
        is_error(error, hvd.HorovodInternalError)


@at_least(2)
def test_a_barrier_and_a_join_end_with_an_error_too(shared_folder):
    """Contract §6.12 shutdown and failure"""
    for waits in (hvd.barrier, hvd.join):
        hvd.allreduce(mine(), name="together")
        if hvd.rank() == 0:
            hvd.shutdown()
            error = None
        else:
            error = error_of(waits)
        hvd.shutdown()
        hvd.init()
        works()
        if hvd.rank():
            is_error(error, hvd.HorovodInternalError)


def test_ranks_shut_down_together_and_start_again_many_times():
    """Contract §6.12 shutdown and failure"""
    for turn in range(15):
        hvd.allreduce(mine(), name=f"turn.{turn}")
        hvd.shutdown()  # there is no barrier, so that some ranks are earlier than others
        hvd.init()
    works()


def test_a_restart_with_pending_handles_of_its_own():
    """Contract §6.12 shutdown and failure, §2.3 handles"""
    handle = hvd.allreduce_async(mine(), name="pending") if hvd.rank() == 0 and SIZE > 1 else None
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    works()
    if handle is not None:
        error = error_of(hvd.synchronize, handle)  # none (the handle is unknown now) or the op's error
        assert error is None or isinstance(error, hvd.HorovodInternalError)


@at_least(2)
def test_shutdown_with_process_sets_ends_them_too():
    """Contract §5 shutdown, §6.12"""
    with restarted(HOROVOD_DYNAMIC_PROCESS_SETS=1):
        added = hvd.add_process_set([0])
        if added.included():
            hvd.allreduce(mine(), process_set=added)
        hvd.barrier()
        hvd.shutdown()
        hvd.init()
        known = hvd.mpi_ops._basics._get_process_set_ids_and_ranks()
        works()
    assert known == {0: list(range(SIZE))}


@at_least(2)
def test_threads_that_submit_while_another_shuts_down_get_errors():
    """Contract §6.12, issue 20"""
    stopped, begun, odd = threading.Event(), threading.Event(), []

    def submit():
        step = 0
        while not stopped.is_set():
            error = error_of(hvd.allreduce, mine(), op=hvd.Sum, name=f"busy.{step}")
            begun.set()
            if error is not None:
                if not isinstance(error, (hvd.HorovodInternalError, ValueError)):
                    odd.append(error)
                return
            step += 1

    thread = threading.Thread(target=submit)
    thread.start()
    begun.wait()
    hvd.shutdown()
    stopped.set()
    thread.join()
    hvd.init()
    works()
    assert odd == []


@alone
@pytest.mark.parametrize("how", ["os._exit(0)", "os.kill(os.getpid(), 9)"], ids=["leaves", "is killed"])
def test_the_death_of_a_rank_is_an_internal_error_on_the_others(how, tmp_path):
    """Contract §6.12, §2.10 peer dies"""
    with Job(tmp_path, 3, f"""
            hvd.init()
            assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [3, 3, 3]
            if hvd.rank() == 1:
                {how}
            for step in range(2):
                try:
                    hvd.allreduce(torch.ones(3), name="pending")
                except hvd.HorovodInternalError as error:
                    (folder / f"error.{{hvd.rank()}}.{{step}}").write_text(repr(error))
            """, hold=True) as job:
        for rank in (0, 2):
            for step in range(2):
                job.heard(f"error.{rank}.{step}")
        job.say("over")
        job.ends()


@alone
def test_a_rank_whose_program_fails_ends_the_ops_of_the_others(tmp_path):
    """Contract §6.12: exit runs the orderly shutdown"""
    with Job(tmp_path, 2, """
            hvd.init()
            hvd.barrier()
            if hvd.rank() == 1:
                raise RuntimeError("a mistake of the user")
            try:
                hvd.allreduce(torch.ones(3), name="pending")
            except hvd.HorovodInternalError as error:
                (folder / "error").write_text(repr(error))
            """, hold=True) as job:
        job.heard("error")
        job.say("over")
        job.ends()
        assert "a mistake of the user" in job.text()


@alone
def test_a_rank_that_ends_early_does_not_hang_the_job(tmp_path):
    """Contract §6.12: shutdown by one rank"""
    with Job(tmp_path, 2, """
            hvd.init()
            hvd.barrier()
            if hvd.rank() == 0:
                try:
                    hvd.allreduce(torch.ones(3), name="pending")
                except hvd.HorovodInternalError:
                    (folder / "error").touch()
            """) as job:
        assert job.ends() == 0, job.text()
        assert (tmp_path / "error").exists()


@alone
def test_a_job_ends_when_a_rank_is_killed(tmp_path):
    """Contract §6.12: a killed rank is a transport error"""
    import os
    with Job(tmp_path, 2, """
            hvd.init()
            (folder / f"new.{hvd.rank()}").write_text(str(os.getpid()))
            hvd.barrier()
            (folder / f"new.{hvd.rank()}").rename(folder / f"pid.{hvd.rank()}")
            while True:
                hvd.allreduce(torch.ones(3), name="step")
            """) as job:
        os.kill(int(job.heard("pid.1")), signal.SIGKILL)
        assert job.ends() != 0


@alone
def test_survivors_may_start_again_when_all_do(tmp_path):
    """Contract §6.12: until they call shutdown(); init()"""
    with Job(tmp_path, 2, """
            for turn in range(3):
                hvd.init()
                assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [2, 2]
                if hvd.rank() == turn % 2:
                    hvd.shutdown()
                    continue
                try:
                    hvd.allreduce(torch.ones(2), name="pending")
                    sys.exit("no error")
                except hvd.HorovodInternalError:
                    hvd.shutdown()
            """) as job:
        assert job.ends() == 0, job.text()
