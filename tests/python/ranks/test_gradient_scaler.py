"""One torch.amp.GradScaler on every rank: all have the same scale, or an error."""
import pytest
import torch


def a_step(hvd, optimizer, parameter, scaler):
    optimizer.zero_grad()
    scaler.scale(parameter.sum()).backward()
    scaler.step(optimizer)
    scaler.update()


def test_scales_that_differ_are_an_error_on_all_ranks(hvd, rank):
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("w", parameter)])
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0 if rank == 0 else 8.0)
    with pytest.raises(RuntimeError, match="scale of a GradScaler is [48].0 on this rank and [48].0 on another"):
        a_step(hvd, optimizer, parameter, scaler)
    scaler.update(2.0)
    a_step(hvd, optimizer, parameter, scaler)
    assert scaler.get_scale() == 2.0


def test_optimizers_of_a_set_and_of_all_ranks_that_step_in_any_order(hvd, rank, size):
    """A rank finds an infinity in what it alone has. All ranks decrease their scale."""
    hvd.shutdown()
    sets = [hvd.ProcessSet([each]) for each in range(size)]
    hvd.init(process_sets=sets)
    shared, also_shared, own = (torch.nn.Parameter(torch.zeros(2)) for _ in range(3))
    of_all = [hvd.DistributedOptimizer(torch.optim.SGD([each], lr=1.0), [(name, each)])
              for name, each in (("a", shared), ("b", also_shared))]
    of_set = hvd.DistributedOptimizer(torch.optim.SGD([own], lr=1.0), [("own", own)], process_set=sets[rank])
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(3):
        for optimizer in (*of_all, of_set):
            optimizer.zero_grad()
        scaler.scale(((shared + also_shared) * (rank + 1) + own).sum()).backward()
        if step == 1 and rank == size - 1:
            own.grad[0] = torch.inf
        for optimizer in (*of_all, of_set):
            scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == (8.0 if step == 0 else 4.0)
    assert torch.equal(shared.detach(), torch.full((2,), -1.5 * (size + 1)))
    assert torch.equal(own.detach(), torch.full((2,), -2.0 if rank == size - 1 else -3.0))
    hvd.shutdown()


def test_a_scaler_of_a_job_that_has_ended_serves_the_next_one(hvd, rank, size):
    parameter = torch.nn.Parameter(torch.zeros(2))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for _ in range(2):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("w", parameter)])
        a_step(hvd, optimizer, parameter, scaler)
        hvd.shutdown()
        hvd.init()
    assert torch.equal(parameter.detach(), torch.full((2,), -2.0))
