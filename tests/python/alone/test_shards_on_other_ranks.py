"""A job with another number of ranks, on other nodes, restores a checkpoint in shards. Here the ranks are threads of
one process and exchange Python objects; the files are real."""
import os
import re
import threading

import pytest
import torch

import horovod.torch as hvd
from horovod.checkpoint import collective, resharded, restoring, sharded

LIMIT_SECONDS = 100


class Ranks:
    """Runs a function in threads, each of which is a rank. `per_node` ranks share a made-up host."""

    def __init__(self, monkeypatch):
        self._own = threading.local()
        for module in (collective, resharded, restoring, sharded):
            for name, value in (("rank", lambda: self._own.rank), ("size", lambda: self._size),
                                ("allgather_object", self._allgather), ("_send", self._send), ("share", self._share)):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, value)
        monkeypatch.setattr(sharded.socket, "gethostname", lambda: f"node-{self._own.rank // self._per_node}")

    def run(self, size, do, per_node=2):
        self._size, self._per_node = size, per_node
        self._meeting, self._table = threading.Barrier(size, timeout=LIMIT_SECONDS), [None] * size
        results = [None] * size

        def be(rank):
            self._own.rank = rank
            try:
                results[rank] = do(rank)
            except Exception as error:
                results[rank] = error
                self._meeting.abort() if isinstance(error, AssertionError) else None

        threads = [threading.Thread(target=be, args=(rank,)) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, threading.BrokenBarrierError):
                raise result
        return results

    def _allgather(self, value, name=None):
        self._table[self._own.rank] = value
        self._meeting.wait()
        values = list(self._table)
        self._meeting.wait()
        return values

    def _send(self, what, data):
        nothing = torch.empty(0, dtype=torch.uint8)
        return [each.get(self._own.rank, nothing).clone() for each in self._allgather(data)]

    def _share(self, value=None):
        return self._allgather(value)[0]


@pytest.fixture
def ranks(monkeypatch):
    hvd.init()
    return Ranks(monkeypatch)


class Model(torch.nn.Module):
    """A model of six layers of which every rank has some, a layer that all ranks have, and a table of 12 rows of which
    every rank has a slice. The values of each tensor show which tensor it is."""

    def __init__(self, rank, size):
        super().__init__()
        own = [layer for layer in range(6) if layer * size // 6 == rank]
        self.rows = range(12 * rank // size, 12 * (rank + 1) // size)
        self.layers = torch.nn.ModuleDict({str(layer): torch.nn.Linear(3, layer + 1) for layer in own})
        self.shared = torch.nn.Linear(5, 4).to(torch.bfloat16)
        self.table = torch.nn.Parameter(torch.zeros(len(self.rows), 7))
        self.register_buffer("scale", torch.tensor(0.0))

    def wanted(self, name):
        if name == "table":
            return torch.tensor([[100.0 * row + column for column in range(7)] for row in self.rows])
        own = dict(self.named_parameters())[name]
        layer = int(name.split(".")[1]) if name.startswith("layers") else 9
        return torch.full(own.shape, layer + (0.5 if "bias" in name else 0.25), dtype=own.dtype)


class Training:
    def __init__(self, rank, size):
        self.rank, self.model = rank, Model(rank, size)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.25)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 10)

    def save(self, path, **options):
        for name, parameter in self.model.named_parameters():
            parameter.data.copy_(self.model.wanted(name))
            parameter.grad = torch.zeros_like(parameter)
        self.model.scale.fill_(3)
        self.optimizer.step()
        for name, parameter in self.model.named_parameters():
            parameter.data.copy_(self.model.wanted(name))
            self.optimizer.state[parameter]["exp_avg"].copy_(self.model.wanted(name) + 64)
        self.scheduler.step()
        hvd.checkpoint.save(path, self.model, self.optimizer, step=8, scheduler=self.scheduler,
                            extra={"of": self.rank}, random_numbers=False, **options)

    def restore(self, path, **options):
        return hvd.checkpoint.restore(path, self.model, self.optimizer, scheduler=self.scheduler, **options)

    def check(self):
        for name, parameter in self.model.named_parameters():
            assert torch.equal(parameter, self.model.wanted(name)), (self.rank, name, parameter)
            state = self.optimizer.state[parameter]
            assert torch.equal(state["exp_avg"], self.model.wanted(name) + 64), (self.rank, name, state)
            assert state["step"] == 1
        assert self.model.scale == 3 and self.scheduler.last_epoch == 1
        assert self.optimizer.param_groups[0]["betas"] == (0.9, 0.999)


def save(ranks, size, path, per_node=2, **options):
    ranks.run(size, lambda rank: Training(rank, size).save(path, **options), per_node)


def restore(ranks, size, path, per_node=2, change=None, **options):
    def one(rank):
        training = Training(rank, size)
        if change:
            change(training)
        rest = training.restore(path, **options)
        training.check()
        return rest

    return ranks.run(size, one, per_node)


