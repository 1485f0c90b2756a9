"""The response cache and tensor fusion change no result that a user can see."""
import pytest
import torch

import horovod.torch as hvd
from ranks import (REDUCED, SIZE, Job, alone, at_least, equal, error_of, everyone, gathered, is_error, mine, near, of,
                   outcome, restarted, share, total)

CAPACITIES = [0, 1, 3, 1024]


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_a_name_used_again_gives_new_values(capacity):
    """Contract §6.3 response cache"""
    with restarted(HOROVOD_CACHE_CAPACITY=capacity):
        found = [hvd.allreduce(mine() * i, op=hvd.Sum, name="again") for i in range(8)]
    for i, tensor in enumerate(found):
        equal(tensor, total() * i)


CHANGES = {
    "dtype": [dict(tensor=lambda dtype=dtype: mine((6,), dtype), expected=lambda dtype=dtype: total((6,), dtype))
              for dtype in REDUCED],
    "shape": [dict(tensor=lambda: mine((6,)), expected=lambda: total((6,))),
              dict(tensor=lambda: mine((2, 3)), expected=lambda: total((2, 3))),
              dict(tensor=lambda: mine((60,)), expected=lambda: total((60,)))],
    "prescale": [dict(tensor=lambda: mine((6,)), expected=lambda: total((6,))),
                 dict(tensor=lambda: mine((6,)), prescale_factor=2.0, expected=lambda: total((6,)) * 2)],
    "postscale": [dict(tensor=lambda: mine((6,)), postscale_factor=2.0, expected=lambda: total((6,)) * 2),
                  dict(tensor=lambda: mine((6,)), postscale_factor=0.5, expected=lambda: total((6,)) / 2)],
    "reduction": [dict(tensor=lambda: mine((6,)), expected=lambda: total((6,))),
                  dict(tensor=lambda: mine((6,)), op=hvd.Min, expected=lambda: of(0, (6,))),
                  dict(tensor=lambda: mine((6,)), op=hvd.Max, expected=lambda: of(SIZE - 1, (6,)))],
}


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_name_may_come_back_with_another_property(change, capacity):
    """Contract §6.3 response cache [tests reuse names with other dtypes]"""
    found, expected = [], []
    with restarted(HOROVOD_CACHE_CAPACITY=capacity):
        for _ in range(2):
            for each in CHANGES[change]:
                arguments = {"op": hvd.Sum, **each}
                tensor, wanted = arguments.pop("tensor"), arguments.pop("expected")
                for _ in range(2):  # the second call may use the cache
                    found.append(hvd.allreduce(tensor(), name="changing", **arguments))
                    expected.append(wanted)
    for tensor, wanted in zip(found, expected):
        near(tensor, wanted())


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_an_allgather_may_change_its_rows_on_one_rank(capacity):
    """Contract §6.3 response cache"""
    found = []
    with restarted(HOROVOD_CACHE_CAPACITY=capacity):
        for turn in range(6):
            rows = turn if hvd.rank() == 0 else 3
            found.append(hvd.allgather(mine((rows, 2)), name="rows"))
    for turn, tensor in enumerate(found):
        equal(tensor, gathered(lambda rank: turn if rank == 0 else 3, (2,)))


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_more_names_than_the_cache_has_room_for(capacity):
    """Contract §6.3 LRU"""
    found = {}
    with restarted(HOROVOD_CACHE_CAPACITY=capacity):
        for turn in range(3):
            for number in range(12):
                found[turn, number] = hvd.allreduce(mine((number + 1,)) + turn, op=hvd.Sum, name=f"many.{number}")
    for (turn, number), tensor in found.items():
        equal(tensor, total((number + 1,)) + turn * SIZE)


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_cached_and_new_ops_in_one_go(capacity):
    """Contract §6.3 response cache"""
    found = {}
    with restarted(HOROVOD_CACHE_CAPACITY=capacity):
        for turn in range(5):
            handles = {name: hvd.allreduce_async(mine() + turn, op=hvd.Sum, name=name)
                       for name in ["old.a", f"new.{turn}", "old.b"]}
            found[turn] = [hvd.synchronize(handle) for handle in handles.values()]
    for turn, tensors in found.items():
        for tensor in tensors:
            equal(tensor, total() + turn * SIZE)


