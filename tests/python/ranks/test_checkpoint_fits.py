"""What fits a checkpoint and what does not: refused before anything is changed, or kept to the bit."""
import collections
import os
import shutil
import tempfile

import pytest
import torch

import horovod.torch as hvd


@pytest.fixture
def folder(rank):
    path = hvd.broadcast_object(tempfile.mkdtemp(prefix="horovod-fits-") if rank == 0 else None)
    yield path
    hvd.barrier()
    if rank == 0:
        shutil.rmtree(path)


class Refusing:
    """An object that takes only a state of its own size."""

    def __init__(self, size):
        self.state = [0] * size

    def state_dict(self):
        return {"state": self.state}

    def load_state_dict(self, state):
        if len(state["state"]) != len(self.state):
            raise RuntimeError(f"{len(state['state'])} numbers instead of {len(self.state)}")
        self.state = state["state"]


def adam(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return optimizer


@pytest.mark.parametrize("sharded", [False, True])
def test_nothing_is_loaded_if_one_of_many_objects_does_not_fit(sharded, folder, rank, size):
    saved = {"model": torch.nn.Linear(4, 4), "critic": torch.nn.Linear(4, 3)}
    saved["optimizer"], saved["its_optimizer"] = adam(saved["model"]), adam(saved["critic"])
    saved.update(sampler=hvd.checkpoint.Sampler(range(100)), counts=Refusing(3), other=Refusing(2))
    saved["counts"].state = [1, 2, 3]
    hvd.checkpoint.save(f"{folder}/a.h5", **saved, sharded=sharded)
    hard = {"critic": (torch.nn.Linear(4, 5), ValueError, "another critic.*weight was of shape"),
            "its_optimizer": (torch.optim.Adam([torch.zeros(1)]), ValueError, r"another its_optimizer.*\[2\]"),
            "sampler": (hvd.checkpoint.Sampler(range(99)), ValueError, "100 samples"),
            "other": (Refusing(7), RuntimeError, "2 numbers")}
    for name, (wrong, kind, words) in hard.items():
        for who in (None, size - 1):  # every rank has the object that does not fit, or one of them
            fresh = {"model": torch.nn.Linear(4, 4), "critic": torch.nn.Linear(4, 3), "counts": Refusing(3),
                     "sampler": hvd.checkpoint.Sampler(range(100)), "other": Refusing(2)}
            fresh["optimizer"] = torch.optim.Adam(fresh["model"].parameters())
            fresh["its_optimizer"] = torch.optim.Adam(fresh["critic"].parameters())
            before = {part: {key: value.clone() for key, value in fresh[part].state_dict().items()}
                      for part in ("model", "critic")}
            if who is None or who == rank:
                fresh[name] = wrong
            with pytest.raises(kind, match=words):
                hvd.checkpoint.restore(f"{folder}/a.h5", **fresh)
            for part, values in before.items():
                if fresh[part] is not wrong:
                    assert all(torch.equal(value, fresh[part].state_dict()[key]) for key, value in values.items()), name
            assert not fresh["optimizer"].state and fresh["counts"].state == [0, 0, 0], name
    fresh = {**saved, "counts": Refusing(3)}
    hvd.checkpoint.restore(f"{folder}/a.h5", **fresh)
    assert fresh["counts"].state == [1, 2, 3]


@pytest.mark.parametrize("sharded", [False, True])
def test_another_optimizer_is_refused_however_long_its_names_are(sharded, folder):
    names = [f"layers_{i}_{'x' * 100}" for i in range(400)]
    model = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.ones(2)) for name in names})
    half = torch.optim.SGD(list(model.values())[:350], 0.1)
    hvd.checkpoint.save(f"{folder}/a.h5", model, half, sharded=sharded)
    with pytest.raises(ValueError, match="another optimizer.*not saved: layers_"):
        hvd.checkpoint.restore(f"{folder}/a.h5", model, torch.optim.SGD(list(model.values()), 0.1))
    hvd.checkpoint.restore(f"{folder}/a.h5", model, half)


