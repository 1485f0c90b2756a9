"""Gradients that the script changes, reads and keeps in other ways than by p.grad.mul_()."""
import copy
import ctypes
import io
import pickle
import threading

import numpy
import pytest
import torch
from training import loss

VIEWS = pytest.mark.parametrize("gradient_views", [False, True], ids=["", "shared memory"])


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


# ---- several tensors of one memory------------------------------------------------------------------------------


def in_one_buffer(model):
    """Makes one flat tensor, and makes the gradients of all parameters views of it."""
    flat = torch.zeros(sum(parameter.numel() for parameter in model.parameters()))
    for parameter, part in zip(model.parameters(), flat.split([each.numel() for each in model.parameters()])):
        parameter.grad = part.view_as(parameter)
    return flat


def clip_by_norm(flat):
    flat.mul_((0.05 / flat.norm()).clamp(max=1.0))


def clip_a_part(flat):
    flat[:10].clamp_(-0.01, 0.01)


@VIEWS
@pytest.mark.parametrize("groups", [None, 2])
@pytest.mark.parametrize("clip", [clip_by_norm, clip_a_part, None])
def test_a_flat_buffer(equals_one_process, clip, groups, gradient_views):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model, groups=groups, gradient_views=gradient_views)
        flat = in_one_buffer(model)
        for x, y in world.batches():
            flat.zero_()
            loss(model(x), y).backward()
            if clip is not None:
                clip(flat)
            optimizer.step()
        return model, optimizer, flat

    equals_one_process(train)


def test_a_flat_buffer_of_two_optimizers(equals_one_process):
    def train(world):
        model = world.network()
        optimizers = [world.wrap(adam(layer), layer) for layer in (model[0], model[2])]
        world.begin(model)
        flat = in_one_buffer(model)
        for x, y in world.batches():
            flat.zero_()
            loss(model(x), y).backward()
            clip_by_norm(flat)
            for optimizer in optimizers:
                optimizer.step()
        return model, optimizers

    equals_one_process(train)


def test_a_gradient_that_is_a_part_of_another(equals_one_process):
    def train(world):
        model = world.network(torch.nn.Linear, 6, 3)
        optimizer = world.wrap(adam(model), model)
        whole = torch.zeros(4, 6)
        model.weight.grad, model.bias.grad = whole[:3], whole[3, :3]
        for x, y in world.batches():
            optimizer.zero_grad(set_to_none=False)
            loss(model(x), y).backward()
            model.bias.grad.clamp_(-0.01, 0.01)
            clip_by_norm(whole[:3])
            optimizer.step()
        return model, optimizer, whole

    equals_one_process(train)


SET_GRADIENTS = {
    "one tensor": lambda value: (value, value, value), "views": lambda value: (value[:], value.view(6), value),
    "without history": lambda value: (value.detach(), value, value.data),
    "overlapping": lambda value: value.repeat(2).unfold(0, 6, 2)[:3].unbind(),
    "expanded": lambda value: (value[:1].expand(6), value[:1].expand(6), value)}


@pytest.mark.parametrize("options", [{}, {"op": "sum"}, {"groups": 1}, {"gradient_views": True}],
                         ids=["", "sum", "groups", "shared memory"])
@pytest.mark.parametrize("kind", SET_GRADIENTS)
def test_gradients_in_one_memory_that_the_script_sets(equals_one_process, hvd, kind, options):
    def train(world):
        model = torch.nn.ParameterList([torch.zeros(6), torch.ones(6), torch.ones(6)])
        is_sum = "op" in options
        optimizer = world.wrap(adam(model), model, **{**options, "op": hvd.Sum if is_sum else hvd.Average})
        for x, _ in world.batches():
            optimizer.zero_grad()
            value = x.sum(0) / 8 if is_sum else x.mean(0)
            for parameter, gradient in zip(model, SET_GRADIENTS[kind](value)):
                parameter.grad = gradient
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


@VIEWS
def test_a_list_of_gradients(equals_one_process, gradient_views):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model, gradient_views=gradient_views)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in model.parameters()]
        for x, y in world.batches():
            optimizer.zero_grad(set_to_none=False)
            loss(model(x), y).backward()
            norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
            torch._foreach_mul_(gradients, 0.05 / norm.item())
            optimizer.step()
        return model, optimizer, gradients

    equals_one_process(train)