@at_least(2)
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_cached_ops_in_different_orders(capacity):
    """Contract §6.3: hits not yet common stay queued"""
    names = [f"order.{i}" for i in range(8)]
    found = {}
    with restarted(HOROVOD_CACHE_CAPACITY=capacity):
        for turn in range(4):
            shift = (hvd.rank() * 3 + turn) % len(names)
            handles = {name: hvd.allreduce_async(mine() * (names.index(name) + turn), op=hvd.Sum, name=name)
                       for name in names[shift:] + names[:shift]}
            found[turn] = {name: hvd.synchronize(handle) for name, handle in handles.items()}
    for turn, tensors in found.items():
        for name, tensor in tensors.items():
            equal(tensor, total() * (names.index(name) + turn))


@at_least(2)
def test_a_joined_rank_goes_along_with_cached_ops():
    """Contract §6.3, §6.6: a joined rank reports a hit for every cached entry"""
    for _ in range(3):
        hvd.allreduce(mine(), op=hvd.Sum, name="cached")
    found = outcome(hvd.allreduce, mine(), op=hvd.Sum, name="cached") if hvd.rank() else None
    hvd.join()
    after = hvd.allreduce(mine(), op=hvd.Sum, name="cached")
    equal(after, total())
    if hvd.rank():
        near(found, total(ranks=range(1, SIZE)))


@at_least(2)
def test_what_was_first_done_without_a_joined_rank_is_right_with_it():
    """Contract §6.3: cached only if every member took part"""
    found = outcome(hvd.allreduce, mine(), op=hvd.Sum, name="partial") if hvd.rank() else None
    hvd.join()
    after = [hvd.allreduce(mine(), op=hvd.Sum, name="partial") for _ in range(3)]
    for tensor in after:
        equal(tensor, total())
    if hvd.rank():
        near(found, total(ranks=range(1, SIZE)))


@at_least(2)
def test_an_error_is_not_cached():
    """Contract §6.3 response cache"""
    errors = [error_of(hvd.allreduce, torch.ones(3 + hvd.rank()), op=hvd.Sum, name="error") for _ in range(2)]
    found = [hvd.allreduce(mine(), op=hvd.Sum, name="error") for _ in range(2)]
    for error in errors:
        is_error(error, hvd.HorovodInternalError)
    for tensor in found:
        equal(tensor, total())


@pytest.mark.parametrize("verb", ["broadcast", "alltoall", "reducescatter"])
def test_other_verbs_used_again_give_new_values(verb):
    """Contract §6.3 response cache"""
    calls = {"broadcast": lambda x: hvd.broadcast(x, 0, name="verb"),
             "alltoall": lambda x: hvd.alltoall(x, name="verb"),
             "reducescatter": lambda x: hvd.reducescatter(x, op=hvd.Sum, name="verb")}
    found = [calls[verb](mine((SIZE * 2,)) + turn) for turn in range(5)]
    here = slice(hvd.rank() * 2, hvd.rank() * 2 + 2)
    for turn, tensor in enumerate(found):
        expected = {"broadcast": lambda: of(0, (SIZE * 2,)) + turn,
                    "alltoall": lambda: torch.cat([of(rank, (SIZE * 2,))[here] + turn for rank in everyone()]),
                    "reducescatter": lambda: (total((SIZE * 2,)) + turn * SIZE)[here]}[verb]()
        equal(tensor, expected)


# ---- fusion

