"""Between backward() and step() gradients are in flight. Code that uses them waits, and every misuse raises an
error."""
import copy
import gc
import pickle
import weakref

import pytest
import torch
import torch.nn.functional as F


def parameters_of(*values):
    return [torch.nn.Parameter(torch.full((3,), float(value))) for value in values]


def sgd(hvd, parameters, lr=1.0, momentum=0.0, weight_decay=0.0, **options):
    plain = torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=weight_decay)
    return hvd.DistributedOptimizer(plain, [(str(i), parameter) for i, parameter in enumerate(parameters)], **options)


def assert_equal_on_all_ranks(hvd, tensors):
    for tensor in tensors:
        assert torch.equal(hvd.broadcast(tensor.detach(), 0), tensor.detach())


# ---- using gradients in flight ----------------------------------------------------------------------------------


USES = {
    "function": lambda gradient: torch.sum(gradient),
    "method": lambda gradient: gradient.sum(),
    "operator": lambda gradient: (gradient + 0).sum(),
    "list": lambda gradient: torch._foreach_norm([gradient], 1)[0],
    "keyword": lambda gradient: torch.sum(input=gradient),
    "data": lambda gradient: gradient.data.sum(),
    "alias": lambda gradient: gradient.detach().sum(),
    "numpy": lambda gradient: torch.tensor(gradient.numpy().sum()),
    "index": lambda gradient: gradient[0] * 3,
    "iteration": lambda gradient: sum(gradient),
    "text": lambda gradient: torch.tensor(eval(repr(gradient), {"tensor": torch.tensor})).sum(),
    "copy": lambda gradient: copy.deepcopy(gradient).sum(),
    "pickle": lambda gradient: pickle.loads(pickle.dumps(gradient)).sum(),
    "clone": lambda gradient: gradient.clone().sum(),
    "item": lambda gradient: torch.tensor(gradient.tolist()).sum(),
    "collective": lambda gradient: __import__("horovod.torch").torch.allreduce(gradient).sum(),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
def test_who_uses_a_gradient_gets_what_all_ranks_have(hvd, rank, size, use):
    parameters = parameters_of(1, 1)
    optimizer = sgd(hvd, parameters)
    (parameters[0] * (rank + 1)).sum().backward()
    gradient = parameters[0].grad
    assert gradient.shape == (3,) and gradient.dtype == torch.float32 and not gradient.is_sparse
    assert USES[use](gradient).item() == 3 * (size + 1) / 2
    assert type(gradient) is torch.Tensor and parameters[0].grad is gradient
    optimizer.step()
    assert torch.equal(parameters[0].detach(), torch.full((3,), 1 - (size + 1) / 2))


def test_torch_distributed_waits_also_where_torch_does_not_ask(hvd, rank, size, tmp_path, monkeypatch):
    module = torch.distributed.distributed_c10d
    for name in dir(module):
        if name.startswith("has_torch_function"):  # torch had none there before 2.13
            monkeypatch.setattr(module, name, lambda *_: False)
    store = hvd.broadcast_object(str(tmp_path / "store"), 0)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    parameters = parameters_of(1, 1)
    optimizer = sgd(hvd, parameters)
    sum(parameter.sum() * (rank + 1) for parameter in parameters).backward()
    torch.distributed.all_reduce(parameters[0].grad)
    torch.distributed.all_gather([torch.empty(3) for _ in range(size)], tensor=parameters[1].grad)
    assert [type(parameter.grad) for parameter in parameters] == [torch.Tensor] * 2
    optimizer.step()
    assert [parameter[0].item() for parameter in parameters] == [1 - (size + 1) / 2 * size, 1 - (size + 1) / 2]
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("how", ["fp16", "sparse", "sparse as dense"])
def test_what_is_not_reduced_in_place_is_waited_for_too(hvd, rank, size, how):
    if how == "fp16":
        parameters = parameters_of(1)
        optimizer = sgd(hvd, parameters, compression=hvd.Compression.fp16)
        (parameters[0] * (rank + 1)).sum().backward()
    else:
        embedding = torch.nn.Embedding(1, 3, sparse=True)
        parameters = [embedding.weight]
        optimizer = sgd(hvd, parameters, sparse_as_dense=how != "sparse")
        (embedding(torch.tensor([0])) * (rank + 1)).sum().backward()
    gradient = parameters[0].grad
    assert gradient.is_sparse == (how != "fp16")
    assert torch.equal(gradient.to_dense().flatten(), torch.full((3,), (size + 1) / 2))
    assert parameters[0].grad is gradient
    optimizer.step()


def test_a_hook_of_the_program_that_was_registered_later(hvd, rank, size):
    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters)

    def clamp(parameter):
        parameter.grad.clamp_(max=1.25)

    parameters[0].register_post_accumulate_grad_hook(clamp)
    sum((parameter * (rank + 1)).sum() for parameter in parameters).backward()
    optimizer.step()
    assert torch.equal(parameters[0].detach(), torch.full((3,), -min(1.25, (size + 1) / 2)))
    assert torch.equal(parameters[1].detach(), torch.full((3,), -(size + 1) / 2))


