"""Checkpoints of models that are divided among the ranks."""
import os
import resource
import shutil
import tempfile

import pytest
import torch

import horovod.torch as hvd
from horovod.checkpoint import collective, sharded


@pytest.fixture
def folder(rank):
    path = hvd.broadcast_object(tempfile.mkdtemp(prefix="horovod-shards-") if rank == 0 else None)
    yield path
    hvd.barrier()
    if rank == 0:
        shutil.rmtree(path)


@pytest.fixture(params=["one node", "a node for each rank"])
def nodes(request, monkeypatch, rank):
    if request.param != "one node":
        monkeypatch.setattr(sharded.socket, "gethostname", lambda: f"node-of-{rank}")
    return request.param


def make(rank, seed=0):
    torch.manual_seed(100 * seed + rank)
    model = torch.nn.Linear(40 + rank, 30)  # a different model on each rank
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    return model, optimizer


def train(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2, model.in_features)).sum().backward()
    optimizer.step()


def test_every_rank_gets_its_part_back(folder, nodes, rank, size):
    model, optimizer = make(rank)
    train(model, optimizer)
    hvd.checkpoint.save(f"{folder}/a.h5", model, optimizer, step=7, extra={"mine": rank}, sharded=True)
    numbers = torch.rand(3)
    train(model, optimizer)
    fresh, resumed = make(rank, seed=1)
    assert hvd.checkpoint.restore(f"{folder}/a.h5", fresh, resumed) == {"step": 7, "mine": rank}
    assert torch.equal(torch.rand(3), numbers)
    train(fresh, resumed)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), fresh.parameters()))
    files = sorted(os.listdir(f"{folder}/a.h5.shards"))
    assert len([name for name in files if name.endswith(".h5")]) == (1 if nodes == "one node" else size), files
    assert len(files) == len([name for name in files if name.endswith(".h5")]), files


def test_a_damaged_shard_is_passed_over_for_the_generation_before(folder, nodes, rank, size):
    model, optimizer = make(rank)
    for step in (1, 2, 3):
        model.weight.data.fill_(step)
        hvd.checkpoint.save(f"{folder}/a.h5", model, step=step, sharded=True)
    count = 1 if nodes == "one node" else size
    assert len(os.listdir(f"{folder}/a.h5.shards")) == 2 * count  # the shards of two generations
    newest = max((f"{folder}/a.h5.shards/{name}" for name in os.listdir(f"{folder}/a.h5.shards")), key=os.path.getmtime)
    newest = hvd.broadcast_object(newest)
    hvd.barrier()
    if rank == 0:
        with open(newest, "r+b") as file:
            file.truncate(3000)
    hvd.barrier()
    assert hvd.checkpoint.restore(f"{folder}/a.h5", model)["step"] == 2
    assert (model.weight == 2).all()


def test_a_refused_shard_leaves_what_was_there(folder, nodes, rank, size):
    model, _ = make(rank)
    hvd.checkpoint.save(f"{folder}/a.h5", model, step=1, sharded=True)
    with pytest.raises(TypeError, match="no place in a checkpoint"):
        hvd.checkpoint.save(f"{folder}/a.h5", model, extra=print if rank == size - 1 else 1, sharded=True)
    with pytest.raises(ValueError, match="zip"):
        hvd.checkpoint.save(f"{folder}/a.h5", model, compression="zip", sharded=True)
    assert hvd.checkpoint.restore(f"{folder}/a.h5", model)["step"] == 1
    assert hvd.checkpoint.latest(folder) == f"{folder}/a.h5"