THRESHOLDS = [0, 1, 1000, 128 * 1024 * 1024]


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_the_fusion_threshold_does_not_change_results(threshold):
    """Contract §6.4 tensor fusion"""
    shapes = [(1,), (100,), (3, 7), (1000,), (0,), (33, 3)] * 3
    with restarted(HOROVOD_FUSION_THRESHOLD=threshold):
        handles = [hvd.allreduce_async(mine(shape), op=hvd.Sum, name=f"fused.{i}") for i, shape in enumerate(shapes)]
        found = [hvd.synchronize(handle) for handle in handles]
    for tensor, shape in zip(found, shapes):
        near(tensor, total(shape))


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_ops_that_cannot_fuse_may_be_submitted_together(threshold):
    """Contract §6.4: dtype, op and factors must agree"""
    with restarted(HOROVOD_FUSION_THRESHOLD=threshold):
        handles = [hvd.allreduce_async(mine((9,), dtype), op=op, prescale_factor=factor, name=f"{dtype}.{op}.{factor}")
                   for dtype in REDUCED for op in (hvd.Sum, hvd.Max) for factor in (1.0, 2.0)]
        found = [hvd.synchronize(handle) for handle in handles]
    expected = [(total((9,), dtype) if op == hvd.Sum else of(SIZE - 1, (9,), dtype)) * int(factor)
                for dtype in REDUCED for op in (hvd.Sum, hvd.Max) for factor in (1.0, 2.0)]
    for tensor, wanted in zip(found, expected):
        near(tensor, wanted)


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_fused_allgathers_with_uneven_rows_are_right(threshold):
    """Contract §6.4 allgather"""
    with restarted(HOROVOD_FUSION_THRESHOLD=threshold):
        handles = [hvd.allgather_async(mine(((hvd.rank() + i) % 4, i + 1)), name=f"gather.{i}") for i in range(12)]
        found = [hvd.synchronize(handle) for handle in handles]
    for i, tensor in enumerate(found):
        equal(tensor, gathered(lambda rank: (rank + i) % 4, (i + 1,)))


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_fused_reducescatters_share_out_the_rows_of_each_tensor(threshold):
    """Contract §6.4: row splits are per original tensor"""
    with restarted(HOROVOD_FUSION_THRESHOLD=threshold):
        handles = [hvd.reducescatter_async(mine((i + 1, 2)), op=hvd.Sum, name=f"scatter.{i}") for i in range(12)]
        found = [hvd.synchronize(handle) for handle in handles]
    for i, tensor in enumerate(found):
        near(tensor, total((i + 1, 2))[share(i + 1, hvd.rank(), SIZE)])


def test_fused_reducescatters_with_a_factor_before_are_right():
    """Contract §6.4 tensor fusion, §2.6 reductions"""
    handles = [hvd.reducescatter_async(mine((i + 1, 2)), op=hvd.Sum, prescale_factor=2.0, name=f"s.{i}")
               for i in range(8)]
    found = [hvd.synchronize(handle) for handle in handles]
    for i, tensor in enumerate(found):
        near(tensor, total((i + 1, 2))[share(i + 1, hvd.rank(), SIZE)] * 2)


def test_fusion_leaves_inputs_alone():
    """Contract §2.6 reductions, §6.15 data layout"""
    tensors = [mine((n,)) for n in range(1, 20)]
    handles = [hvd.allreduce_async(tensor, op=hvd.Sum, prescale_factor=2.0, name=f"in.{i}")
               for i, tensor in enumerate(tensors)]
    for handle in handles:
        hvd.synchronize(handle)
    for n, tensor in enumerate(tensors, 1):
        equal(tensor, mine((n,)))


@alone
def test_autotune_does_not_change_results_and_keeps_a_log(tmp_path):
    """Contract §6.13 autotune"""
    with Job(tmp_path, 2, """
            hvd.init()
            for step in range(100):
                handles = [hvd.allreduce_async(torch.ones(100) * step, op=hvd.Sum, name=f"tuned.{i}")
                           for i in range(10)]
                for handle in handles:
                    assert hvd.synchronize(handle).tolist() == [2.0 * step] * 100
            hvd.barrier()
            """, HOROVOD_AUTOTUNE=1, HOROVOD_AUTOTUNE_LOG=tmp_path / "log", HOROVOD_AUTOTUNE_WARMUP_SAMPLES=1,
            HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE=2) as job:
        assert job.ends() == 0, job.text()
    header = (tmp_path / "log").read_text().splitlines()[0].replace(" ", "")
    assert header == ("hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
                      "tensor_fusion_threshold,score")
