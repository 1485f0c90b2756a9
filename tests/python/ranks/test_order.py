"""The bits of a result do not depend on the order of submission, on fusion or on timing."""
import random

import pytest
import torch

ROUNDS = 50
TENSORS = 24


def tensors_of(rank):
    """Tensors of float32 values over 30 decades, whose sum depends on the order of additions in the last bits."""
    generator = torch.Generator().manual_seed(100 + rank)
    shapes = [(1,), (7,), (64,), (257,), (1023,), (4096,)]
    result = []
    for i in range(TENSORS):
        shape = shapes[i % len(shapes)]
        result.append(torch.randn(shape, generator=generator)
                      * 10.0 ** (torch.rand(shape, generator=generator) * 30 - 15))
    return result


def one_round(hvd, given, order):
    started = {i: hvd.allreduce_async(given[i], op=hvd.Sum, name=f"order.{i}") for i in order}
    return [hvd.synchronize(started[i]) for i in range(TENSORS)]


@pytest.mark.parametrize("op", ["Sum", "Average", "Max"])
def test_every_rank_submits_in_an_order_of_its_own(hvd, rank, size, op):
    shuffle = random.Random(rank)
    for step in range(30):
        order = list(range(40))
        shuffle.shuffle(order)
        started = {i: hvd.allreduce_async(torch.full((i,), float(i + rank)), op=getattr(hvd, op), name=f"mixed.{i}")
                   for i in order}
        gathered = {i: hvd.allgather_async(torch.full((rank + 1,), i), name=f"mixed.{i}") for i in order if i % 4 == 0}
        value = {"Sum": lambda i: i * size + size * (size - 1) / 2, "Average": lambda i: i + (size - 1) / 2,
                 "Max": lambda i: i + size - 1}[op]
        for i in reversed(order):
            torch.testing.assert_close(hvd.synchronize(started[i]), torch.full((i,), float(value(i))))
        for i, handle in gathered.items():
            assert torch.equal(hvd.synchronize(handle), torch.full((size * (size + 1) // 2,), i))


def test_same_bits_whatever_the_order_and_the_fusion(hvd, rank, size, monkeypatch):
    given = tensors_of(rank)
    expected = None
    for threshold in ("0", "1024", str(64 << 20)):
        hvd.barrier()
        hvd.shutdown()
        monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", threshold)
        hvd.init()
        shuffle = random.Random(1000 * rank + int(threshold))
        for _ in range(ROUNDS):
            order = list(range(TENSORS))
            shuffle.shuffle(order)
            results = one_round(hvd, given, order)
            if expected is None:
                expected = results
            assert all(torch.equal(*pair) for pair in zip(results, expected)), f"fusion threshold {threshold}"
    monkeypatch.undo()
    for mine in expected:
        assert all(torch.equal(mine, other) for other in hvd.allgather(mine.unsqueeze(0)))