def test_a_shard_that_has_no_room_leaves_nothing_beside_those_before(folder, nodes, rank):
    model, _ = make(rank)
    hvd.checkpoint.save(f"{folder}/a.h5", model, step=1, sharded=True)
    hvd.barrier()
    before = sorted(os.listdir(f"{folder}/a.h5.shards"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match="no room"):
            hvd.checkpoint.save(f"{folder}/a.h5", model, step=2, sharded=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    hvd.barrier()
    assert sorted(os.listdir(f"{folder}/a.h5.shards")) == before  # no lease of the shard either


def test_a_job_that_loses_its_lease_while_it_writes_shards_is_told_so(folder, nodes, rank, monkeypatch):
    model, _ = make(rank)
    write = collective.write

    def write_late(*arguments):
        if rank == 0:  # another job takes this one for dead, and removes what no index names
            with open(f"{folder}/.a.h5.lease", "w") as lease:
                lease.write("Horovod\nhost elsewhere\nprocess 7\nrenewals 0\n")
            os.rename(f"{folder}/a.h5.shards", f"{folder}/removed")
        write(*arguments)

    monkeypatch.setattr(collective, "write", write_late)
    with pytest.raises(ValueError, match="this job has lost .*to process 7 on host elsewhere"):
        hvd.checkpoint.save(f"{folder}/a.h5", model, step=1, sharded=True)
    hvd.barrier()
    assert not os.path.exists(f"{folder}/a.h5")


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_checkpointer_keeps_the_newest_shards(asynchronous, folder, nodes, rank):
    model, optimizer = make(rank)
    with hvd.checkpoint.Checkpointer(folder, model, optimizer, every_steps=1, keep=2, asynchronous=asynchronous,
                                     sharded=True) as checkpointer:
        for step in (1, 2, 3):
            model.weight.data.fill_(step)
            checkpointer.step(step)
            model.weight.data.fill_(-1)  # the written checkpoint has the values at the time of the save, not those set
                                         # here
            hvd.allreduce(torch.ones(3), name="training goes on")
        checkpointer.wait()
        hvd.barrier()
        assert sorted(name for name in os.listdir(folder) if name.endswith(".shards")) == \
            ["step-000000000002.h5.shards", "step-000000000003.h5.shards"]
        assert checkpointer.restore()["step"] == 3
        assert (model.weight == 3).all()
        leads = nodes != "one node" or rank == 0
        assert (checkpointer.snapshot_bytes > 0) == leads


def test_a_shard_that_fails_while_the_training_goes_on_is_raised_by_wait_on_all_ranks(folder, nodes, rank, size):
    model, _ = make(rank)
    checkpointer = hvd.checkpoint.Checkpointer(folder, model, every_steps=1, sharded=True)
    checkpointer.step(1)
    checkpointer.wait()
    hvd.barrier()
    if rank == 0:  # a file takes the place of the folder for the shards
        open(f"{folder}/step-000000000002.h5.shards", "w").close()
    hvd.barrier()
    assert checkpointer.step(2)
    with pytest.raises(OSError, match="step-000000000002.h5.shards"):
        checkpointer.wait()
    assert checkpointer.restore()["step"] == 1
    checkpointer.close()


@pytest.mark.parametrize("when", ["shards", "index", "old"])
def test_ranks_that_lose_others_after_the_shards_are_written_leave_them(when, folder, nodes, rank, monkeypatch):
    path = f"{folder}/big.h5"
    model, optimizer = make(rank)
    hvd.checkpoint.save(path, model, optimizer, step=1, sharded=True)
    train(model, optimizer)
    exchange = sharded.allgather_object

    def lose_others(value, name):
        found = exchange(value, name)
        if name.endswith(f".{when}") and rank > 0:  # only the other ranks notice the loss; rank 0 completes the
                                                    # checkpoint
            raise hvd.HorovodInternalError("a rank was lost")
        return found

    monkeypatch.setattr(sharded, "allgather_object", lose_others)
    if rank == 0:
        hvd.checkpoint.save(path, model, optimizer, step=2, sharded=True)
    else:
        with pytest.raises(hvd.HorovodInternalError, match="a rank was lost"):
            hvd.checkpoint.save(path, model, optimizer, step=2, sharded=True)
        order = ["shards", "index", "old"]
        for missed in order[order.index(when) + 1:]:
            exchange(None, f"checkpoint.to.{path}.{missed}")
    monkeypatch.setattr(sharded, "allgather_object", exchange)
    fresh, its_optimizer = make(rank, 1)
    assert hvd.checkpoint.restore(path, fresh, its_optimizer)["step"] == 2
    for name, value in fresh.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])


def damage_shards_of(path, rank):
    """Damages a shard of the checkpoint. Returns when all ranks may look."""
    hvd.barrier()
    if rank == 0:
        for name in os.listdir(f"{path}.shards"):
            os.truncate(f"{path}.shards/{name}", 3000)
    hvd.barrier()


def test_another_file_of_the_folder_is_not_taken_for_the_one_before(folder, nodes, rank):
    model = torch.nn.Linear(40, 3)
    hvd.checkpoint.save(f"{folder}/another.h5", model, step=3)
    hvd.checkpoint.save(f"{folder}/big.h5", model, step=9, sharded=True)
    damage_shards_of(f"{folder}/big.h5", rank)
    with pytest.raises(OSError, match="is damaged"):
        hvd.checkpoint.restore(f"{folder}/big.h5", model)