@pytest.mark.parametrize("as_object", [False, True])
def test_states_within_lists_and_dicts_keep_their_types(as_object, folder):

    def build():
        parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
        return parameter, torch.optim.SGD([parameter], 0.1)

    parameter, optimizer = build()
    fraction, count = torch.tensor([1 / 3], dtype=torch.float64), torch.tensor([2**24 + 1])
    optimizer.state[parameter] = {"flat": fraction, "list": [fraction, count], "name": "abc", "bytes": b"12",
                                  "dict": {"a": fraction, "deeper": (count, None, 2)},
                                  "hits": collections.Counter(a=3, b=1)}
    model = torch.nn.ParameterDict({"p": parameter})
    given = {"shampoo": optimizer} if as_object else {"optimizer": optimizer}
    hvd.checkpoint.save(f"{folder}/a.h5", model, **given)
    parameter, optimizer = build()
    hvd.checkpoint.restore(f"{folder}/a.h5", torch.nn.ParameterDict({"p": parameter}),
                           **{name: optimizer for name in given})
    state = optimizer.state[parameter]
    for was, now in ((fraction, state["flat"]), (fraction, state["list"][0]), (count, state["list"][1]),
                     (fraction, state["dict"]["a"]), (count, state["dict"]["deeper"][0])):
        assert was.dtype == now.dtype and torch.equal(was, now)
    assert state["dict"]["deeper"][1:] == (None, 2) and state["name"] == "abc" and state["bytes"] == b"12"
    assert state["hits"] == collections.Counter(a=3, b=1)


def test_a_parameter_beside_the_model_shares_no_name_with_one_of_it(folder):

    def build():
        model = torch.nn.Module()
        model.param = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(3)) for _ in range(2)])
        beside = torch.nn.Parameter(torch.zeros(3))
        return model, beside, torch.optim.Adam([model.param[1], beside, model.param[0]], 0.1)

    model, beside, optimizer = build()
    parameters = [model.param[0], model.param[1], beside]
    for i, parameter in enumerate(parameters):
        parameter.grad = torch.full((3,), i + 1.0)
    optimizer.step()
    hvd.checkpoint.save(f"{folder}/a.h5", model, optimizer)
    fresh, its_beside, resumed = build()
    hvd.checkpoint.restore(f"{folder}/a.h5", fresh, resumed)
    for was, now in zip(parameters, [fresh.param[0], fresh.param[1], its_beside]):
        assert torch.equal(optimizer.state[was]["exp_avg"], resumed.state[now]["exp_avg"])


def test_names_that_restore_cannot_give_back_are_refused(folder):
    for extra, given in (({"step": 7}, {}), ({"step": 7}, {"step": 8}), ({"sampler": 1}, {"sampler": Refusing(1)})):
        with pytest.raises(ValueError, match=f"extra has the name '{next(iter(extra))}'"):
            hvd.checkpoint.save(f"{folder}/a.h5", extra=extra, **given)
    hvd.checkpoint.save(f"{folder}/a.h5", extra={"step": 7}, step=7)
    assert hvd.checkpoint.restore(f"{folder}/a.h5") == {"step": 7}


def test_arrays_of_types_that_numpy_lacks_are_refused(folder):
    numpy = pytest.importorskip("numpy")
    types = pytest.importorskip("ml_dtypes")
    with pytest.raises(TypeError, match="bfloat16 .ml_dtypes"):
        hvd.checkpoint.save(f"{folder}/a.h5", extra={"x": numpy.ones(3, dtype=types.bfloat16)})


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_moments_of_adasum_are_saved_in_shards_or_not_at_all(momentum, folder, rank, size):

    def build():
        torch.manual_seed(0)
        model = torch.nn.Linear(6, 3)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1, momentum=momentum),
                                             named_parameters=model.named_parameters(), op=hvd.Adasum)
        return model, optimizer

    def train(model, optimizer, steps):
        for step in steps:
            data = torch.randn(4, 6, generator=torch.Generator().manual_seed(100 * step + rank))
            optimizer.zero_grad()
            model(data).square().sum().backward()
            optimizer.step()
        return model.weight.detach().clone()

    expected = train(*build(), range(6))
    for sharded in (False, True):
        model, optimizer = build()
        train(model, optimizer, range(3))
        if momentum and size > 1 and not sharded:
            with pytest.raises(ValueError, match="Adasum.*sharded=True"):
                hvd.checkpoint.save(f"{folder}/a.h5", model, optimizer)
            continue
        hvd.checkpoint.save(f"{folder}/a.h5", model, optimizer, sharded=sharded)
        model, optimizer = build()
        hvd.checkpoint.restore(f"{folder}/a.h5", model, optimizer)
        assert torch.equal(train(model, optimizer, range(3, 6)), expected)