@pytest.mark.parametrize("compression", [None, "gzip:1"])
def test_any_number_of_ranks_on_any_nodes_goes_on(ranks, tmp_path, compression):
    path = tmp_path / "run.h5"
    save(ranks, 4, path, sharded={"table": 0}, compression=compression)
    assert len(os.listdir(f"{path}.shards")) == 2
    for size in (1, 2, 3, 5, 6, 9):
        for per_node in (1, 2, 9):
            assert restore(ranks, size, path, per_node) == [{"step": 8, "of": 0}] * size
    assert restore(ranks, 4, path, per_node=3) == [{"step": 8, "of": rank} for rank in range(4)]


def test_what_one_rank_had_is_shared_out(ranks, tmp_path):
    save(ranks, 1, tmp_path / "run.h5", sharded={"table": 0})
    restore(ranks, 5, tmp_path / "run.h5")


def without_last_layer(training):
    if "5" in training.model.layers:
        del training.model.layers["5"]
    training.optimizer = torch.optim.Adam(training.model.parameters())


def with_another_table(training):
    training.model.table = torch.nn.Parameter(torch.zeros(5, 7))


def with_new_layer(training):
    training.model.new = torch.nn.Parameter(torch.zeros(5, 7))


def with_two_groups(training):
    training.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(2))]})


@pytest.mark.parametrize("split, change, why", [
    (True, None, "model's table was not the same in ranks 0 and 1.*Start 4 ranks"),
    ({"table": 0}, without_last_layer, "layers.5.bias was saved, and no rank of this job has it"),
    ({"table": 0}, with_another_table, "the slices of the model's table had 12 entries along dimension 0"),
    ({"table": 0}, with_new_layer, "another model than this one: not saved: new"),
    ({"table": 0}, with_two_groups, "1 parameter groups were saved, this optimizer has 2"),
])
def test_what_cannot_be_shared_out_is_refused_before_anything_is_loaded(ranks, tmp_path, split, change, why):
    path = tmp_path / "run.h5"
    save(ranks, 4, path, sharded=split)

    def one(rank):
        training = Training(rank, 2)
        if change:
            change(training)
        before = [parameter.clone() for parameter in training.model.parameters()]
        try:
            training.restore(path)
        except ValueError as error:
            text = str(error)
        assert all(torch.equal(one, other) for one, other in zip(before, training.model.parameters()))
        return text

    for text in ranks.run(2, one):
        assert re.search(why, text), text


def test_slices_of_replicas_are_refused_when_their_sum_differs(ranks, tmp_path):
    path = tmp_path / "run.h5"
    for size, per_rank in ((4, 6), (2, 6)):
        def one(rank):
            model = torch.nn.Linear(3, per_rank)
            if size == 4:
                hvd.checkpoint.save(path, model, sharded={"weight": 0, "bias": 0}, random_numbers=False)
            else:
                with pytest.raises(ValueError, match="had 24 entries along dimension 0 .* have 12 in this job"):
                    hvd.checkpoint.restore(path, model)
        ranks.run(size, one)


def test_a_part_of_the_state_may_be_left_out(ranks, tmp_path):
    path = tmp_path / "run.h5"
    save(ranks, 4, path, sharded={"table": 0})
    assert ranks.run(3, lambda rank: hvd.checkpoint.restore(path)["step"]) == [8, 8, 8]

    def one(rank):
        training = Training(rank, 2)
        training.model.new = torch.nn.Parameter(torch.ones(5))
        assert hvd.checkpoint.restore(path, training.model, strict=False)["of"] == 0
        assert (training.model.new == 1).all()
        assert torch.equal(training.model.table, training.model.wanted("table"))

    ranks.run(2, one)


@pytest.mark.parametrize("given, why", [
    (lambda rank: {"tabel": 0}, "expected a name of the model"),
    (lambda rank: {"table": 2}, r"a dimension of that tensor, whose shape is \(6, 7\)"),
    (lambda rank: {"table": rank}, "along one dimension"),
    (lambda rank: {"table": "rows"}, "a dimension of that tensor"),
])
def test_a_slice_that_is_not_one_is_refused_when_saving(ranks, tmp_path, given, why):
    def one(rank):
        with pytest.raises(ValueError, match=why):
            Training(rank, 2).save(tmp_path / "run.h5", sharded=given(rank))

    ranks.run(2, one)
    assert os.listdir(tmp_path) == []


def test_a_damaged_shard_is_passed_over_for_the_generation_before(ranks, tmp_path, capfd):
    path = tmp_path / "run.h5"
    save(ranks, 4, path, sharded={"table": 0})
    before = set(os.listdir(f"{path}.shards"))
    ranks.run(4, lambda rank: hvd.checkpoint.save(path, torch.nn.Linear(rank + 1, 1), step=9, sharded=True,
                                                  random_numbers=False))
    for name in set(os.listdir(f"{path}.shards")) - before:
        os.truncate(f"{path}.shards/{name}", 3000)
    assert restore(ranks, 3, path) == [{"step": 8, "of": 0}] * 3
    assert "run.h5.previous instead" in capfd.readouterr().err