def test_a_hook_of_the_program_that_takes_gradients_away(hvd, rank, size):
    """Programs that make steps within the backward pass have such hooks. A hook that is registered before wrapping
    takes the gradient before it is reduced."""
    parameters = parameters_of(0, 0)
    seen = []

    def take(parameter):
        seen.append(parameter.grad.clone())
        parameter.grad = None

    parameters[0].register_post_accumulate_grad_hook(take)
    optimizer = sgd(hvd, parameters)
    for _ in range(2):
        optimizer.zero_grad()
        sum((parameter * (rank + 1)).sum() for parameter in parameters).backward()
        optimizer.step()
    assert torch.equal(parameters[0].detach(), torch.zeros(3)) and len(seen) == 2
    assert torch.equal(parameters[1].detach(), torch.full((3,), -(size + 1.0)))


def test_an_optimizer_for_each_parameter_that_steps_in_the_backward_pass(hvd, rank, size):
    parameters = parameters_of(0, 0, 0)
    optimizers = {parameter: hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [(str(i), parameter)])
                  for i, parameter in enumerate(parameters)}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(2):
        sum((parameter * (rank + 1)).sum() for parameter in parameters).backward()
    for parameter in parameters:
        assert torch.equal(parameter.detach(), torch.full((3,), -(size + 1.0))) and parameter.grad is None


# ---- misuse raises an error -------------------------------------------------------------------------------------


def test_changed_through_an_alias(hvd, rank):
    parameters = parameters_of(0)
    optimizer = sgd(hvd, parameters)
    parameters[0].grad = torch.zeros(3)
    alias = parameters[0].grad.detach()
    parameters[0].sum().backward()
    alias.mul_(2)
    with pytest.raises(RuntimeError, match="gradient of '0.*' was changed while it was being reduced"):
        optimizer.step()
    optimizer.zero_grad()
    parameters[0].sum().backward()
    optimizer.step()


@pytest.mark.parametrize("found, value", [("taken away", None), ("replaced", torch.ones(3))])
def test_replaced(hvd, rank, found, value):
    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters)
    (parameters[0] + parameters[1]).sum().backward()
    parameters[0].grad = value
    with pytest.raises(RuntimeError, match=f"gradient of '0.*' was {found} between backward.. and step"):
        optimizer.step()


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("options", [{"op": "Sum"}, {"groups": 1}])
def test_a_batch_dropped_in_place_and_computed_again(hvd, rank, size, options, set_to_none):
    options = {name: getattr(hvd, value) if name == "op" else value for name, value in options.items()}
    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters, **options)
    (parameters[0] * (rank + 1)).sum().backward()
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = None if set_to_none else parameter.grad.zero_()
    ((parameters[0] + parameters[1]) * (rank + 1)).sum().backward()
    optimizer.step()
    all_ranks = size * (size + 1) / 2
    for parameter in parameters:
        assert parameter.tolist() == [-all_ranks if "op" in options else -all_ranks / size] * 3


