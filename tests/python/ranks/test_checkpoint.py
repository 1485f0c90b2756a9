"""Tests of hvd.checkpoint in jobs of several ranks."""
import collections
import math
import os
import random
import shutil
import tempfile
import warnings

import pytest
import torch

import horovod.torch as hvd


@pytest.fixture
def folder(rank):
    path = hvd.broadcast_object(tempfile.mkdtemp(prefix="horovod-checkpoint-") if rank == 0 else None)
    yield path
    hvd.barrier()
    if rank == 0:
        shutil.rmtree(path)


def make_model(seed=3):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 40), torch.nn.BatchNorm1d(40), torch.nn.Linear(40, 3))


def train(model, optimizer, steps, begin, scheduler=None):
    for step in range(begin, begin + steps):
        data = torch.randn(8, 6, generator=torch.Generator().manual_seed(step))

        def closure():
            optimizer.zero_grad()
            loss = model(data).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        if scheduler is not None:
            scheduler.step()


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[key], right[key]) for key in left)


OPTIMIZERS = {
    "SGD":
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "SGD without momentum":
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "Adam":
        lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "Adam with a tensor for a rate":
        lambda parameters: torch.optim.Adam(parameters, lr=torch.tensor(0.01), foreach=False),
    "AdamW":
        torch.optim.AdamW,
    "NAdam":
        torch.optim.NAdam,
    "RAdam":
        torch.optim.RAdam,
    "Adamax":
        torch.optim.Adamax,
    "Adagrad":
        torch.optim.Adagrad,
    "Adadelta":
        torch.optim.Adadelta,
    "RMSprop":
        lambda parameters: torch.optim.RMSprop(parameters, momentum=0.5, centered=True),
    "Rprop":
        torch.optim.Rprop,
    "ASGD":
        torch.optim.ASGD,
    "LBFGS":
        lambda parameters: torch.optim.LBFGS(parameters, history_size=3, max_iter=2),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_training_goes_on_to_the_same_bits_with_any_optimizer(kind, folder):
    model = make_model()
    optimizer = OPTIMIZERS[kind](model.parameters())
    train(model, optimizer, 3, 0)
    hvd.checkpoint.save(f"{folder}/a.h5", model, optimizer, step=3)
    train(model, optimizer, 3, 3)
    fresh = make_model(seed=4)
    resumed = OPTIMIZERS[kind](fresh.parameters())
    assert hvd.checkpoint.restore(f"{folder}/a.h5", fresh, resumed) == {"step": 3}
    train(fresh, resumed, 3, 3)
    assert same(model.state_dict(), fresh.state_dict())


def test_training_goes_on_with_a_distributed_optimizer_and_everything_else(folder, rank):
    def build(seed):
        model = make_model(seed)
        optimizer = hvd.DistributedOptimizer(torch.optim.AdamW([{"params": list(model[0].parameters()), "lr": 0.02},
                                                                {"params": list(model[2].parameters())}]),
                                             named_parameters=model.named_parameters())
        warmup = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=2)
        steps = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5, 5])
        return model, optimizer, torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, steps], [2])

    model, optimizer, scheduler = build(3)
    train(model, optimizer, 4, 0, scheduler)
    hvd.checkpoint.save(f"{folder}/a.h5", model, optimizer, step=4, scheduler=scheduler, extra={"loss": 0.25})
    train(model, optimizer, 4, 4, scheduler)
    fresh, resumed, later = build(4)
    rest = hvd.checkpoint.restore(f"{folder}/a.h5", fresh, resumed, scheduler=later)
    assert rest == {"step": 4, "loss": 0.25}
    train(fresh, resumed, 4, 4, later)
    assert same(model.state_dict(), fresh.state_dict())
    assert later.get_last_lr() == scheduler.get_last_lr()


SCHEDULERS = [
    lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2),
    lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20),
    lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3),
    lambda optimizer: torch.optim.lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, 3),
    lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
]


