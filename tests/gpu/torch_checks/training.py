"""Training that equals one process, and its checkpoints."""
import pathlib
import shutil
import tempfile

import torch
from torch.nn import functional
from torch_checks.this_rank import (
    DEVICE, RANK, SIZE, Skipped, check, expect_close, expect_equal, is_double, of_all_ranks)

import horovod.torch as hvd


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
