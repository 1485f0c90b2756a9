"""Rounds of gradients that are disturbed: by signals, threads, a restart, a fork, or an optimizer that is dropped."""
import gc
import threading
from contextlib import nullcontext, suppress

import pytest
import torch
from interrupting import interrupted
from test_forked_children import in_child

from horovod import _ops
from horovod.torch import gradients_in_flight
from horovod.torch.gradient_presence import Presence


def parameters_of(*values):
    return [torch.nn.Parameter(torch.full((3,), float(value))) for value in values]


def sgd(hvd, parameters, **options):
    plain = torch.optim.SGD(parameters, lr=1.0)
    return hvd.DistributedOptimizer(plain, [(str(i), parameter) for i, parameter in enumerate(parameters)], **options)


def backward(parameters, rank):
    sum((parameter * (rank + 1)).sum() for parameter in parameters).backward()


@pytest.mark.parametrize("has_all", [True, False])
def test_who_was_interrupted_while_he_waited_for_a_gradient_waits_again(hvd, rank, size, has_all):
    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters)
    used = parameters if has_all else parameters[:1]
    if rank == 0:
        backward(used, rank)
        assert interrupted(lambda: parameters[0].grad.sum())  # the other ranks submit later
    hvd.barrier()
    if rank != 0:
        backward(used, rank)
    assert parameters[0].grad.sum().item() == 3 * (size + 1) / 2
    optimizer.step()
    assert torch.equal(parameters[0].detach(), torch.full((3,), -(size + 1) / 2))


def test_a_step_that_was_interrupted_while_it_heard_of_the_others_goes_on(hvd, rank, size):
    """Rank 0 takes part in the reduction of gradients that only others have, although its interrupted step had closed
    the round."""
    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters)
    backward(parameters[min(rank, 1):][:1], rank)
    if rank == 0:
        assert interrupted(optimizer.step)
    hvd.barrier()
    optimizer.step()
    assert torch.equal(parameters[0].detach(), torch.full((3,), -1 / size))
    assert torch.allclose(parameters[1].detach(), torch.full((3,), -((size + 1) / 2 - 1 / size)))


def test_threads_that_use_one_gradient_all_wait_for_it(hvd, rank, size, monkeypatch):
    parameters = parameters_of(0)
    optimizer = sgd(hvd, parameters)
    synchronize, found, threads = _ops.synchronize, [], []
    for _ in range(3):
        waits = threading.Event()

        def waiting(handle, waits=waits):
            waits.set()
            return synchronize(handle)

        if rank == 0:
            if not threads:
                backward(parameters, rank)
            monkeypatch.setattr(_ops, "synchronize", waiting)
            threads.append(threading.Thread(target=lambda: (found.append(parameters[0].grad.sum().item()),
                                                            waits.set())))
            threads[-1].start()
            waits.wait()
    monkeypatch.undo()
    hvd.barrier()
    if rank != 0:
        backward(parameters, rank)
    optimizer.step()
    for thread in threads:
        thread.join()
    assert found == [3 * (size + 1) / 2] * len(threads)
    assert torch.equal(parameters[0].detach(), torch.full((3,), -(size + 1) / 2))


def test_no_thread_that_uses_a_gradient_tells_while_a_step_does(hvd, rank, monkeypatch):
    """Both would begin the same exchange."""
    parameters = parameters_of(0)
    optimizer = sgd(hvd, parameters)
    landing, hear, are_let_in = optimizer._distributed.gradients.landing, Presence.hear, []

    def is_let_in():
        are_let_in.append(landing.acquire(blocking=False))
        if are_let_in[-1]:
            landing.release()

    def hear_beside_a_thread(presence):
        thread = threading.Thread(target=is_let_in)
        thread.start()
        thread.join()
        return hear(presence)

    monkeypatch.setattr(Presence, "hear", hear_beside_a_thread)
    for _ in range(2):
        backward(parameters, rank)
        optimizer.step()
        optimizer.zero_grad()
    assert are_let_in and not any(are_let_in)


@pytest.mark.parametrize("options", [{}, dict(groups=1), dict(backward_passes_per_step=2), dict(gradient_views=True)],
                         ids=["plain", "groups", "passes", "views"])
