"""Ranks of torch on GPUs: every verb on tensors in the memory of a GPU, and training that equals one process.

    horovodrun -np 2 python torch_ranks.py [name of a check …]

Needs an installed horovod and a torch with a GPU. Ranks may share a GPU (the knob HOROVOD_GPU_SHARING). Prints a line
`ok NAME`, `failed NAME: why` or `skipped NAME: why` for each check, and ends with 1 if one has failed. It runs on the
double of CUDA, too (tests/doubles/torch_cuda).
"""
import faulthandler
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import threading
import time
import traceback

import torch
from torch.nn import functional

import horovod
import horovod.torch as hvd

CHECKS = []
SECONDS_FOR_A_CHECK = 40
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


class Skipped(Exception):
    pass


def check(function):
    CHECKS.append(function)
    return function


def expect_equal(found, expected, what=""):
    if not isinstance(expected, torch.Tensor):
        expected = torch.tensor(expected)
    on_host = found.detach().cpu()
    if on_host.shape != expected.shape or on_host.dtype != expected.dtype:
        raise AssertionError(f"{what}: {on_host.dtype} of {list(on_host.shape)} in place of {expected.dtype} of "
                             f"{list(expected.shape)}")
    if not torch.equal(on_host, expected):
        wrong = (on_host != expected).flatten().nonzero().flatten()
        first = int(wrong[0])
        raise AssertionError(f"{what}: {len(wrong)} of {on_host.numel()} elements are wrong; the first is number "
                             f"{first}: {on_host.flatten()[first]} in place of {expected.flatten()[first]}")


def expect_close(found, expected, relative, what):
    found, expected = found.detach().cpu().double(), expected.detach().cpu().double()
    difference = float((found - expected).abs().max())
    size = float(expected.abs().max())
    if not difference <= relative * max(size, 1e-30):
        raise AssertionError(f"{what} differs by {difference / max(size, 1e-30):.2e} of {size:.3g}, which may be "
                             f"{relative}")


def numbers(count, dtype, rank, step=0):
    """Small whole numbers, so that sums over a few ranks are exact in every type."""
    values = (torch.arange(count) * (rank + 1) + 3 * rank + step) % 11
    return values.to(dtype)


def sum_of(count, dtype, step=0, size=None):
    return sum(numbers(count, torch.int64, rank, step) for rank in range(size or hvd.size())).to(dtype)


def of_all_ranks(text):
    """The texts of all ranks. (Objects need cloudpickle, which this script does without.)"""
    mine = torch.tensor([list(text.encode()[:500].ljust(500))], dtype=torch.uint8)
    return [bytes(row.tolist()).decode(errors="replace").rstrip() for row in hvd.allgather(mine, name="texts")]


def delay(work=8):
    """Queues work on the current stream that takes some milliseconds of a GPU."""
    side = 64 if is_double else 3072
    matrix = torch.full((side, side), 1.0 / side, device=DEVICE)
    for _ in range(1 if is_double else work):
        matrix = matrix @ matrix
    return matrix


# ---- verbs ----------------------------------------------------------------------------------------------------------


@check
def allreduce_of_every_type():
    for dtype in INTEGERS + FLOATS:
        for count in (0, 1, 1000, 65537):
            found = hvd.allreduce(numbers(count, dtype, RANK).to(DEVICE), op=hvd.Sum, name=f"sum {dtype} {count}")
            assert found.is_cuda
            expect_equal(found, sum_of(count, dtype), f"sum of {count} {dtype}")