def test_the_one_before_is_the_one_that_was_written_before(folder, nodes, rank):
    model, _ = make(rank)
    with hvd.checkpoint.Checkpointer(folder, model, sharded=True, asynchronous=False, keep=4) as checkpointer:
        for step in (150, 120, 130, 200):  # the steps began anew after 150
            checkpointer.save(step)
        damage_shards_of(f"{folder}/step-000000000200.h5", rank)
        assert checkpointer.latest() == f"{folder}/step-000000000130.h5"
        assert checkpointer.restore()["step"] == 130
        if rank == 0:
            shutil.rmtree(f"{folder}/step-000000000130.h5.shards")
        hvd.barrier()
        assert checkpointer.latest() == f"{folder}/step-000000000120.h5"
        assert checkpointer.restore()["step"] == 120
        for step in (120, 150):
            damage_shards_of(f"{folder}/step-{step:012d}.h5", rank)
        assert checkpointer.latest() is None
        with pytest.raises(OSError, match="step-000000000200.h5.shards|step-000000000150.h5.shards"):
            checkpointer.restore()


def test_shards_of_others_stay(folder, nodes, rank):
    others = [f"{folder}/{name}.h5.shards" for name in ("other", "step-best", "step-000000000001")]
    if rank == 0:
        for other in others:  # of a first save, whose index is written last
            os.makedirs(other)
            open(f"{other}/node-0-mark.h5", "w").close()
    hvd.barrier()
    model, _ = make(rank)
    for _ in range(2):
        hvd.checkpoint.save(f"{folder}/a.h5", model, sharded=True)
    hvd.barrier()
    assert all(os.path.exists(f"{other}/node-0-mark.h5") for other in others)
    hvd.barrier()
    with hvd.checkpoint.Checkpointer(folder, model, sharded=True, asynchronous=False) as checkpointer:
        checkpointer.save(2)
        hvd.barrier()
        # steps belong to the checkpointer; this one was left by a killed job
        assert [os.path.exists(other) for other in others] == [True, True, False]


def test_shards_lie_beside_the_file_to_which_a_link_leads(folder, nodes, rank):
    model, _ = make(rank)
    hvd.checkpoint.save(f"{folder}/big.h5", model, step=1, sharded=True)
    if rank == 0:
        os.symlink("big.h5", f"{folder}/current.h5")
    hvd.barrier()
    hvd.checkpoint.save(f"{folder}/current.h5", model, step=2, sharded=True)
    assert os.path.islink(f"{folder}/current.h5") and not os.path.exists(f"{folder}/current.h5.shards")
    for name in ("current", "big"):
        assert hvd.checkpoint.restore(f"{folder}/{name}.h5", model)["step"] == 2
    newest = max((f"{folder}/big.h5.shards/{name}" for name in os.listdir(f"{folder}/big.h5.shards")),
                 key=os.path.getmtime)
    newest = hvd.broadcast_object(newest)
    hvd.barrier()
    if rank == 0:
        os.truncate(newest, 3000)
    hvd.barrier()
    for name in ("current", "big"):
        assert hvd.checkpoint.restore(f"{folder}/{name}.h5", model)["step"] == 1


def test_the_path_is_that_of_rank_0_however_other_ranks_spell_it(folder, nodes, rank):
    model, _ = make(rank)
    path = f"{folder}/{'./' * rank}a.h5"
    hvd.checkpoint.save(path, model, step=2, sharded=True)
    assert hvd.checkpoint.restore(path, model)["step"] == 2


def test_ranks_may_join_while_shards_are_written(folder, nodes, rank):
    model = torch.nn.Linear(700, 700)
    with hvd.checkpoint.Checkpointer(folder, model, sharded=True) as checkpointer:
        for epoch in range(1, 4):
            for batch in range(5 - min(rank, 1)):  # rank 0 has one batch more
                hvd.allreduce(torch.ones(10), name="gradient")
                if batch == 3:
                    checkpointer.save(epoch)
            hvd.join()
        checkpointer.wait()
        assert checkpointer.latest() == f"{folder}/step-000000000003.h5"


@pytest.mark.parametrize("fails", [False, True])
def test_a_shutdown_waits_for_what_is_being_written(fails, folder, nodes, rank):
    checkpointer = hvd.checkpoint.Checkpointer(folder, torch.nn.Linear(700, 700), sharded=True)
    if fails and rank == 0:
        open(f"{folder}/step-000000000003.h5.shards", "w").close()
    hvd.barrier()
    checkpointer.save(3)
    if fails:
        with pytest.raises(OSError, match="step-000000000003.h5.shards"):
            hvd.shutdown()
    else:
        hvd.shutdown()
    hvd.init()
    assert hvd.checkpoint.latest(folder) == (None if fails else f"{folder}/step-000000000003.h5")
    checkpointer.close()