def test_gradients_that_are_views_of_one_buffer_share_a_counter(hvd, rank, size):
    """The backward pass adds to the second gradient while the first is in flight. This must not be taken for misuse."""
    parameters = parameters_of(0, 0)
    buffer = torch.zeros(6)
    optimizer = sgd(hvd, parameters)
    for i, parameter in enumerate(parameters):
        parameter.grad = buffer[3 * i:3 * i + 3]
    for _ in range(2):
        buffer.zero_()
        (parameters[1] * (rank + 1) + parameters[0] * rank).sum().backward()
        optimizer.step()
    assert torch.equal(parameters[1].detach(), torch.full((3,), -(size + 1.0)))
    assert torch.equal(parameters[0].detach(), torch.full((3,), -(size - 1.0)))


def test_used_in_the_backward_pass_before_its_group_is_there(hvd, rank):
    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters, groups=1)
    parameters[0].register_post_accumulate_grad_hook(lambda parameter: parameter.grad.sum())
    with pytest.raises(RuntimeError, match="gradient of '0.*' is used before the other gradients of its group"):
        parameters[0].sum().backward()
    optimizer.synchronize()
    assert parameters[0].grad.sum().item() == 3 and parameters[1].grad is None


def test_clipped_when_others_of_the_group_are_frozen_or_unused(hvd, rank, size):
    parameters = parameters_of(0, 0, 0)
    optimizer = sgd(hvd, parameters, groups=1)
    parameters[1].requires_grad_(False)
    for _ in range(2):
        (parameters[0] * (rank + 1)).sum().backward()
        torch.nn.utils.clip_grad_value_(parameters, 0.5)
        optimizer.step()
        optimizer.zero_grad()
    assert torch.equal(parameters[0].detach(), torch.full((3,), -1.0))
    assert parameters[1].grad is None and parameters[2].grad is None


def test_a_norm_over_what_this_rank_has_alone(hvd, rank, size, monkeypatch):
    """Every rank has the gradient of only one parameter, a different one on each. The ranks clip by different norms,
    which is an error."""
    import horovod.torch.gradients as gradients

    parameters = parameters_of(*range(size))
    optimizer = sgd(hvd, parameters)
    parameters[rank].sum().backward()
    monkeypatch.setattr(gradients, "PATIENCE_SECONDS", 0.0)  # waits that cannot end are given up at once
    torch.nn.utils.clip_grad_norm_(parameters, 0.01)
    with pytest.raises(RuntimeError, match="this rank did not have gradients of all parameters"):
        optimizer.step()
    optimizer.zero_grad()
    parameters[rank].sum().backward()
    optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(parameters, 0.01)
    with optimizer.skip_synchronize():
        optimizer.step()
    assert_equal_on_all_ranks(hvd, parameters)


def test_a_gradient_that_comes_after_others_were_used(hvd, rank, size, monkeypatch):
    import horovod.torch.gradients as gradients

    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters)
    monkeypatch.setattr(gradients, "PATIENCE_SECONDS", -1.0)
    parameters[rank % 2].sum().backward()
    parameters[rank % 2].grad.sum()
    with pytest.raises(RuntimeError, match="came after others of the same step had been used"):
        parameters[1 - rank % 2].sum().backward()
    optimizer.synchronize()


def test_sparse_here_and_dense_there(hvd, rank, size):
    embedding = torch.nn.Embedding(4, 3, sparse=rank == 0)
    optimizer = sgd(hvd, [embedding.weight])
    embedding(torch.tensor([1])).sum().backward()
    if rank == 0:  # the other ranks do not take part in rank 0's allgather
        with pytest.raises(hvd.HorovodInternalError):
            optimizer.step()
    else:
        with pytest.raises(ValueError, match="is dense here, and of 1 sparse dimensions on another rank"):
            optimizer.step()
    hvd.shutdown()