def test_what_was_in_flight_when_horovod_was_restarted_is_gone(hvd, rank, size, options):
    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters, **options)
    for _ in range(options.get("backward_passes_per_step", 1)):
        backward(parameters if rank == 0 else parameters[:1], rank)  # the ranks have started different gradients
    hvd.shutdown()
    hvd.init()
    waiting = len(gradients_in_flight._waiting)
    handle = hvd.allreduce_async(torch.ones(2), name="another")
    assert parameters[0].grad is None
    optimizer.zero_grad()
    for _ in range(2):
        for _ in range(options.get("backward_passes_per_step", 1)):
            backward(parameters, rank)
        optimizer.step()
        optimizer.zero_grad()
    expected = -(size + 1.0) * options.get("backward_passes_per_step", 1)
    assert torch.equal(parameters[1].detach(), torch.full((3,), expected))
    assert torch.equal(hvd.synchronize(handle), torch.ones(2))
    assert len(gradients_in_flight._waiting) == waiting


def test_gradients_of_an_optimizer_that_is_gone_go_too(hvd, rank):
    gc.collect()
    before = len(gradients_in_flight._waiting)
    for _ in range(6):
        parameters = parameters_of(0, 0)
        optimizer = sgd(hvd, parameters)
        backward(parameters, rank)
        del optimizer, parameters
        gc.collect()
        hvd.barrier()
    assert len(gradients_in_flight._waiting) <= before + 4


def test_an_optimizer_that_goes_with_gradients_that_are_done_tells_nothing(hvd, rank, monkeypatch):
    """On other ranks they may be in flight still, so that these would tell nothing, and this rank would wait."""
    model = torch.nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    model(torch.ones(1, 3)).sum().backward()
    model.zero_grad()
    handles = [gradient.handle for gradient in optimizer._distributed.gradients._all]
    while not all(map(_ops.poll, handles)):
        pass
    told = []
    monkeypatch.setattr(Presence, "tell", lambda *arguments: told.append(arguments))
    del optimizer
    gc.collect()
    assert not told


def test_a_group_that_will_not_be_complete_is_given_up_with_its_optimizer(hvd, rank):
    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters, groups=1)
    backward(parameters[:1], rank)
    del optimizer
    gc.collect()
    assert parameters[0].grad.sum().item() == 3 * (rank + 1)


def test_gradients_that_were_made_in_inference_mode(hvd, rank, size):
    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters)
    for _ in range(2):
        with torch.inference_mode():
            for parameter in parameters:
                parameter.grad = torch.full((3,), rank + 1.0)
        optimizer.step()
    assert torch.equal(parameters[0].detach(), torch.full((3,), -(size + 1.0)))


def test_a_forked_child_does_not_take_what_is_in_flight_for_done(hvd, rank, size):
    parameters = parameters_of(0)
    optimizer = sgd(hvd, parameters)
    if rank == 0:
        handle = hvd.allreduce_async(torch.ones(3), name="forked")
        backward(parameters, rank)
        def twice(call):
            try:
                call()
            except hvd.HorovodInternalError:
                return call()

        for call in (lambda: hvd.synchronize(handle), lambda: parameters[0].grad.sum().item()):
            assert "forked from" in str(in_child(lambda: twice(call)))
    hvd.barrier()
    if rank != 0:
        handle = hvd.allreduce_async(torch.ones(3), name="forked")
        backward(parameters, rank)
    hvd.synchronize(handle)
    optimizer.step()
    assert torch.equal(parameters[0].detach(), torch.full((3,), -(size + 1) / 2))


def test_a_parameter_that_was_removed_while_its_gradient_was_in_flight(hvd, rank, size):
    parameters = parameters_of(0, 0, 0)
    optimizer = sgd(hvd, parameters)
    for _ in range(3):
        backward(parameters, rank)
        if len(optimizer.param_groups[0]["params"]) > 1:
            optimizer.param_groups[0]["params"].pop()
        optimizer.step()
        for parameter in parameters:
            parameter.grad = None
    assert torch.equal(parameters[0].detach(), torch.full((3,), -1.5 * (size + 1)))