@pytest.mark.parametrize("make", SCHEDULERS)
def test_schedulers_go_on(make, folder):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = make(optimizer)
    train(model, optimizer, 3, 0, scheduler)
    hvd.checkpoint.save(f"{folder}/a.h5", model, optimizer, scheduler=scheduler)
    train(model, optimizer, 4, 3, scheduler)
    fresh = make_model()
    resumed = torch.optim.SGD(fresh.parameters(), lr=0.1, momentum=0.9)
    later = make(resumed)
    hvd.checkpoint.restore(f"{folder}/a.h5", fresh, resumed, scheduler=later)
    train(fresh, resumed, 4, 3, later)
    assert same(model.state_dict(), fresh.state_dict())
    assert later.get_last_lr() == scheduler.get_last_lr()


def test_every_rank_goes_on_with_random_numbers_of_its_own(folder, rank):
    numpy = pytest.importorskip("numpy")
    torch.manual_seed(100 + rank)
    random.seed(200 + rank)
    numpy.random.seed(300 + rank)
    hvd.checkpoint.save(f"{folder}/a.h5")
    first = torch.rand(4), random.random(), numpy.random.rand(), random.gauss(0, 1)
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)
    hvd.checkpoint.restore(f"{folder}/a.h5")
    again = torch.rand(4), random.random(), numpy.random.rand(), random.gauss(0, 1)
    assert torch.equal(first[0], again[0]) and first[1:] == again[1:]
    hvd.checkpoint.restore(f"{folder}/a.h5", random_numbers=False)
    assert not torch.equal(first[0], torch.rand(4))


def values():
    numpy = pytest.importorskip("numpy")
    generator = torch.Generator().manual_seed(5)
    dense = torch.randn(6, 4, generator=generator)
    return {
        "none": None,
        "yes": True,
        "no": False,
        "whole": -7,
        "huge": 1 << 100,
        "real": 0.1,
        "infinite": math.inf,
        "complex": 1 + 2j,
        "text": "größer\n\"quoted\"",
        "zero byte": "a\0b",
        "odd": "\ud800",
        "long": "x" * 100000,
        "": "empty",
        "bytes": b"\0\1\2",
        "no bytes": b"",
        "a/b.c": 1,
        "kind": 2,
        "dtype": 3,
        "unit": 4,
        ".": 5,
        "..": 6,
        "100%": 7,
        "%2F": 8,
        "list": [1, "a", None, [2.5, [True]]],
        "empty list": [],
        "tuple": (1, 2.0),
        "ints": [3, 1, 2],
        "floats": (0.5, 0.25),
        "bools": [True, False],
        "texts": ["a", "b c", ""],
        "lines": ["a\nb", "c"],
        "set": {3, 4},
        "size": torch.Size([2, 3]),
        "by number": {3: "c", -1: "a"},
        "ordered": collections.OrderedDict(b=1, a=2),
        "counter": collections.Counter("hello"),
        "dtype of": torch.bfloat16,
        "device": torch.device("cpu"),
        "many": {f"k{i}": i for i in range(400)},
        "array": numpy.arange(6, dtype=numpy.uint32).reshape(2, 3),
        "number": numpy.float32(1.5),
        "empty array": numpy.zeros((0, 2)),
        "scalar": torch.tensor(3.5, dtype=torch.float64),
        "nothing": torch.empty(3, 0, 2),
        "transposed": dense.t(),
        "sparse": dense.relu().to_sparse(),
        "rows": dense.relu().to_sparse_csr(),
        "conjugate": torch.randn(3, dtype=torch.cfloat).conj(),
        "flags": dense > 0,
        "half": dense.half(),
        "brain": dense.bfloat16(),
        "wide": dense.double(),
        "small": dense.to(torch.int8),
        "fraction": dense.to(torch.float8_e4m3fn),
        "large": torch.randn(700, 900, generator=generator),
    }