def test_a_gradient_with_a_history(hvd, rank):
    parameters = parameters_of(1)
    optimizer = sgd(hvd, parameters)
    with pytest.warns(UserWarning, match="create_graph"), pytest.raises(AssertionError, match="torch.autograd.grad"):
        (parameters[0] ** 2).sum().backward(create_graph=True)
    optimizer.zero_grad()


def test_under_sum_what_was_summed_is_not_counted_again(hvd, rank, size):
    parameters = parameters_of(0)
    optimizer = sgd(hvd, parameters, op=hvd.Sum)
    parameters[0].sum().backward()
    optimizer.step()
    optimizer.step()  # steps once more with the same gradient, as one process would
    assert torch.equal(parameters[0].detach(), torch.full((3,), -2.0 * size))
    with pytest.raises(RuntimeError, match=f"that would be counted {size} times"):
        parameters[0].sum().backward()
    for set_to_none in (True, False):
        optimizer.zero_grad(set_to_none=set_to_none)
        parameters[0].sum().backward()
        optimizer.step()
    assert torch.equal(parameters[0].detach(), torch.full((3,), -4.0 * size))


# ---- dropping and sharing gradients -----------------------------------------------------------------------------


@pytest.mark.parametrize("passes", [1, 2])
def test_gradients_that_nobody_wants(hvd, rank, size, passes):
    """The script drops gradients with module.zero_grad(), such as those of a discriminator in the generator's step. The
    count of passes begins anew."""
    parameters = parameters_of(0)
    optimizer = sgd(hvd, parameters, backward_passes_per_step=passes)
    module = torch.nn.ParameterList(parameters)
    for _ in range(3):
        (parameters[0] * 100).sum().backward()
        module.zero_grad()
        for _ in range(passes):
            (parameters[0] * (rank + 1)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert torch.equal(parameters[0].detach(), torch.full((3,), -3 * passes * (size + 1) / 2))


@pytest.mark.parametrize("empty", [lambda module: module.zero_grad(set_to_none=False),
                                   lambda module: torch._foreach_zero_([p.grad for p in module.parameters()]),
                                   lambda module: [p.grad.zero_() for p in module.parameters()]],
                         ids=["module", "foreach", "each"])
@pytest.mark.parametrize("options", [{}, dict(groups=1)], ids=["plain", "one group"])
def test_a_batch_that_is_dropped_in_place(hvd, rank, size, empty, options):
    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters, **options)
    for factor in (100, 1):
        sum((parameter * (rank + 1) * factor).sum() for parameter in parameters).backward()
        if factor == 100:
            empty(torch.nn.ParameterList(parameters))
    optimizer.step()
    for parameter in parameters:
        assert torch.equal(parameter.detach(), torch.full((3,), -(size + 1) / 2))


@pytest.mark.parametrize("options", [{}, dict(groups=1)], ids=["plain", "one group"])
def test_a_rank_without_gradients_after_a_batch_that_all_have_dropped(hvd, rank, size, options):
    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters, **options)
    module = torch.nn.ParameterList(parameters)
    for root in (0, size - 1, None):
        sum((parameter * 100).sum() for parameter in parameters).backward()
        module.zero_grad()
        if rank == root:
            sum((parameter * size).sum() for parameter in parameters).backward()
        optimizer.step()
    for parameter in parameters:
        assert torch.equal(parameter.detach(), torch.full((3,), -2.0))