@check
def allreduce_of_every_kind():
    mine = [numbers(5000, torch.float32, rank) + 1 for rank in range(SIZE)]
    on_gpu = mine[RANK].to(DEVICE)
    together = torch.stack(mine)
    expect_equal(hvd.allreduce(on_gpu, op=hvd.Min), together.amin(0), "min")
    expect_equal(hvd.allreduce(on_gpu, op=hvd.Max), together.amax(0), "max")
    expect_equal(hvd.allreduce(on_gpu, op=hvd.Product), together.prod(0), "product")
    expect_close(hvd.allreduce(on_gpu), together.mean(0), 1e-6, "average")
    scaled = hvd.allreduce(on_gpu, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    expect_equal(scaled, together.sum(0) * 2, "scaled sum")
    halves = hvd.allreduce(on_gpu.half(), op=hvd.Average, prescale_factor=2.0)
    expect_close(halves, together.mean(0) * 2, 1e-3, "scaled average of halves")


@check
def allreduce_of_a_large_tensor_and_of_odd_addresses():
    count = (1 << 12 if is_double else 1 << 22) + 3
    block = numbers(count, torch.float32, RANK).to(DEVICE)
    for begin in (0, 1, 3):
        part = block[begin:].contiguous() if begin == 3 else block[begin:]
        expect_equal(hvd.allreduce(part, op=hvd.Sum), sum_of(count, torch.float32)[begin:], f"from element {begin}")


@check
def allreduce_in_place_again_and_again():
    for step in range(6):
        tensor = numbers(3000, torch.float32, RANK, step).to(DEVICE)
        address = tensor.data_ptr()
        same = hvd.allreduce_(tensor, op=hvd.Sum, name="in place")
        assert same is tensor and tensor.data_ptr() == address
        expect_equal(tensor, sum_of(3000, torch.float32, step), f"step {step}")


@check
def gathers_rows_that_differ():
    for dtype in [torch.bool] + INTEGERS + FLOATS:
        mine = numbers(3 * (RANK + 1), dtype, RANK).view(RANK + 1, 3).to(DEVICE)
        expected = torch.cat([numbers(3 * (rank + 1), dtype, rank).view(rank + 1, 3) for rank in range(SIZE)])
        for step in range(2):
            found = hvd.allgather(mine, name=f"gather {dtype}")
            assert found.is_cuda
            expect_equal(found, expected, f"allgather of {dtype}")


@check
def broadcasts():
    for dtype in [torch.bool] + INTEGERS + FLOATS:
        root = SIZE - 1
        mine = numbers(777, dtype, RANK).to(DEVICE)
        expect_equal(hvd.broadcast(mine, root), numbers(777, dtype, root), f"broadcast of {dtype}")
        expect_equal(hvd.broadcast_(mine, root, name=f"cast {dtype}"), numbers(777, dtype, root), f"in place {dtype}")


@check
def alltoall_with_and_without_splits():
    for dtype in INTEGERS + FLOATS:
        mine = numbers(4 * SIZE, dtype, RANK).to(DEVICE)
        expected = torch.cat([numbers(4 * SIZE, dtype, rank)[4 * RANK:4 * RANK + 4] for rank in range(SIZE)])
        expect_equal(hvd.alltoall(mine), expected, f"alltoall of {dtype}")
    splits = torch.tensor([rank + 1 for rank in range(SIZE)], dtype=torch.int32)
    rows = int(splits.sum())
    begin = RANK * (RANK + 1) // 2
    for place in ("cpu", DEVICE):
        mine = numbers(rows, torch.float32, RANK).to(DEVICE)
        found, received = hvd.alltoall(mine, splits=splits.to(place))
        expected = torch.cat([numbers(rows, torch.float32, rank)[begin:begin + RANK + 1] for rank in range(SIZE)])
        expect_equal(found, expected, "alltoall with splits")
        assert received.device.type == torch.device(place).type
        expect_equal(received, torch.full((SIZE,), RANK + 1, dtype=torch.int32), "received splits")


@check
def reducescatter_of_uneven_rows():
    for dtype in (torch.int32, *FLOATS):
        mine = numbers(2 * (2 * SIZE + 1), dtype, RANK).view(-1, 2).to(DEVICE)
        whole = sum_of(2 * (2 * SIZE + 1), dtype).view(-1, 2)
        begin = 0 if RANK == 0 else 2 * RANK + 1
        expect_equal(hvd.reducescatter(mine, op=hvd.Sum), whole[begin:begin + 2 + (RANK == 0)], f"of {dtype}")


@check
def groups():
    tensors = [numbers(10 + i, torch.float32, RANK, i).to(DEVICE) for i in range(40)]
    expected = [sum_of(10 + i, torch.float32, i) for i in range(40)]
    for step in range(3):
        for found, right in zip(hvd.grouped_allreduce(tensors, op=hvd.Sum, name="group"), expected):
            expect_equal(found, right, "grouped allreduce")
    in_place = [tensor.clone() for tensor in tensors]
    hvd.grouped_allreduce_(in_place, op=hvd.Sum, name="group in place")
    for found, right in zip(in_place, expected):
        expect_equal(found, right, "grouped allreduce in place")
    gathered = hvd.grouped_allgather(tensors[:3])
    for i, found in enumerate(gathered):
        expect_equal(found, torch.cat([numbers(10 + i, torch.float32, rank, i) for rank in range(SIZE)]), "gather")
    even = [numbers(2 * SIZE, torch.float32, RANK, i).to(DEVICE) for i in range(3)]
    for i, found in enumerate(hvd.grouped_reducescatter(even, op=hvd.Sum)):
        expect_equal(found, sum_of(2 * SIZE, torch.float32, i)[2 * RANK:2 * RANK + 2], "grouped reducescatter")


@check
def adasum_of_equal_tensors_is_their_value():
    if SIZE & (SIZE - 1):
        raise Skipped("the number of ranks is no power of two")
    tensor = torch.linspace(1, 2, 1000, device=DEVICE)
    expect_close(hvd.allreduce(tensor, op=hvd.Adasum), tensor, 1e-5, "adasum")


@check
def tensors_on_the_host_and_on_the_gpu_in_one_step():
    for step in range(3):
        handles = []
        for i in range(10):
            place = DEVICE if i % 2 else "cpu"
            handles.append(hvd.allreduce_async(numbers(500, torch.float32, RANK, i).to(place), op=hvd.Sum,
                                               name=f"mixed {i}"))
        for i, handle in enumerate(handles):
            found = hvd.synchronize(handle)
            assert found.is_cuda == bool(i % 2)
            expect_equal(found, sum_of(500, torch.float32, i), f"number {i}")


@check
def a_process_set():
    if SIZE == 1:
        raise Skipped("needs two ranks")
    members = [0, SIZE - 1] if SIZE > 2 else [1]
    some = hvd.add_process_set(members)
    if some.included():
        found = hvd.allreduce(numbers(100, torch.float32, RANK).to(DEVICE), op=hvd.Sum, process_set=some)
        expect_equal(found, sum(numbers(100, torch.float32, rank) for rank in members), "of the set")
    hvd.remove_process_set(some)


@check
def gradients_through_the_verbs():
    tensor = numbers(12 * SIZE, torch.float32, RANK).to(DEVICE).requires_grad_()
    hvd.allreduce(tensor, op=hvd.Sum).sum().backward()
    expect_equal(tensor.grad, torch.full((12 * SIZE,), float(SIZE)), "allreduce")
    tensor.grad = None
    (hvd.allgather(tensor) * (RANK + 1)).sum().backward()
    expect_close(tensor.grad, torch.full((12 * SIZE,), sum(range(1, SIZE + 1)) / SIZE), 1e-6, "allgather")


@check
def objects():
    try:
        import cloudpickle  # noqa: F401
    except ImportError:
        raise Skipped("cloudpickle is not installed") from None
    sent = hvd.broadcast_object({"of": RANK, "tensor": torch.full((3,), float(RANK), device=DEVICE)}, root_rank=0)
    assert sent["of"] == 0
    expect_equal(sent["tensor"], torch.zeros(3), "the tensor of an object")
    assert sent["tensor"].device == torch.device(DEVICE), f"the tensor of an object is on {sent['tensor'].device}"
    gathered = hvd.allgather_object(torch.full((2,), float(RANK), device=DEVICE))
    for rank, found in enumerate(gathered):
        assert found.device == torch.device(DEVICE), f"the object of rank {rank} is on {found.device}"
        expect_equal(found, [float(rank)] * 2, f"the object of rank {rank}")
    assert hvd.allgather_object(RANK) == list(range(SIZE))


@check
def the_state_of_an_optimizer_comes_to_the_gpu_of_its_parameters():
    embedding = torch.nn.Embedding(6, 2, sparse=True).to(DEVICE)
    rate = torch.tensor(0.1 * (RANK + 1), device=DEVICE)
    for options in ({"lr": 0.1, "momentum": 0.9}, {"lr": rate}):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), **options, foreach=False),
                                             named_parameters=embedding.named_parameters())
        hvd.broadcast_parameters(embedding.state_dict(), root_rank=0)
        embedding(torch.tensor([1, RANK], device=DEVICE)).sum().backward()
        optimizer.step()
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        kept = [optimizer.param_groups[0]["lr"], *optimizer.state.get(embedding.weight, {}).values()]
        for found in kept:
            assert not isinstance(found, torch.Tensor) or found.device == embedding.weight.device, found.device
        expect_close(torch.as_tensor(kept[0]), torch.tensor(0.1), 1e-6, "the learning rate")