def check_equal(left, right, where="extra"):
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype and left.shape == right.shape and left.layout == right.layout, where
        if left.layout != torch.strided:
            left, right = left.to_dense(), right.to_dense()
        left, right = left.resolve_conj().contiguous(), right.contiguous()
        assert left.numel() == 0 or torch.equal(
            left.reshape(-1).view(torch.uint8),
            right.reshape(-1).view(torch.uint8)), where
    elif type(left).__module__ == "numpy":
        assert type(left) is type(right) and left.dtype == right.dtype and left.shape == right.shape, where
        assert (left == right).all(), where
    elif isinstance(left, dict):
        assert type(left) is type(right) and left.keys() == right.keys(), where
        for key in left:
            check_equal(left[key], right[key], f"{where}/{key}")
    elif isinstance(left, (list, tuple)):
        assert type(left) is type(right) and len(left) == len(right), where
        for i, (one, other) in enumerate(zip(left, right)):
            check_equal(one, other, f"{where}/{i}")
    else:
        assert type(left) is type(right) and left == right, where


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_every_kind_of_value_comes_back_on_all_ranks(compression, folder, rank):
    torch.manual_seed(7)
    given = values()
    # Only the content that rank 0 gives is saved.
    hvd.checkpoint.save(f"{folder}/a.h5", extra=given if rank == 0 else None, compression=compression)
    found = hvd.checkpoint.restore(f"{folder}/a.h5")
    assert found.pop("step") is None
    check_equal(given, found)


def test_what_has_no_place_is_refused_by_name_on_all_ranks(folder):
    for value, word in (({"f": print}, "/extra/f is a builtins.builtin_function_or_method"),
                        ({1: 1, "a": 2}, "has the key 1"), (torch.empty(2, device="meta"), "without plain memory")):
        with pytest.raises(TypeError, match=word):
            hvd.checkpoint.save(f"{folder}/a.h5", extra=value)
    circle = []
    circle.append(circle)
    with pytest.raises(TypeError, match="contain itself"):
        hvd.checkpoint.save(f"{folder}/a.h5", extra=circle)
    with pytest.raises(ValueError, match="a name of the checkpoint's own"):
        hvd.checkpoint.save(f"{folder}/a.h5", ranks=make_model())
    assert hvd.checkpoint.latest(folder) is None


def test_only_rank_0_opens_the_file(folder, rank):
    hvd.checkpoint.save(f"{folder}/a.h5", make_model(), step=1)
    # The folder need not exist on other ranks.
    path = f"{folder}/a.h5" if rank == 0 else "/not/there"
    model = make_model(seed=9)
    assert hvd.checkpoint.restore(path, model)["step"] == 1
    assert same(model.state_dict(), make_model().state_dict())


def test_another_model_is_refused_by_name_and_nothing_is_changed(folder, size):
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer, 1, 0)
    hvd.checkpoint.save(f"{folder}/a.h5", model, optimizer)
    wide = torch.nn.Sequential(torch.nn.Linear(6, 41), torch.nn.BatchNorm1d(41), torch.nn.Linear(41, 3))
    before = {name: value.clone() for name, value in wide.state_dict().items()}
    with pytest.raises(ValueError, match=r"0.weight was of shape \[40, 6\], and is \[41, 6\] here"):
        hvd.checkpoint.restore(f"{folder}/a.h5", wide)
    with pytest.raises(ValueError, match="not in this model: 2.bias, 2.weight"):
        hvd.checkpoint.restore(f"{folder}/a.h5", make_model()[:2])
    with pytest.raises(ValueError, match="another optimizer.*parameter groups"):
        hvd.checkpoint.restore(f"{folder}/a.h5", make_model(), torch.optim.Adam(
            [{"params": [torch.nn.Parameter(torch.zeros(1))]}, {"params": [torch.nn.Parameter(torch.zeros(1))]}]))
    with pytest.raises(ValueError, match="has no scheduler"):
        hvd.checkpoint.restore(f"{folder}/a.h5", make_model(), scheduler=torch.nn.Linear(1, 1))
    assert same(before, wide.state_dict())


