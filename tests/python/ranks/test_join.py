"""Tests of join, for ranks with different numbers of batches."""
import copy

import torch


def test_optimizers_go_on_while_ranks_have_joined(hvd, rank, size):
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("p", parameter)])
    for step in range(2 * rank + 1):
        optimizer.zero_grad()
        parameter.sum().backward()
        optimizer.step()
        training = sum(2 * other + 1 > step for other in range(size))
        assert torch.equal(parameter.grad, torch.full((3,), training / size))
    last = hvd.join()
    assert hvd.allgather(torch.tensor([last])).tolist() == [last] * size
    hvd.broadcast_parameters([parameter], root_rank=size - 1)
    assert torch.equal(hvd.allreduce(parameter.detach(), op=hvd.Min), parameter.detach())


def test_a_rank_joins_after_a_batch_that_all_have_dropped(hvd, rank, size):
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("p", parameter)])
    for _ in range(3):
        for step in range(2 + rank):
            parameter.sum().backward()
            if step != 1:
                optimizer.step()
            parameter.grad = None
        last = hvd.join()
        hvd.broadcast_parameters([parameter], root_rank=last)
    whole = 1 + sum((size - other) / size for other in range(1, size))
    assert abs(parameter[0].item() + 3 * whole) < 1e-5


def test_a_copy_that_a_joined_rank_has_not_used_counts_there_too(hvd, rank, size):
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("p", parameter)])
    parameter, optimizer = copy.deepcopy((parameter, optimizer))
    for _ in range(rank):  # rank 0 has no batch
        parameter.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    last = hvd.join()
    hvd.broadcast_parameters([parameter], root_rank=last)
    hvd.broadcast_optimizer_state(optimizer, root_rank=last)
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("p", parameter)])
    (parameter * rank).sum().backward()
    optimizer.step()
    assert torch.allclose(parameter, torch.full((3,), (1 - size) / 2))


def test_operations_without_a_name_match_again_after_a_join(hvd, rank, size):
    for epoch in range(3):
        for batch in range(rank * 3 + epoch):
            hvd.allreduce(torch.ones(2), op=hvd.Sum)
        hvd.join()
        for _ in range(3):
            assert torch.equal(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), float(size)))


def test_a_rank_joins_while_what_it_started_is_under_way(hvd, rank, size):
    handles = [hvd.allreduce_async(torch.full((3,), float(i)), op=hvd.Sum, name=f"under way.{i}") for i in range(20)]
    assert 0 <= hvd.join() < size
    for i, handle in enumerate(handles):
        assert torch.equal(hvd.synchronize(handle), torch.full((3,), float(i * size)))