@check
def joined_ranks_take_part_with_zeros():
    for step in range(RANK + 1):  # ranks have different numbers of batches
        found = hvd.allreduce(torch.ones(10, device=DEVICE), op=hvd.Sum, name="before the join")
        expect_equal(found, torch.full((10,), float(SIZE - step)), f"batch {step}")
    hvd.join()


# ---- streams and lifetimes ------------------------------------------------------------------------------------------


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


# ---- training -------------------------------------------------------------------------------------------------------


def model_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.Tanh(), torch.nn.LayerNorm(32),
                               torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to(DEVICE)


def batch_of(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(16, 20, generator=generator).to(DEVICE), \
        torch.randint(0, 4, (16,), generator=generator).to(DEVICE)


def losses_of_one_process(make_optimizer, steps):
    """The batches of all ranks in one process: gradients are averaged as the ranks average theirs."""
    model = model_of(7)
    optimizer = make_optimizer(model.parameters())
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        each = [functional.cross_entropy(model(x), y) for x, y in (batch_of(step, rank) for rank in range(SIZE))]
        (sum(each) / SIZE).backward()
        optimizer.step()
        losses.append(sum(each).item() / SIZE)
    return losses, model


def train(make_optimizer, steps, **options):
    model = model_of(7 if RANK == 0 else 100 + RANK)
    optimizer = hvd.DistributedOptimizer(make_optimizer(model.parameters()),
                                         named_parameters=model.named_parameters(), **options)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    losses = []
    for step in range(steps):
        x, y = batch_of(step, RANK)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(hvd.allreduce(loss.detach(), name="loss").item())
    return losses, model, optimizer


def expect_same_training(make_optimizer, **options):
    losses, model, _ = train(make_optimizer, 12, **options)
    expected, reference = losses_of_one_process(make_optimizer, 12)
    expect_close(torch.tensor(losses), torch.tensor(expected), 1e-6, "the loss")
    for (name, found), right in zip(model.named_parameters(), reference.parameters()):
        expect_close(found, right, 1e-5, f"the parameter {name}")


@check
def training_by_sgd_equals_one_process():
    expect_same_training(lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9))