def test_a_difference_on_one_rank_is_refused_on_all(folder, rank, size):
    hvd.checkpoint.save(f"{folder}/a.h5", make_model())
    model = make_model()
    if rank == size - 1:
        model = model[:2]
    with pytest.raises(ValueError, match=f"rank {size - 1}" if size > 1 else "another model"):
        hvd.checkpoint.restore(f"{folder}/a.h5", model)


def test_what_fits_is_loaded_where_that_is_wanted(folder):
    hvd.checkpoint.save(f"{folder}/a.h5", make_model())
    short = make_model(seed=8)[:2]
    hvd.checkpoint.restore(f"{folder}/a.h5", short, strict=False)
    assert torch.equal(short[0].weight, make_model()[0].weight)


def test_other_precision_and_compiled_models_are_loaded(folder):
    compiled = torch.nn.Module()  # stands in for torch.compile(), whose import takes seconds
    compiled._orig_mod = make_model()
    hvd.checkpoint.save(f"{folder}/a.h5", compiled)
    half = make_model(seed=8).bfloat16()
    hvd.checkpoint.restore(f"{folder}/a.h5", half)
    assert torch.equal(half[0].weight, make_model()[0].weight.bfloat16())


def test_moments_keep_their_precision(folder):
    def build():
        model = make_model().bfloat16()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return model, optimizer

    model, optimizer = build()
    weight = model[0].weight
    optimizer.state[weight]["master"] = torch.full(weight.shape, 1.00001)
    hvd.checkpoint.save(f"{folder}/a.h5", model, optimizer)
    model, optimizer = build()
    hvd.checkpoint.restore(f"{folder}/a.h5", model, optimizer)
    assert torch.equal(optimizer.state[model[0].weight]["master"], torch.full(weight.shape, 1.00001))


def test_a_parameter_that_moved_is_found_by_its_name(folder):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer, 2, 0)
    hvd.checkpoint.save(f"{folder}/a.h5", model, optimizer)
    fresh = make_model()
    other_order = torch.optim.SGD(list(fresh.parameters())[::-1], lr=0.1, momentum=0.9)
    hvd.checkpoint.restore(f"{folder}/a.h5", fresh, other_order)
    for one, other in zip(model.parameters(), fresh.parameters()):
        assert torch.equal(optimizer.state[one]["momentum_buffer"], other_order.state[other]["momentum_buffer"])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_checkpointer_saves_in_time_and_keeps_the_newest(asynchronous, folder, rank):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hvd.checkpoint.Checkpointer(f"{folder}/run", model, optimizer, every_steps=3, keep=2,
                                     asynchronous=asynchronous) as checkpointer:
        assert checkpointer.restore() == {"step": None}
        saved = []
        for step in range(1, 14):
            train(model, optimizer, 1, step)
            if checkpointer.step(step, extra={"half": step / 2}):
                saved.append(step)
        assert saved == [3, 6, 9, 12]
        at_12 = checkpointer.latest()
        assert at_12 == f"{folder}/run/step-000000000012.h5"
        if rank == 0:
            assert sorted(name for name in os.listdir(f"{folder}/run") if name.endswith(".h5")) == \
                ["step-000000000009.h5", "step-000000000012.h5"]
            assert (checkpointer.snapshot_bytes > 0) == asynchronous
        fresh = make_model(seed=5)
        assert hvd.checkpoint.restore(f"{folder}/run", fresh)["half"] == 6
    with hvd.checkpoint.Checkpointer(f"{folder}/run", fresh, every_steps=3) as again:
        assert again.restore()["step"] == 12
        assert not again.step(13) and not again.step(14) and again.step(15)


def test_a_snapshot_is_of_its_step_while_the_training_goes_on(folder):
    model = torch.nn.Linear(1000, 1000)
    with hvd.checkpoint.Checkpointer(folder, model, every_steps=1) as checkpointer:
        for step in range(1, 4):
            model.weight.data.fill_(step)
            checkpointer.step(step)
            model.weight.data.fill_(-1)  # these changes happen while the checkpoint is being written
    for step in range(1, 4):
        hvd.checkpoint.restore(f"{folder}/step-{step:012d}.h5", model)
        assert (model.weight == step).all()