@pytest.mark.parametrize("drop", ["model.zero_grad", "model.zero_grad and step", "zeros", "after synchronize"])
def test_a_batch_that_only_some_ranks_dropped_is_an_error_on_all(hvd, rank, size, drop):
    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters)

    def steps(times, dropped=None):
        for step in range(times):
            optimizer.zero_grad()
            backward(parameters, rank)
            if step == dropped and rank == 0:
                if drop == "after synchronize":
                    optimizer.synchronize()
                for parameter in parameters:
                    parameter.grad = torch.zeros_like(parameter) if drop == "zeros" else None
                if drop != "model.zero_grad and step":
                    continue
            optimizer.step()

    steps(2)
    with pytest.raises(RuntimeError, match="(has dropped a batch|has made more or fewer).*Let all ranks decide alike"):
        steps(8, dropped=2)
    hvd.broadcast_parameters(parameters, 0)
    start = parameters[0][0].item()
    optimizer.synchronize()
    steps(2)
    assert torch.equal(parameters[0].detach(), torch.full((3,), start - (size + 1.0)))


def expect_step_of_what_others_had(parameter, size):
    """A step by the average of the gradients of all ranks but rank 0. One by a third is not exact."""
    relative = 0 if size & (size - 1) == 0 else 2**-22
    expected = torch.full((3,), 1 / size - (size + 1) / 2)
    torch.testing.assert_close(parameter.detach(), expected, rtol=relative, atol=0)


def test_a_step_that_raised_an_exception_on_one_rank_only_is_an_error_on_all(hvd, rank, size):
    parameters = parameters_of(0)
    optimizer = sgd(hvd, parameters)

    def raise_once(*_):
        hook.remove()
        raise ArithmeticError

    if rank == 0:
        hook = optimizer.register_step_pre_hook(raise_once)
    with pytest.raises(RuntimeError, match="steps with the optimizer of '0"):
        for _ in range(4):
            optimizer.zero_grad()
            backward(parameters, rank)
            with suppress(ArithmeticError):
                optimizer.step()


@pytest.mark.parametrize("has_next", [False, True])
def test_a_dropped_batch_that_one_rank_did_not_have(hvd, rank, size, has_next):
    """If that rank has nothing of the next batch either, all go on. Otherwise its gradients were averaged with those of
    the dropped batch."""
    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters)
    if rank != 0:
        backward(parameters, 100)
    for parameter in parameters:
        parameter.grad = None
    with pytest.raises(RuntimeError, match="dropped a batch.*Let all ranks") if has_next else nullcontext():
        for _ in range(3 if has_next else 1):
            if rank != 0 or has_next:
                backward(parameters, rank)
            optimizer.step()
            optimizer.zero_grad()
    if has_next:
        optimizer.synchronize()
    else:
        expect_step_of_what_others_had(parameters[0], size)


@pytest.mark.parametrize("has_next", [False, True])
def test_a_dropped_batch_of_two_optimizers_and_a_rank_that_steps_the_second_first(hvd, rank, size, has_next):
    """That rank did not have the batch. The others drop it in a backward pass, the first optimizer first."""
    parameters = parameters_of(0, 0)
    first, second = (sgd(hvd, [parameter]) for parameter in parameters)
    if rank != 0:
        backward(parameters, 100)
    for parameter in parameters:
        parameter.grad = None
    with pytest.raises(RuntimeError, match="dropped a batch.*Let all ranks") if has_next else nullcontext():
        for _ in range(3 if has_next else 1):
            if rank != 0 or has_next:
                backward(parameters, rank)
            second.step()
            first.step()
            for parameter in parameters:
                parameter.grad = None
    if has_next:
        hvd.barrier()
        hvd.shutdown()  # with what is in flight
        hvd.init()
        return
    for parameter in parameters:
        expect_step_of_what_others_had(parameter, size)