@VIEWS
def test_gradients_of_the_last_step(equals_one_process, gradient_views):
    """The script keeps the gradient tensors of the last step, as methods do that use differences of gradients."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model, gradient_views=gradient_views)
        last, differences = None, []
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(x), y).backward()
            now = [parameter.grad for parameter in model.parameters()]
            if last is not None:
                differences.append(sum((one - other).square().sum() for one, other in zip(now, last)))
            last = now
            optimizer.step()
        return model, optimizer, differences

    equals_one_process(train)


@pytest.mark.parametrize("other_name", [lambda gradient: gradient.view(-1), lambda gradient: gradient.detach()],
                         ids=["view", "detach"])
@pytest.mark.fails_on_purpose
def test_other_names_from_before_are_an_error(equals_one_process, other_name):
    """A view or detached tensor from before backward() changes a gradient in flight without waiting. The change is
    detected."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        others = [other_name(parameter.grad) for parameter in model.parameters()]
        for x, y in world.batches(3):
            loss(model(x), y).backward()
            torch._foreach_clamp_max_(others, 0.01)
            optimizer.step()

    with pytest.raises(AssertionError, match=r"was changed while it was being reduced. Call optimizer.synchronize"):
        equals_one_process(train)


DO_NOT_ASK = {
    "vmap": lambda gradient: torch.vmap(lambda row: row * 2)(gradient),
    "func.grad": torch.func.grad(lambda gradient: gradient.square().sum()),
    "numpy from before": lambda gradient: torch.from_numpy(arrays[id(gradient)].copy()),
}
arrays = {}


@pytest.mark.parametrize("how", DO_NOT_ASK)
def test_who_does_not_ask_is_right_after_synchronize(equals_one_process, how):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        arrays.clear()
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
            arrays[id(parameter.grad)] = parameter.grad.numpy()
        seen = []
        for x, y in world.batches():
            optimizer.zero_grad(set_to_none=False)
            loss(model(x), y).backward()
            world.synchronize(optimizer)
            seen.append([DO_NOT_ASK[how](parameter.grad) for parameter in model.parameters()])
            with world.skip_synchronize(optimizer):
                optimizer.step()
        return model, optimizer, seen

    equals_one_process(train)


# ---- reading gradients ------------------------------------------------------------------------------------------


def saved(gradient):
    file = io.BytesIO()
    torch.save(gradient, file)
    file.seek(0)
    return torch.load(file)