@check
def training_by_adamw_equals_one_process():
    expect_same_training(lambda parameters: torch.optim.AdamW(parameters, lr=0.003))


@check
def training_by_groups_equals_one_process():
    expect_same_training(lambda parameters: torch.optim.SGD(parameters, lr=0.1), groups=2)


@check
def training_with_accumulated_gradients():
    model = model_of(7)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), backward_passes_per_step=2,
                                         named_parameters=model.named_parameters())
    reference = model_of(7)
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    for step in range(4):
        for part in range(2):
            x, y = batch_of(2 * step + part, RANK)
            functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        plain.zero_grad()
        for rank in range(SIZE):
            for part in range(2):
                x, y = batch_of(2 * step + part, rank)
                (functional.cross_entropy(reference(x), y) / SIZE).backward()
        plain.step()
    for (name, found), right in zip(model.named_parameters(), reference.named_parameters()):
        expect_close(found, right[1], 1e-5, f"the parameter {name}")


@check
def training_with_compressed_gradients_and_clipping():
    model = model_of(7)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                         named_parameters=model.named_parameters(), compression=hvd.Compression.fp16)
    first = last = None
    for step in range(20):
        x, y = batch_of(0, RANK)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()
        last = loss.item()
        first = last if first is None else first
    assert last < first, f"the loss went from {first} to {last}"
    expect_same_on_all_ranks(model)