@pytest.mark.parametrize("options", [{}, dict(groups=1)], ids=["plain", "one group"])
def test_a_backward_pass_that_adds_to_clipped_gradients(hvd, rank, size, options):
    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters, **options)
    for _ in range(2):
        sum((parameter * (rank + 1)).sum() for parameter in parameters).backward()
        torch.nn.utils.clip_grad_value_(parameters, 0.5)
    sum((parameter * (rank + 1)).sum() for parameter in parameters).backward()
    optimizer.step()
    for parameter in parameters:
        assert torch.equal(parameter.detach(), torch.full((3,), -0.5 - (size + 1) / 2))


def test_a_parameter_of_two_optimizers(hvd, rank, size):
    shared, own = parameters_of(0, 0)
    both, one = sgd(hvd, [shared, own]), sgd(hvd, [shared])
    for _ in range(3):
        ((shared + own) * (rank + 1)).sum().backward()
        both.step()
        one.step()
        both.zero_grad()
        one.zero_grad()
    assert torch.equal(shared.detach(), torch.full((3,), -3.0 * (size + 1)))
    assert torch.equal(own.detach(), torch.full((3,), -1.5 * (size + 1)))


def test_optimizers_without_names(hvd, rank, size):
    """Two optimizers without names stay apart, also if one backward pass gives the gradients of both."""
    models = [parameters_of(0), parameters_of(0)]
    optimizers = [hvd.DistributedOptimizer(torch.optim.SGD(model, lr=1.0)) for model in models]
    (models[0][0] * (rank + 1) + models[1][0] * rank).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
    assert torch.equal(models[0][0].detach(), torch.full((3,), -(size + 1) / 2))
    assert torch.equal(models[1][0].detach(), torch.full((3,), -(size - 1) / 2))


def test_a_cell_that_is_run_again(hvd, rank, size):
    parameters = parameters_of(0)
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    for _ in range(3):
        optimizer = hvd.DistributedOptimizer(optimizer, [("w", parameters[0])])
        optimizer.zero_grad()
        (parameters[0] * (rank + 1)).sum().backward()
        optimizer.step()
    assert torch.equal(parameters[0].detach(), torch.full((3,), -1.5 * (size + 1)))


def test_optimizers_are_freed_with_their_hooks(hvd, rank):
    parameters = parameters_of(0, 0)
    kept = []
    for options in ({}, dict(groups=1), dict(groups=[parameters]), dict(gradient_views=True)):
        optimizer = sgd(hvd, parameters, **options)
        sum(parameter.sum() for parameter in parameters).backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(weakref.ref(optimizer._distributed.gradients))
        del optimizer
    gc.collect()
    assert [reference() for reference in kept] == [None] * 4
    sum(parameter.sum() for parameter in parameters).backward()
    assert all(type(parameter.grad) is torch.Tensor for parameter in parameters)


# ---- the optimizer as an object ---------------------------------------------------------------------------------


class Scaled(torch.optim.SGD):
    """An optimizer whose constructor has an argument that no parameter group contains."""

    def __init__(self, params, scale, note="none"):
        super().__init__(params, lr=scale)
        self.note = note


def test_the_optimizer_is_adopted_as_it_is(hvd, rank, size):
    parameters = parameters_of(0, 0)
    plain = Scaled(parameters[:1], 0.5, note="kept")
    plain.state[parameters[0]]["seen"] = 7
    seen = []
    plain.register_step_pre_hook(lambda *_: seen.append("before"))
    plain.register_step_post_hook(lambda *_: seen.append("after"))
    optimizer = hvd.DistributedOptimizer(plain)
    assert optimizer is plain and isinstance(optimizer, Scaled) and type(optimizer).__name__ == "Scaled"
    assert optimizer.note == "kept" and optimizer.state[parameters[0]]["seen"] == 7
    assert (optimizer.op, optimizer.backward_passes_per_step, optimizer.process_set) == (
        hvd.Average, 1, hvd.global_process_set)
    optimizer.add_param_group({"params": parameters[1:]})
    assert optimizer.param_groups[1]["lr"] == 0.5
    sum((parameter * (rank + 1)).sum() for parameter in parameters).backward()
    optimizer.step()
    for parameter in parameters:
        assert torch.equal(parameter.detach(), torch.full((3,), -0.25 * (size + 1)))
    assert seen == ["before", "after"]