@pytest.mark.parametrize("stop", [2, 4])  # in the middle of an epoch, and at its end
@pytest.mark.parametrize("workers", [0, 1])
def test_a_model_with_dropout_goes_on_in_the_middle_of_an_epoch(workers, stop, folder, rank, size):
    data = torch.utils.data.TensorDataset(torch.arange(16.0 * size).reshape(-1, 4) / 256)

    def train(until):
        torch.manual_seed(7)
        model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))
        torch.manual_seed(8 + rank)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.05, momentum=0.9),
                                             named_parameters=model.named_parameters())
        sampler = hvd.checkpoint.Sampler(data)
        loader = torch.utils.data.DataLoader(data, batch_size=1, sampler=sampler, num_workers=workers)
        losses, path = {}, f"{folder}/a.h5"
        step = 0
        if os.path.exists(path):
            step = hvd.checkpoint.restore(path, model, optimizer, sampler=sampler)["step"]
        for epoch in range(sampler.epoch, 2):
            sampler.set_epoch(epoch)
            for (batch,) in loader:
                step += 1
                optimizer.zero_grad()
                loss = model(batch).square().mean()
                loss.backward()
                optimizer.step()
                losses[step] = loss.item()
                sampler.advance(len(batch))
                if step == until:
                    hvd.checkpoint.save(path, model, optimizer, step=step, sampler=sampler)
                    return losses
        return losses

    whole = train(None)
    assert len(whole) == 8
    hvd.barrier()
    parts = train(stop)
    hvd.barrier()
    parts.update(train(None))
    assert parts == whole


def test_a_second_sampler_that_begins_later_repeats_no_random_numbers(folder, size):
    path, data = f"{folder}/a.h5", torch.arange(8 * size)

    def train(until):
        torch.manual_seed(7)
        samplers = [hvd.checkpoint.Sampler(data) for _ in range(2)]
        first, second = (torch.utils.data.DataLoader(data, batch_size=1, sampler=sampler, generator=own)
                         for sampler, own in zip(samplers, (None, torch.Generator())))
        numbers, others, step = {}, iter(second), 0
        if os.path.exists(path):
            step = hvd.checkpoint.restore(path, one=samplers[0], two=samplers[1])["step"]
        for batch in first:
            step += 1
            numbers[step] = batch.item(), torch.rand(1).item()
            samplers[0].advance(1)
            if step % 2 == 0:
                numbers[step] += (next(others).item(),)
                samplers[1].advance(1)
            if step == until:
                hvd.checkpoint.save(path, step=step, one=samplers[0], two=samplers[1])
                return numbers
        return numbers

    whole = train(None)
    assert len(whole) == 8
    hvd.barrier()
    parts = train(4)
    hvd.barrier()
    parts.update(train(None))
    assert parts == whole


def test_a_folder_with_files_of_others_has_no_checkpoint_yet(folder, rank):
    if rank == 0:
        with open(f"{folder}/data.h5", "wb") as file:
            file.write(b"\x89HDF\r\n\x1a\n of another program")
    hvd.barrier()
    with hvd.checkpoint.Checkpointer(folder, torch.nn.Linear(2, 2), keep=1, asynchronous=False) as checkpointer:
        assert checkpointer.restore() == {"step": None} and checkpointer.latest() is None
        checkpointer.save(1)
        hvd.barrier()
        if rank == 0:
            shutil.copy(f"{folder}/step-000000000001.h5", f"{folder}/step-best.h5")
        hvd.barrier()
        checkpointer.save(2)
        hvd.barrier()
        assert sorted(name for name in os.listdir(folder) if name.endswith(".h5")) == \
            ["data.h5", "step-000000000002.h5", "step-best.h5"]
        hvd.barrier()
        if rank == 0:
            for name in ("step-000000000002.h5", "step-best.h5"):
                os.truncate(f"{folder}/{name}", 700)
        hvd.barrier()
        with pytest.raises(OSError, match="no whole checkpoint.*damaged"):
            checkpointer.restore()  # training anew would lose what people may still save
        assert checkpointer.latest() is None


@pytest.mark.parametrize("sharded", [False, True])
def test_a_checkpointer_stays_in_its_folder_when_the_program_leaves(sharded, folder, rank):
    before = os.getcwd()
    os.makedirs(f"{folder}/elsewhere", exist_ok=True)
    try:
        os.chdir(folder)
        with hvd.checkpoint.Checkpointer("run" if rank == 0 else "./run", torch.nn.Linear(2, 2),
                                         sharded=sharded) as checkpointer:
            os.chdir(f"{folder}/elsewhere")
            checkpointer.save(1)
            assert checkpointer.latest() == f"{folder}/run/step-000000000001.h5"
    finally:
        os.chdir(before)


@pytest.mark.parametrize("sharded", [False, True])
def test_a_path_may_be_of_any_bytes(sharded, folder):
    path = os.fsencode(folder) + b"/gr\xf6\xdfe"
    model = torch.nn.Linear(2, 2)
    with hvd.checkpoint.Checkpointer(path, model, sharded=sharded) as checkpointer:
        checkpointer.save(3)
        assert os.fsencode(checkpointer.latest()) == path + b"/step-000000000003.h5"
        assert checkpointer.restore()["step"] == 3
    assert hvd.checkpoint.restore(os.fsdecode(path), model)["step"] == 3
    with pytest.raises(OSError, match="is not there"):
        hvd.checkpoint.save(path + b"/no/such.h5", model, sharded=sharded)
    assert not os.path.exists(path + b"/no")