def dropped_then(hvd, rank, optimizers, had, has_next, steps=1):
    """All ranks drop a batch that had gradients of the parameters `had`, and train on with `has_next`."""
    parameters = [optimizer.param_groups[0]["params"][0] for optimizer in optimizers]
    if had:
        backward([parameters[place] for place in had], 100)
    for parameter in parameters:
        parameter.grad = None
    for _ in range(steps):
        if has_next:
            backward([parameters[place] for place in has_next], rank)
        for optimizer in reversed(optimizers):
            optimizer.step()
        for parameter in parameters:
            parameter.grad = None
    return parameters


def forget_what_is_in_flight(hvd):
    hvd.barrier()
    hvd.shutdown()
    hvd.init()


@pytest.mark.parametrize("has_next", [(), (1,)], ids=["nothing", "gradients of the optimizer it waits in"])
def test_a_dropped_batch_without_gradients_of_the_optimizer_that_others_step(hvd, rank, size, has_next):
    """Rank 0 did not have the batch, and steps the second optimizer first."""
    optimizers = [sgd(hvd, [parameter]) for parameter in parameters_of(0, 0)]
    first, second = dropped_then(hvd, rank, optimizers, (0,) if rank != 0 else (), (0, 1) if rank != 0 else has_next)
    expect_step_of_what_others_had(first, size)
    if has_next:
        torch.testing.assert_close(second.detach(), torch.full((3,), -(size + 1) / 2))
    else:
        expect_step_of_what_others_had(second, size)


def test_a_rank_that_goes_on_without_the_dropped_batch_and_steps_another_optimizer(hvd, rank):
    optimizers = [sgd(hvd, [parameter]) for parameter in parameters_of(0, 0)]
    with pytest.raises(RuntimeError, match="dropped a batch.*Let all ranks"):
        dropped_then(hvd, rank, optimizers, (0,) if rank != 0 else (), (0, 1), steps=3)
    forget_what_is_in_flight(hvd)


@pytest.mark.parametrize("had", [[(0,), (1,)], [(0,), (0, 1)]], ids=["no common optimizer", "one in common"])
def test_a_dropped_batch_with_gradients_of_other_optimizers_on_each_rank(hvd, rank, size, had):
    optimizers = [sgd(hvd, [parameter]) for parameter in parameters_of(0, 0)]
    for parameter in dropped_then(hvd, rank, optimizers, had[rank % 2], (0, 1)):
        torch.testing.assert_close(parameter.detach(), torch.full((3,), -(size + 1) / 2))


def test_training_after_an_error_for_a_dropped_batch_with_several_optimizers(hvd, rank, size, monkeypatch):
    """Rank 0 keeps the batch, and comes so late that the others alert the optimizer without gradients."""
    parameters = parameters_of(0, 0, 0)
    first, second = (sgd(hvd, part) for part in (parameters[:2], parameters[2:]))
    alert, late = Presence.alert, []
    monkeypatch.setattr(Presence, "alert", lambda presence: (
        alert(presence), late.append(hvd.allreduce_async(torch.ones(1), name="late"))))
    backward(parameters[:1 if rank == 0 else 2], rank)
    with pytest.raises(RuntimeError, match="dropped a batch.*Let all ranks"):
        if rank == 0:
            hvd.allreduce(torch.ones(1), name="late")
            first.step()
        else:
            for parameter in parameters:
                parameter.grad = None
            backward(parameters, rank)
    monkeypatch.undo()
    for handle in late:
        hvd.synchronize(handle)
    for _ in range(2):
        for parameter in parameters:
            parameter.grad = None
        backward(parameters[rank % 2:], rank)
        second.step()
        first.step()
    torch.testing.assert_close(parameters[2].detach(), torch.full((3,), -(size + 1.0)))
    torch.testing.assert_close(parameters[1].detach(), torch.full((3,), -(size + 1.0)))


def test_zero_grad_refuses_to_drop_a_part_of_what_is_in_flight(hvd, rank):
    parameters = parameters_of(0, 0)
    optimizer = sgd(hvd, parameters)
    backward(parameters, rank)
    parameters[0].grad = None
    with pytest.raises(AssertionError, match="after loss.backward"):
        optimizer.zero_grad()
    parameters[1].grad = None
    optimizer.zero_grad()
    backward(parameters, rank)
    optimizer.step()
    assert parameters[0][0] == parameters[1][0] != 0
