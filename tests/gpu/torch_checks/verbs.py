"""Every verb on tensors in the memory of a GPU."""
import torch
from torch_checks.this_rank import (
    DEVICE, FLOATS, INTEGERS, RANK, SIZE, Skipped, check, expect_close, expect_equal, is_double, numbers, sum_of)

import horovod.torch as hvd


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
