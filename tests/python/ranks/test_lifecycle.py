"""Tests of init and shutdown, and of calls before and after them."""
import pytest
import torch


def test_world(hvd, rank, size):
    assert 0 <= rank < size
    assert hvd.allgather(torch.tensor([rank])).tolist() == list(range(size))
    assert hvd.local_rank() < hvd.local_size() and hvd.cross_rank() < hvd.cross_size()
    assert hvd.is_initialized()
    assert hvd.global_process_set.ranks == list(range(size))
    assert hvd.global_process_set.size() == size and hvd.global_process_set.rank() == rank
    assert hvd.global_process_set.included()
    with pytest.raises(ValueError):
        hvd.mpi_threads_supported()


def test_init_again_changes_nothing(hvd):
    hvd.allreduce(torch.ones(1), name="before")
    handle = hvd.allreduce_async(torch.ones(1), name="over init")
    hvd.init()
    assert hvd.synchronize(handle) is not None


def test_a_hundred_times(hvd, rank, size):
    for i in range(100):
        assert torch.equal(hvd.allreduce(torch.full((3,), float(i)), op=hvd.Sum), torch.full((3,), float(i * size)))
        hvd.barrier()
        hvd.shutdown()
        assert not hvd.is_initialized()
        hvd.init()


def test_nothing_works_after_shutdown(hvd):
    hvd.barrier()
    hvd.shutdown()
    hvd.shutdown()
    for question in (hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.cross_rank, hvd.cross_size):
        with pytest.raises(ValueError, match="initialized"):
            question()
    for call in (lambda: hvd.allreduce(torch.ones(1)), lambda: hvd.allgather(torch.ones(1), name="a"),
                 lambda: hvd.broadcast_(torch.ones(1), 0), hvd.barrier):
        with pytest.raises((ValueError, hvd.HorovodInternalError), match="initialized"):
            call()


def test_one_rank_shuts_down_while_others_wait(hvd, rank, size):
    hvd.barrier()
    if rank == 0:
        hvd.shutdown()
    else:
        with pytest.raises(hvd.HorovodInternalError):
            hvd.allreduce(torch.ones(3), name="alone")
        assert hvd.is_initialized()
        with pytest.raises(hvd.HorovodInternalError):
            hvd.allreduce(torch.ones(3), name="afterwards")
        hvd.shutdown()
    hvd.init()
    assert torch.equal(hvd.allreduce(torch.ones(3), op=hvd.Sum, name="alone"), torch.full((3,), float(size)))


def test_handles_that_nobody_waits_for(hvd):
    for i in range(20):
        hvd.allreduce_async(torch.ones(1000), name=f"left.{i}")
        hvd.allgather_async(torch.ones(1000), name=f"left.{i}")
    hvd.barrier()
    hvd.shutdown()


def test_a_handle_from_before_shutdown(hvd):
    handle = hvd.allreduce_async(torch.ones(10), name="old")
    hvd.barrier()
    hvd.shutdown()
    assert hvd.poll(handle)
    with pytest.raises(hvd.HorovodInternalError):
        hvd.synchronize(handle)
    assert hvd.synchronize(handle) is None


def test_a_handle_from_before_a_restart_is_not_taken_for_one_of_the_new_job(hvd):
    old = hvd.allreduce_async(torch.ones(10), name="old")
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    new = hvd.allreduce_async(torch.zeros(3), name="new")
    with pytest.raises(hvd.HorovodInternalError, match="shut down by this process before it waited"):
        hvd.synchronize(old)
    assert hvd.synchronize(old) is None
    assert torch.equal(hvd.synchronize(new), torch.zeros(3))


def test_barrier_waits_for_everybody(hvd, rank, size):
    handle = None
    if rank == size - 1:
        handle = hvd.allreduce_async(torch.zeros(1), name="token") if size == 1 else None
    for _ in range(50):
        hvd.barrier()
    assert handle is None or hvd.synchronize(handle) is not None


def test_waiting_thread_does_not_hold_the_interpreter(hvd, rank):
    """A thread that waits must release the GIL. Here only another thread can make the operation complete."""
    import threading
    done = []
    if rank == 0:
        waiting = hvd.allreduce_async(torch.ones(1), name="gil")
        thread = threading.Thread(target=lambda: done.append(hvd.synchronize(waiting)))
        thread.start()
        hvd.barrier()
        thread.join()
        assert len(done) == 1
    else:
        hvd.barrier()
        hvd.allreduce(torch.ones(1), name="gil")


def test_many_threads(hvd, rank, size):
    import threading
    results = {}

    def work(number):
        for i in range(30):
            results[number, i] = hvd.allreduce(torch.full((50,), float(i)), op=hvd.Sum, name=f"thread.{number}.{i}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 120
    assert all(torch.equal(tensor, torch.full((50,), float(i * size))) for (_, i), tensor in results.items())


def test_counters(hvd):
    from horovod import _core
    for _ in range(3):
        hvd.allreduce(torch.ones(4), name="counted")
    before = _core.counter("requests_sent")
    for _ in range(10):
        hvd.allreduce(torch.ones(4), name="counted")
    assert _core.counter("requests_sent") == before, "a prepared operation is agreed about without a request"
    assert _core.counter("no such counter") == -1