def test_a_checkpointer_saves_by_the_clock_of_rank_0(folder):
    with hvd.checkpoint.Checkpointer(folder, make_model(), every_minutes=1e-9) as checkpointer:
        assert checkpointer.step(1) and checkpointer.step(2)
    with hvd.checkpoint.Checkpointer(folder, make_model(), every_minutes=1e9) as checkpointer:
        assert not any(checkpointer.step(step) for step in range(50))


def test_an_error_of_an_asynchronous_write_comes_with_the_next_call(folder, rank):
    checkpointer = hvd.checkpoint.Checkpointer(f"{folder}/run", make_model(), every_steps=1)
    checkpointer.save(1)
    checkpointer.wait()
    hvd.barrier()
    if rank == 0:
        shutil.rmtree(f"{folder}/run")
    checkpointer.save(2)
    with pytest.raises(OSError, match="run"):
        checkpointer.wait()
    checkpointer.close()


def test_steps_that_begin_anew_are_the_newest(folder):
    model = make_model()
    with hvd.checkpoint.Checkpointer(folder, model, every_steps=2, keep=5) as checkpointer:
        for step in (1, 2, 3, 4, 1, 2, 3):
            checkpointer.step(step)
        assert checkpointer.latest().endswith("step-000000000003.h5")


def test_a_sampler_gives_each_sample_once_and_finds_its_position(size):
    data = range(103)
    sampler = hvd.checkpoint.Sampler(data, seed=4)
    sampler.set_epoch(2)
    mine = list(sampler)
    everybody = [index for part in hvd.allgather_object(mine) for index in part]
    assert sorted(set(everybody)) == list(data) and len(everybody) == len(sampler) * size
    sampler.advance(10)
    resumed = hvd.checkpoint.Sampler(data)
    resumed.load_state_dict(sampler.state_dict())
    resumed.set_epoch(2)
    assert list(resumed) == mine[10:]
    with pytest.raises(ValueError, match="103 samples"):
        hvd.checkpoint.Sampler(range(5)).load_state_dict(sampler.state_dict())


@pytest.mark.parametrize("drops_the_rest", [False, True])
def test_an_epoch_that_begins_without_set_epoch_is_an_error(size, drops_the_rest):
    data = range(8 * size + (3 if drops_the_rest else 0))
    sampler = hvd.checkpoint.Sampler(data)
    loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler, drop_last=drops_the_rest)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            sampler.advance(len(batch))
    with pytest.raises(RuntimeError, match="epoch 1 have been used: call sampler.set_epoch()"):
        next(iter(loader))
    restored = hvd.checkpoint.Sampler(data)
    restored.load_state_dict(sampler.state_dict())
    assert len(list(restored)) == len(sampler)  # a restored training may begin at the end of an epoch


def told_of_parameters(folder, model):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        hvd.checkpoint.save(f"{folder}/a.h5", model, step=1)
    return [str(each.message) for each in told if "differ between ranks" in str(each.message)]


@pytest.mark.parametrize("own", ["expert", "names", "nothing", "statistics"])
def test_parameters_that_a_rank_has_of_its_own_are_told_before_they_are_lost(folder, rank, size, own):
    model = make_model()
    with torch.no_grad():
        if own == "expert":
            model[2].weight += rank
        elif own == "names" and rank > 0:
            model.expert = torch.nn.Linear(2, 2)
        elif own == "statistics":
            model[1].running_mean += rank
    expected = own in ("expert", "names") and size > 1 and rank == 0
    told = told_of_parameters(folder, model)
    assert len(told) == expected, told
    if told and own == "expert":
        assert "'2.weight'" in told[0] and "sharded=True" in told[0]
    assert not told_of_parameters(folder, model), "once is enough"
    assert not told_of_parameters(folder, model if rank == 0 else None)