def expect_same_on_all_ranks(model):
    for name, parameter in model.named_parameters():
        of_root = hvd.broadcast(parameter.detach(), 0)
        expect_equal(parameter, of_root.cpu(), f"{name} of rank {RANK} and that of rank 0")


@check
def mixed_precision_with_a_grad_scaler():
    model = model_of(7)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05),
                                         named_parameters=model.named_parameters())
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
    for step in range(8):
        x, y = batch_of(step, RANK)
        if step == 3 and RANK == SIZE - 1:
            x = x * float("inf")  # all ranks have to leave this step out
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter).all(), f"{name} is not finite"
    assert scaler.get_scale() == 2.0**9, f"the scale is {scaler.get_scale()}"
    expect_same_on_all_ranks(model)


@check
def a_sparse_gradient():
    torch.manual_seed(3)
    embedding = torch.nn.Embedding(50, 4, sparse=True).to(DEVICE)
    reference = torch.nn.Embedding(50, 4).to(DEVICE)
    reference.load_state_dict(embedding.state_dict())
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), lr=1.0),
                                         named_parameters=embedding.named_parameters())
    plain = torch.optim.SGD(reference.parameters(), lr=1.0)
    for step in range(3):
        optimizer.zero_grad()
        plain.zero_grad()
        embedding(torch.tensor([RANK, step + 5], device=DEVICE)).sum().backward()
        for rank in range(SIZE):
            (reference(torch.tensor([rank, step + 5], device=DEVICE)).sum() / SIZE).backward()
        optimizer.step()
        plain.step()
    expect_close(embedding.weight, reference.weight, 1e-6, "the embedding")


@check
def synchronised_batch_norm_equals_one_process():
    torch.manual_seed(5)
    layer, reference = hvd.SyncBatchNorm(6).to(DEVICE), torch.nn.BatchNorm1d(6).to(DEVICE)
    parts = [torch.randn(4 + rank, 6) for rank in range(SIZE)]
    mine = parts[RANK].to(DEVICE).requires_grad_()
    whole = torch.cat(parts).to(DEVICE).requires_grad_()
    begin = sum(len(part) for part in parts[:RANK])
    weights = torch.randn(len(whole), 6).to(DEVICE)
    for step in range(2):
        found, right = layer(mine), reference(whole)
        expect_close(found, right[begin:begin + len(mine)], 1e-5, "the output")
    (found * weights[begin:begin + len(mine)]).sum().backward()
    (right * weights).sum().backward()
    expect_close(mine.grad, whole.grad[begin:begin + len(mine)], 1e-4, "the gradient")
    expect_close(layer.running_var, reference.running_var, 1e-5, "the running variance")


@check
def a_checkpoint_brings_back_the_state():
    make = lambda parameters: torch.optim.AdamW(parameters, lr=0.003)  # noqa: E731
    _, model, optimizer = train(make, 3)
    folder = pathlib.Path(of_all_ranks(tempfile.mkdtemp() if RANK == 0 else "")[0])
    try:
        try:
            hvd.checkpoint.save(folder / "state.h5", model, optimizer, step=3)
        except NotImplementedError as lack:
            raise Skipped(str(lack)) from None
        _, other, of_other = train(make, 1)
        hvd.checkpoint.restore(folder / "state.h5", other, of_other)
    finally:
        hvd.barrier()
        if RANK == 0:
            shutil.rmtree(folder)
    for (name, found), right in zip(other.named_parameters(), model.parameters()):
        assert found.is_cuda
        expect_equal(found, right.detach().cpu(), name)
    for found, right in zip(other.parameters(), model.parameters()):
        moment = of_other.state[found]["exp_avg"]
        assert moment.is_cuda
        expect_equal(moment, optimizer.state[right]["exp_avg"].cpu(), "a moment of the optimizer")