def test_attributes_that_users_read(hvd, rank):
    class Own(torch.optim.SGD):
        op = "its own"

    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters, op=hvd.Sum, backward_passes_per_step=3, sparse_as_dense=True)
    assert (optimizer.op, optimizer.backward_passes_per_step, optimizer.gradient_predivide_factor,
            optimizer.sparse_as_dense, optimizer.process_set) == (hvd.Sum, 3, 1.0, True, hvd.global_process_set)
    assert optimizer.find_duplicates(["a", "b", "a"]) == {"a"}
    own = Own(parameters, lr=1.0)
    own.op = "set by its constructor"
    assert hvd.DistributedOptimizer(own).op == "set by its constructor"


def test_a_step_that_the_program_has_replaced(hvd, rank, size):
    parameters = parameters_of(0)
    plain = torch.optim.SGD(parameters, lr=1.0)
    own, calls = plain.step, []

    def step(*args):
        calls.append(parameters[0].grad[0].item())
        return own(*args)

    plain.step = step
    optimizer = hvd.DistributedOptimizer(plain)
    (parameters[0] * (rank + 1)).sum().backward()
    optimizer.step()
    assert calls == [(size + 1) / 2]


def test_a_step_that_takes_other_arguments(hvd, rank, size):
    class Stepped(torch.optim.SGD):
        @torch.no_grad()
        def step(self, factor, *, sign=1):
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.sub_(factor * sign * parameter.grad)

    parameters = parameters_of(0)
    optimizer = hvd.DistributedOptimizer(Stepped(parameters, lr=1.0))
    (parameters[0] * (rank + 1)).sum().backward()
    optimizer.step(0.5, sign=-1)
    assert torch.equal(parameters[0].detach(), torch.full((3,), (size + 1) / 4))


def test_a_pickled_optimizer_is_the_plain_one(hvd, rank):
    parameters = parameters_of(0)
    optimizer = sgd(hvd, parameters, momentum=0.5)
    parameters[0].sum().backward()
    optimizer.step()
    again = pickle.loads(pickle.dumps(optimizer))
    assert type(again) is torch.optim.SGD and again.param_groups[0]["momentum"] == 0.5 and len(again.state) == 1


def test_a_copy_of_one_rank_disturbs_nobody(hvd, rank, size):
    """Rank 0 keeps a copy of the best model with its optimizer. The copy takes no part in communication."""
    parameters = parameters_of(0)
    optimizer = sgd(hvd, parameters)
    if rank == 0:
        kept = copy.deepcopy((parameters, optimizer))
        assert kept[1].param_groups[0]["params"][0] is kept[0][0]
    later = sgd(hvd, parameters_of(1))
    for each in (optimizer, later):
        for parameter in each.param_groups[0]["params"]:
            (parameter * (rank + 1)).sum().backward()
        each.step()
        assert_equal_on_all_ranks(hvd, each.param_groups[0]["params"])


def test_a_copy_of_all_ranks_is_distributed(hvd, rank, size):
    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters, groups=1)
    parameters, optimizer = copy.deepcopy((parameters, optimizer))
    for _ in range(2):
        optimizer.zero_grad()
        sum((parameter * (rank + 1)).sum() for parameter in parameters).backward()
        optimizer.step()
    assert torch.equal(parameters[1].detach(), torch.full((3,), -(size + 1.0)))


@pytest.mark.parametrize("op", ["Average", "Adasum"])
def test_a_copy_that_shares_the_parameters_is_refused(hvd, rank, op):
    with pytest.raises(TypeError, match=r"copy.deepcopy\(\(model, optimizer\)\)"):
        copy.copy(sgd(hvd, parameters_of(0), op=getattr(hvd, op)))
