"""What DistributedOptimizer accepts and refuses, and what can be read from it."""
import pytest
import torch

import horovod.torch as hvd
from ranks import error_of, is_error
from test_optimizer import alone, distributed, model_of, same, sgd, train


def test_duplicate_names_are_a_value_error_before_init_too():
    """Contract §2.12 factory checks [Horovod tests this]"""
    hvd.barrier()
    hvd.shutdown()
    model = model_of()
    twice = [("same", parameter) for parameter in model.parameters()]
    error = error_of(hvd.DistributedOptimizer, sgd(model.parameters()), named_parameters=twice)
    hvd.init()
    is_error(error, ValueError)


@pytest.mark.parametrize("wrong", ["no tuples", "duplicates", "one is missing", "one too many groups"])
def test_wrong_named_parameters_are_a_value_error(wrong):
    """Contract §2.12 named_parameters [Horovod tests this]"""
    model = model_of()
    optimizer = sgd(model.parameters())
    named = {"no tuples": list(model.parameters()),
             "duplicates": [*model.named_parameters(), *model.named_parameters()],
             "one is missing": list(model.named_parameters())[:-1],
             "one too many groups": list(model.named_parameters())}[wrong]
    if wrong == "one too many groups":
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
    is_error(error_of(hvd.DistributedOptimizer, optimizer, named_parameters=named), ValueError)


@pytest.mark.parametrize("passes", [0, -1])
def test_passes_per_step_below_one_are_a_value_error(passes):
    """Contract §2.12 factory checks"""
    is_error(error_of(distributed, model_of(), backward_passes_per_step=passes), ValueError)


def test_predividing_is_for_averages_only():
    """Contract §2.12 factory checks"""
    is_error(error_of(distributed, model_of(), op=hvd.Sum, gradient_predivide_factor=2.0), ValueError)


@pytest.mark.parametrize("wrong", [0, -1, "text", [[1, 2]], "twice"])
def test_wrong_groups_are_a_value_error(wrong):
    """Contract §2.12 groups"""
    model = model_of()
    if wrong == "twice":
        parameters = list(model.parameters())
        wrong = [parameters[:2], parameters[:1]]
    is_error(error_of(distributed, model, groups=wrong), ValueError)


def test_num_groups_is_deprecated_and_works():
    """Contract §2.12 factory checks"""
    model = model_of()
    with pytest.warns(DeprecationWarning):
        optimizer = distributed(model, num_groups=2)
    same(train(model, optimizer), alone())


def test_an_optimizer_made_before_init_averages_or_is_refused():
    """Contract §2.12 factory checks"""
    hvd.barrier()
    hvd.shutdown()
    model = model_of()
    made = []
    error = error_of(lambda: made.append(distributed(model)))
    hvd.init()
    if error is None:
        same(train(model, made[0]), alone())
    else:
        is_error(error, ValueError)


# ---- the optimizer's class and attributes

@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
def test_the_class_has_the_name_of_its_base_and_is_a_subclass(base):
    """Contract §2.12 class"""
    model = model_of()
    optimizer = distributed(model, lambda parameters: base(parameters, lr=0.1))
    assert type(optimizer).__name__ == base.__name__ and isinstance(optimizer, base)
    assert type(optimizer) is not base and optimizer.__module__ == "horovod.torch.optimizer"


def test_no_class_of_ours_looks_like_one_of_torch():
    """Contract §2.12 class [Horovod tests this]"""
    model = model_of()
    kept = distributed(model)
    named = [kind for kind in torch.optim.Optimizer.__subclasses__() if "istributed" in kind.__name__]
    assert kept and all(not kind.__module__.startswith("torch.optim") for kind in named)


def test_hyper_parameters_travel_in_the_groups():
    """Contract §2.12 class"""
    model = model_of()
    parameters = list(model.parameters())
    groups = [{"params": parameters[:2], "lr": 0.5, "momentum": 0.3}, {"params": parameters[2:]}]
    plain = torch.optim.SGD(groups, lr=0.1)
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())
    assert [(group["lr"], group["momentum"]) for group in optimizer.param_groups] == [(0.5, 0.3), (0.1, 0)]
    assert optimizer.param_groups[0]["params"][0] is parameters[0]


def test_names_of_parameters_are_kept():
    """Contract §2.12 named_parameters [Horovod tests this]"""
    model = model_of()
    named, unnamed = distributed(model), distributed(model, named=False)
    assert {named._parameter_names[parameter] for parameter in model.parameters()} == \
        {name for name, _ in model.named_parameters()}
    assert [unnamed._parameter_names[parameter] for parameter in model.parameters()] == \
        [f"allreduce.noname.0.{index}" for index in range(4)]


def test_what_it_was_made_with_can_be_read():
    """Contract §2.12, issue 20: public attributes"""
    optimizer = distributed(model_of(), backward_passes_per_step=2, gradient_predivide_factor=2.0, sparse_as_dense=True)
    assert (optimizer.op, optimizer.backward_passes_per_step) == (hvd.Average, 2)
    assert (optimizer.gradient_predivide_factor, optimizer.sparse_as_dense) == (2.0, True)
    assert optimizer.process_set is hvd.global_process_set
    assert optimizer.find_duplicates(["a", "b", "a"]) == {"a"}