READINGS = {
    "numpy": lambda gradient: torch.from_numpy(gradient.numpy().copy()),
    "numpy.array": lambda gradient: torch.from_numpy(numpy.array(gradient)),
    "tolist": lambda gradient: gradient.tolist(),
    "item": lambda gradient: gradient.flatten()[0].item(),
    "clone": lambda gradient: gradient.clone(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda gradient: pickle.loads(pickle.dumps(gradient)),
    "torch.save": saved,
    "dlpack": lambda gradient: torch.from_dlpack(gradient).clone(),
    "address": lambda gradient: torch.frombuffer(
        bytearray(ctypes.string_at(gradient.data_ptr(), 8 * gradient.numel())), dtype=torch.float64),
    "rows": lambda gradient: [row.sum() for row in gradient],
    "text": lambda gradient: repr(gradient.round(decimals=6) + 0.0),
    "truth": lambda gradient: bool((gradient > 0.01).any()),
    "other type": lambda gradient: gradient.to(torch.float32),
    "operator": lambda gradient: torch.ops.aten.abs.default(gradient),
    "foreach": lambda gradient: torch._foreach_norm([gradient])[0],
    "out": lambda gradient: torch.mul(gradient, 0.5, out=torch.empty_like(gradient)),
    "autograd.grad": lambda gradient: torch.autograd.grad(slope(gradient) * 2, points, grad_outputs=gradient),
    "backward": lambda gradient: (slope(gradient) * 2).backward(gradient, inputs=points) or points[0].grad,
}
points = []  # what slope() has returned


def slope(gradient):
    """Returns a tensor of the gradient's shape, of which torch computes gradients."""
    points[:] = [torch.ones(gradient.shape, dtype=gradient.dtype, requires_grad=True)]
    return points[0]


@pytest.mark.parametrize("how", READINGS)
def test_read(equals_one_process, how):
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        seen = []
        for x, y in world.batches(5):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            seen.append([READINGS[how](parameter.grad) for parameter in model.parameters()])
            optimizer.step()
        return model, seen

    equals_one_process(train, atol=1e-7)


def test_read_by_rank_0_alone(equals_one_process):
    """Only rank 0 reads gradients, as for a log or a checkpoint."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        if world.rank == 0:
            model[2].weight.register_post_accumulate_grad_hook(lambda parameter: print(parameter.grad.norm().item()))
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(x), y).backward()
            if world.rank == 0:
                saved({"model": model.state_dict(), "norm": model[0].weight.grad.norm()})
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


def test_read_in_another_thread(equals_one_process):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        seen = []
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(x), y).backward()
            reader = threading.Thread(target=lambda: seen.append([each.grad.norm() for each in model.parameters()]))
            reader.start()
            reader.join()
            optimizer.step()
        return model, optimizer, seen

    equals_one_process(train)


def test_copied_with_the_model(equals_one_process):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(x), y).backward()
            copied = copy.deepcopy(model)
            optimizer.step()
        return model, optimizer, [parameter.grad for parameter in copied.parameters()]

    equals_one_process(train)


# ---- dropping gradients -----------------------------------------------------------------------------------------


DROPS = pytest.mark.parametrize("drop", [lambda model: model.zero_grad(),
                                         lambda model: model.zero_grad(set_to_none=False),
                                         lambda model: [setattr(each, "grad", None) for each in model.parameters()]],
                                ids=["model.zero_grad", "to zero", "p.grad = None"])


@DROPS
def test_a_batch_that_is_dropped_after_its_backward_pass(equals_one_process, drop):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        for step, (x, y) in enumerate(world.batches()):
            loss(model(x), y).backward()
            if step % 3:
                optimizer.step()
            drop(model)
        return model, optimizer

    equals_one_process(train)


@pytest.mark.parametrize("way", [{}, dict(groups=2), dict(gradient_views=True), dict(op="Sum")],
                         ids=["plain", "two groups", "shared memory", "Sum"])
@pytest.mark.parametrize("place", [0, 3, None], ids=["first", "last", "nowhere"])
@DROPS
def test_a_batch_that_is_dropped_before_zero_grad(equals_one_process, drop, place, way):
    """The script looks for values that are not finite. How many gradients it reads depends on where it finds one."""
    def train(world):
        model = world.network()
        options = {**way, "op": world.hvd.Sum} if "op" in way and world.distributed else way
        optimizer = world.wrap(adam(model), model, **options)
        for step, (x, y) in enumerate(world.batches()):
            optimizer.zero_grad()
            (loss(model(x), y) / (world.size if "op" in way else 1)).backward()
            if step % 3 == 1:
                if place is not None:
                    assert all(each.grad.isfinite().all() for each in list(model.parameters())[:place + 1])
                drop(model)
                continue
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


@pytest.mark.parametrize("zero_grad", [True, False])
def test_a_dropped_batch_that_used_other_parameters(equals_one_process, zero_grad):
    """The two halves of a batch use different parameters. The batch after the dropped one uses still others first."""
    def train(world):
        model = torch.nn.ModuleList(world.network() for _ in range(3))
        optimizer = world.wrap(adam(model), model)
        for step, (x, y) in enumerate(world.batches()):
            if zero_grad:
                optimizer.zero_grad()
            parts = world.parts(x, y)
            outputs = [model[step % 3](part) + (model[(step + rank) % 3](part) if step % 4 == 1 else 0)
                       for rank, part, _ in parts]
            loss(torch.cat(outputs), y).backward()
            if step % 4 == 1:
                model.zero_grad()
                continue
            optimizer.step()
            model.zero_grad()
        return model, optimizer

    equals_one_process(train)


@pytest.mark.fails_on_purpose
@pytest.mark.parametrize("used_next", ["by one rank", "by all"])
def test_a_dropped_batch_that_used_other_parameters_set_to_zero_in_place(equals_one_process, monkeypatch, used_next):
    """A rank that sets a gradient to zero waits for those that lack it. The test accepts right numbers or an error that
    names synchronize(), but not that the batches of different steps are averaged."""
    monkeypatch.setattr("horovod.torch.gradients.PATIENCE_SECONDS", 0.1)

    def train(world):
        model = torch.nn.ModuleList(world.network() for _ in range(3))
        optimizer = world.wrap(adam(model), model)
        for step, (x, y) in enumerate(world.batches()):
            is_used = step == 4 or used_next == "by one rank"
            outputs = [model[0](part) + (model[1 + (step + rank) % 2](part) if is_used else 0)
                       for rank, part, _ in world.parts(x, y)]
            loss(torch.cat(outputs), y).backward()
            if step != 4:
                optimizer.synchronize() if world.distributed else None
                with world.skip_synchronize(optimizer):
                    optimizer.step()
            model.zero_grad(set_to_none=False)
        return model, optimizer

    try:
        equals_one_process(train, warns="waited")
    except AssertionError as error:
        assert "synchronize()" in str(error)


@pytest.mark.parametrize("options", [dict(groups=2), dict(gradient_views=True), dict(op="Sum")], ids=str)
def test_a_dropped_batch_set_to_zero_in_place_with_a_layer_unused(equals_one_process, options):
    """Who sets a gradient of a group to zero completes the round, because the unused layer's gradient never comes."""
    def train(world):
        model = world.network()
        model.append(torch.nn.Linear(2, 2))
        is_sum = "op" in options
        wrapping = {"op": world.hvd.Sum} if is_sum and world.distributed else options
        optimizer = world.wrap(adam(model), model, **wrapping)
        for step, (x, y) in enumerate(world.batches()):
            (loss(model[:-1](x), y) / (world.size if is_sum else 1)).backward()
            if step % 4 != 2:
                optimizer.step()
            model.zero_grad(set_to_none=False)
        return model, optimizer

    equals_one_process(train)


def test_an_exception_in_a_forward_pass_of_one_rank(equals_one_process):
    """All ranks drop the batch. The one rank has no gradients, so all of them complete the round before."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        for step, (x, y) in enumerate(world.batches()):
            is_bad = step in (3, 4, 10)
            if not is_bad or world.rank == 0:
                loss(model(x), y).backward()
            world.synchronize(optimizer)
            if not is_bad:
                with world.skip_synchronize(optimizer):
                    optimizer.step()
            optimizer.zero_grad()
        return model, optimizer

    equals_one_process(train)


def test_an_exception_on_one_rank_in_the_middle_of_its_backward_pass(equals_one_process, monkeypatch):
    """All ranks drop the batch in place. One of them has not all gradients."""
    monkeypatch.setattr("horovod.torch.gradients.PATIENCE_SECONDS", 0.1)

    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        for step, (x, y) in enumerate(world.batches()):
            hidden = model[:2](x)
            is_bad = step in (3, 4, 10)
            if is_bad and world.rank == world.size - 1:
                hidden.register_hook(lambda gradient: 1 / 0)
            try:
                loss(model[2](hidden), y).backward()
            except ZeroDivisionError:
                pass
            if not is_bad:
                optimizer.step()
            model.zero_grad(set_to_none=False)
        return model, optimizer

    equals_one_process(train, warns="waited")


def test_an_exception_in_a_backward_pass(equals_one_process):
    """All ranks get an exception, as when memory is exhausted. They drop the batch and go on training."""
    def train(world):
        def fail(gradient):
            if step in (3, 4, 10):
                raise RuntimeError("out of memory")

        model = world.network()
        optimizer = world.wrap(adam(model), model)
        model[0].weight.register_hook(fail)
        for step, (x, y) in enumerate(world.batches()):
            try:
                loss(model(x), y).backward()
                optimizer.step()
            except RuntimeError as error:
                assert "out of memory" in str(error)
            model.zero_grad()
        return model, optimizer

    equals_one_process(train)
