"""Gradients that are used between backward() and step() where ranks lack different gradients. The ranks wait for each
other once. From then on a rank whose program does so takes its gradients as complete."""
import pytest
import torch

import horovod.torch.gradients as gradients


class NoWaiting:
    """In the place of the module time: a wait fails."""

    def __getattr__(self, name):
        raise AssertionError("this rank waits for others again")


@pytest.fixture
def patience(monkeypatch):
    """Sets whether a wait for other ranks is given up at once, or fails."""
    monkeypatch.setattr(gradients, "PATIENCE_SECONDS", -1.0)
    return lambda has_patience: has_patience or monkeypatch.setattr(gradients, "time", NoWaiting())


def experts_of(hvd, size, make=lambda: torch.nn.Linear(2, 2, bias=False)):
    torch.manual_seed(1)
    experts = torch.nn.ModuleList([make() for _ in range(size)])
    plain = torch.optim.SGD(experts.parameters(), lr=1.0)
    return experts, hvd.DistributedOptimizer(plain, experts.named_parameters())


def norm(module):
    return sum(parameter.grad.norm().item() for parameter in module.parameters() if parameter.grad is not None)


def test_the_second_round_does_not_wait(hvd, rank, size, patience):
    experts, optimizer = experts_of(hvd, size)
    before = [expert.weight.detach().clone() for expert in experts]
    for step in range(3):
        patience(step == 0)
        optimizer.zero_grad()
        experts[rank](torch.ones(1, 2)).sum().mul(size).backward()
        if step == 0:
            with pytest.warns(UserWarning, match=rf"'{rank}.weight.*' was used before .* Call optimizer.synchronize"):
                norm(experts)
        else:
            norm(experts)
        optimizer.step()
    for expert, start in zip(experts, before):
        torch.testing.assert_close(expert.weight.detach(), start - 3)


def test_sparse_gradients_do_not_wait_for_ever(hvd, rank, size, patience):
    experts, optimizer = experts_of(hvd, size, lambda: torch.nn.Embedding(3, 2, sparse=True))
    for step in range(2):
        patience(step == 0)
        optimizer.zero_grad()
        experts[rank](torch.tensor([1])).sum().backward()
        if step == 0:
            with pytest.warns(UserWarning, match="was used before"):
                experts[rank].weight.grad.to_dense()
        else:
            experts[rank].weight.grad.to_dense()
        optimizer.step()


@pytest.mark.filterwarnings("ignore:The gradient of")
def test_a_program_that_computes_more_after_a_use_goes_on_waiting(hvd, rank, size, patience):
    """Gradients that are used between two backward passes do not mean that the rank has all of them."""
    experts, optimizer = experts_of(hvd, 2)
    optimizer._distributed.gradients._has_waited_in_vain = True
    experts[0](torch.ones(1, 2)).sum().backward()
    experts[0].weight.grad.norm()
    optimizer.synchronize()
    assert not optimizer._distributed.gradients.comes_in_parts
    gradients.PATIENCE_SECONDS = 60.0
    for step in range(2):
        optimizer.zero_grad()
        experts[0](torch.ones(1, 2)).sum().backward()
        if step == 0:
            hvd.barrier()
            while not all(map(hvd.poll, optimizer._distributed.gradients._all[0].handles())):
                pass
        experts[0].weight.grad.norm()
        experts[1](torch.ones(1, 2)).sum().backward()
        optimizer.step()
        assert optimizer._distributed.gradients.comes_in_parts


def test_a_use_within_the_backward_pass_does_not_end_the_round(hvd, rank, size):
    """A hook reads gradients while others follow, as for a log."""
    experts, optimizer = experts_of(hvd, 2)
    optimizer._distributed.gradients._has_waited_in_vain = True
    norms = []
    for parameter in experts.parameters():
        parameter.register_post_accumulate_grad_hook(lambda parameter: norms.append(parameter.grad.norm()))
    start = experts[1].weight.detach().clone()
    experts[0](experts[1](torch.ones(1, 2))).sum().backward()
    optimizer.step()
    assert len(norms) == 2 and not torch.equal(experts[1].weight.detach(), start)


@pytest.mark.parametrize("groups", [None, 1])
def test_zeros_that_only_some_ranks_have_do_not_matter_to_a_norm(hvd, rank, size, groups):
    """A frozen layer's gradients are zeros on ranks that have trained it, and None on one that had no batch then."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters(),
                                         groups=groups)
    model[0].requires_grad_(False)
    if rank > 0:
        for parameter in model[0].parameters():
            parameter.grad = torch.zeros_like(parameter)
    before = model[1].bias.detach().clone()
    for step in range(2):
        optimizer.zero_grad(set_to_none=False)
        model(torch.ones(1, 2)).sum().backward()
        torch.nn.utils.clip_grad_norm_(model[1].bias, 0.5)
        optimizer.step()
    assert torch.allclose(before - model[1].bias, torch.full((2,), 0.5 ** 0.5))