@check
def a_checkpoint_of_another_gpu_than_the_current_one_is_whole():
    count = torch.cuda.device_count()
    if count == 1:
        raise Skipped("needs two GPUs")
    model = torch.nn.Linear(300, 200).to(f"cuda:{(torch.cuda.current_device() + 1) % count}")
    folder = pathlib.Path(of_all_ranks(tempfile.mkdtemp() if RANK == 0 else "")[0])
    try:
        with hvd.checkpoint.Checkpointer(folder, model) as checkpointer:
            for step in range(3):
                with torch.no_grad():
                    model.weight.fill_(step)
                checkpointer.save(step)
                with torch.no_grad():
                    model.weight.fill_(-1)
                checkpointer.restore()
                expect_equal(model.weight, torch.full((200, 300), float(step)), f"the weight of step {step}")
            for ordinal, generator in enumerate(torch.cuda.default_generators):
                generator.manual_seed(100 * RANK + ordinal)
            before = torch.cuda.get_rng_state_all()
            checkpointer.save(3)
            torch.cuda.manual_seed_all(7)
            checkpointer.restore()
            assert all(map(torch.equal, torch.cuda.get_rng_state_all(), before)), "a GPU's random numbers are others"
    except NotImplementedError as lack:
        raise Skipped(str(lack)) from None
    finally:
        hvd.barrier()
        if RANK == 0:
            shutil.rmtree(folder)


@check
def checkpoints_beside_training_have_the_step_that_was_saved():
    make = lambda parameters: torch.optim.AdamW(parameters, lr=0.003)  # noqa: E731
    _, model, optimizer = train(make, 1)
    folder = pathlib.Path(of_all_ranks(tempfile.mkdtemp() if RANK == 0 else "")[0])
    saved = {}
    try:
        with hvd.checkpoint.Checkpointer(folder, model, optimizer) as checkpointer:
            for step in range(24):
                x, y = batch_of(step, RANK)
                optimizer.zero_grad()
                functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                if step % 4 == 3:
                    saved[step] = [parameter.detach().cpu() for parameter in model.parameters()]
                    checkpointer.save(step)
            found = checkpointer.restore()
        assert found["step"] == 23, found
        for right, parameter in zip(saved[23], model.parameters()):
            expect_equal(parameter, right, "a parameter of step 23")
    except NotImplementedError as lack:
        raise Skipped(str(lack)) from None
    finally:
        hvd.barrier()
        if RANK == 0:
            shutil.rmtree(folder)


def expect_same_training_by(change, relative=1e-5):
    """Trains a model that `change` has made of another, and compares it with one process that trains that other."""
    make = lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)  # noqa: E731
    expected, reference = losses_of_one_process(make, 12)
    model = model_of(7 if RANK == 0 else 100 + RANK)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    changed = change(model)
    optimizer = hvd.DistributedOptimizer(make(model.parameters()), named_parameters=model.named_parameters())
    losses = []
    for step in range(12):
        x, y = batch_of(step, RANK)
        optimizer.zero_grad()
        loss = functional.cross_entropy(changed(x), y)
        loss.backward()
        optimizer.step()
        losses.append(hvd.allreduce(loss.detach(), name="loss").item())
    expect_close(torch.tensor(losses), torch.tensor(expected), relative, "the loss")
    for (name, found), right in zip(model.named_parameters(), reference.parameters()):
        expect_close(found, right, relative, f"the parameter {name}")


@check
def a_compiled_model_trains_like_one_process():
    if is_double:
        raise Skipped("the double compiles no kernels")
    expect_same_training_by(torch.compile, 1e-4)  # kernels that were fused round otherwise


@check
def a_model_in_cuda_graphs_trains_like_one_process():
    if is_double:
        raise Skipped("the double has no graphs for torch")
    expect_same_training_by(lambda model: torch.cuda.make_graphed_callables(model, (batch_of(0, RANK)[0],)))


