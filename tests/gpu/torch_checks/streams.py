"""Streams, lifetimes and threads: when results are there, and who may use their memory."""
import statistics
import threading
import time

import torch
from torch_checks.this_rank import DEVICE, RANK, SIZE, check, delay, expect_equal, is_double, numbers, sum_of

import horovod.torch as hvd


@check
def late_inputs_are_waited_for():
    for step in range(5):
        zero = (delay().sum() * 0).expand(4000)
        tensor = numbers(4000, torch.float32, RANK, step).to(DEVICE) + zero
        expect_equal(hvd.allreduce(tensor, op=hvd.Sum, name="late"), sum_of(4000, torch.float32, step), f"step {step}")


@check
def side_streams_are_respected():
    side = torch.cuda.Stream()
    for step in range(5):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            zero = (delay().sum() * 0).expand(4000)
            tensor = numbers(4000, torch.float32, RANK, step).to(DEVICE) + zero
            handle = hvd.allreduce_async(tensor, op=hvd.Sum, name="aside")
            rows = hvd.allgather_async(tensor[:RANK + 1].contiguous(), name="rows aside")
        found = hvd.synchronize(handle)  # on the default stream, which has to wait for the result
        gathered = hvd.synchronize(rows)
        expect_equal(found * 1, sum_of(4000, torch.float32, step), f"step {step}")
        expected = torch.cat([numbers(4000, torch.float32, rank, step)[:rank + 1] for rank in range(SIZE)])
        expect_equal(gathered * 1, expected, f"gather of step {step}")


@check
def tensors_may_be_freed_in_flight():
    for step in range(20):
        handles = []
        for i in range(8):
            tensor = numbers(20000, torch.float32, RANK, i + step).to(DEVICE)
            handles.append(hvd.allreduce_async(tensor, op=hvd.Sum, name=f"freed {i}"))
            del tensor
            torch.full((20000,), -1.0, device=DEVICE)  # torch uses free memory again
        for i, handle in enumerate(handles):
            expect_equal(hvd.synchronize(handle), sum_of(20000, torch.float32, i + step), f"step {step}, tensor {i}")


@check
def results_are_used_and_dropped_in_the_order_of_the_stream():
    total = torch.zeros(3, device=DEVICE)
    for step in range(30):
        gathered = hvd.allgather(torch.full((RANK + 1, 3), float(step), device=DEVICE), name="dropped")
        total += gathered.sum(0)
        del gathered
    rows = SIZE * (SIZE + 1) / 2
    expect_equal(total, torch.full((3,), rows * sum(range(30))), "sum of all gathers")


@check
def results_are_memory_of_torch_which_other_streams_may_use():
    side = torch.cuda.Stream()
    splits = torch.full((SIZE,), 500, dtype=torch.int32)
    for step in range(4):
        mine = numbers(500 * SIZE, torch.float32, RANK, step).to(DEVICE)
        before = torch.cuda.memory_allocated()
        gathered = hvd.allgather(mine[:500], name="rows for others")
        exchanged, _ = hvd.alltoall(mine, splits=splits, name="splits for others")
        assert torch.cuda.memory_allocated() >= before + 4 * 2 * 500 * SIZE, "torch does not count the results"
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            sums = [each * 1 for each in (gathered, exchanged)]
        gathered.record_stream(side)
        exchanged.record_stream(side)
        del gathered, exchanged
        hvd.allgather(torch.full((500,), -9.0, device=DEVICE), name="rows for others")
        hvd.alltoall(torch.full((500 * SIZE,), -9.0, device=DEVICE), splits=splits, name="splits for others")
        torch.cuda.current_stream().wait_stream(side)
        every = [numbers(500 * SIZE, torch.float32, rank, step) for rank in range(SIZE)]
        expect_equal(sums[0], torch.cat([each[:500] for each in every]), f"rows of step {step}")
        expect_equal(sums[1], torch.cat([each[500 * RANK:500 * RANK + 500] for each in every]), f"parts of step {step}")


@check
def several_threads_with_streams_of_their_own():
    problems = []

    def work(number):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for step in range(5):
                    tensor = numbers(1000, torch.float32, RANK, step + number).to(DEVICE)
                    found = hvd.allreduce(tensor, op=hvd.Sum, name=f"thread {number}")
                    expect_equal(found, sum_of(1000, torch.float32, step + number), f"thread {number}, step {step}")
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


@check
def the_host_does_not_wait_in_a_start():
    tensors = [torch.ones(250_000, device=DEVICE) for _ in range(20)]
    for i, tensor in enumerate(tensors):
        hvd.allreduce_(tensor, name=f"timed {i}")
    torch.cuda.synchronize()
    busy = time.perf_counter()
    late = delay(400)
    times, handles = [], []
    for i, tensor in enumerate(tensors):
        begin = time.perf_counter()
        handles.append(hvd.allreduce_async_(tensor, name=f"timed {i}"))
        times.append(time.perf_counter() - begin)
    is_still_busy = not torch.cuda.current_stream().query()
    hvd.synchronize(handles[0])
    waited = time.perf_counter() - busy
    for handle in handles[1:]:
        hvd.synchronize(handle)
    del late
    print(f"note rank {RANK}: a start of 1 MB takes {1e6 * statistics.median(times):.0f} us of the host (at most "
          f"{1e6 * max(times):.0f}); the GPU was {'busy' if is_still_busy else 'idle'} then; the first result came "
          f"{1e3 * waited:.0f} ms after its input was queued", flush=True)
    if not is_double and is_still_busy and max(times) > 0.05:
        raise AssertionError(f"a start took {1e3 * max(times):.0f} ms")


@check
def no_memory_is_lost():
    def round_of_work():
        for i in range(30):
            hvd.allgather(torch.ones(10000, device=DEVICE), name="kept")
            hvd.allreduce(torch.ones(10000, device=DEVICE), name="new")
        torch.cuda.synchronize()

    round_of_work()
    torch.cuda.empty_cache()
    before, allocated = torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated()
    round_of_work()
    torch.cuda.empty_cache()
    if torch.cuda.memory_allocated() > allocated:
        raise AssertionError(f"torch holds {torch.cuda.memory_allocated() - allocated} bytes more")
    lost = hvd.allreduce(torch.tensor(float(before - torch.cuda.mem_get_info()[0])), op=hvd.Max).item()
    if lost > 64 << 20:  # ranks may share the GPU
        raise AssertionError(f"{lost / 2**20:.0f} MB of the GPU are not free any more")