@check
def many_steps_take_no_more_memory_than_few():
    if is_double:
        raise Skipped("the double is too slow for them")
    _, model, optimizer = train(lambda parameters: torch.optim.SGD(parameters, lr=0.01), 1)
    used = []
    for step in range(200):  # ranks that share a GPU take some 100 ms for each
        x, y = batch_of(step % 8, RANK)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if step in (49, 199):
            torch.cuda.synchronize()
            used.append((torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0]))
    assert used[1][0] <= used[0][0], f"torch reserves {used[1][0] - used[0][0]} bytes more"
    assert used[1][1] >= used[0][1] - (64 << 20), f"{used[0][1] - used[1][1]} bytes of the GPU are not free any more"
    expect_same_on_all_ranks(model)


# ---- what is refused ------------------------------------------------------------------------------------------------


@check
def a_mismatch_is_named_and_the_job_goes_on():
    if SIZE == 1:
        raise Skipped("needs two ranks")
    try:
        hvd.allreduce(torch.ones(10 + RANK, device=DEVICE), name="of different shapes")
        raise AssertionError("tensors of different shapes were reduced")
    except hvd.HorovodInternalError as error:
        assert "shape" in str(error).lower(), str(error)
    expect_equal(hvd.allreduce(torch.ones(3, device=DEVICE), op=hvd.Sum), torch.full((3,), float(SIZE)), "afterwards")


@check
def an_operation_in_a_capture_is_refused():
    if is_double:
        raise Skipped("the double has no graphs for torch")
    tensor = torch.ones(10, device=DEVICE)
    hvd.allreduce_(tensor, name="captured")
    torch.cuda.synchronize()
    refusal = None
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            tensor.mul_(1)
            try:
                hvd.allreduce_async_(tensor, name="captured")
            except Exception as error:
                refusal = error
    except Exception as error:
        refusal = refusal or error
    assert refusal is not None and "captur" in str(refusal), f"{refusal!r}"
    torch.cuda.synchronize()
    expect_equal(hvd.allreduce(torch.ones(3, device=DEVICE), op=hvd.Sum), torch.full((3,), float(SIZE)), "afterwards")


# ---- the run --------------------------------------------------------------------------------------------------------


def outcome_of(function):
    try:
        function()
        torch.cuda.synchronize()
        return "ok", ""
    except Skipped as why:
        return "skipped", str(why)
    except Exception as error:
        if os.environ.get("TRACE"):
            traceback.print_exc()
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__]
        return "failed", f"{type(error).__name__} at line {frames[-1].lineno if frames else 0}: {error}"


def run(function):
    """Runs a check on all ranks, and prints what came out. True if no rank has failed."""
    faulthandler.dump_traceback_later(SECONDS_FOR_A_CHECK * (5 if is_double else 1), exit=True)
    outcome, why = outcome_of(function)
    problems = of_all_ranks(why if outcome == "failed" else "")
    faulthandler.cancel_dump_traceback_later()
    failed = [f"rank {rank}: {problem}" for rank, problem in enumerate(problems) if problem]
    if RANK == 0:
        if failed:
            print(f"failed {function.__name__}: {'; '.join(failed)}", flush=True)
        else:
            print(f"{outcome} {function.__name__}{': ' + why if why else ''}", flush=True)
    return not failed


def main():
    wanted = sys.argv[1:]
    unknown = set(wanted) - {function.__name__ for function in CHECKS}
    if unknown:
        sys.exit(f"no check is named {', '.join(sorted(unknown))}")
    if RANK == 0:
        print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, {SIZE} ranks, "
              f"horovod {horovod.__version__}, plugin for GPUs: {hvd.cuda_built()}, the GPU of rank 0: "
              f"{hvd.local_device()}", flush=True)
    results = [run(function) for function in CHECKS if not wanted or function.__name__ in wanted]
    hvd.shutdown()
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    hvd.init(process_sets="dynamic")
    RANK, SIZE = hvd.rank(), hvd.size()
    own = hvd.local_device()
    torch.cuda.set_device(own if own is not None else hvd.local_rank() % torch.cuda.device_count())
    torch.backends.cuda.matmul.allow_tf32 = False
    DEVICE = f"cuda:{torch.cuda.current_device()}"
    is_double = "Double" in torch.cuda.get_device_name()
    main()
