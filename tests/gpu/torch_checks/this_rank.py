"""This rank with its GPU, for the checks, and how they compare results."""
import torch

import horovod.torch as hvd

hvd.init(process_sets="dynamic")
RANK, SIZE = hvd.rank(), hvd.size()
own = hvd.local_device()
torch.cuda.set_device(own if own is not None else hvd.local_rank() % torch.cuda.device_count())
torch.backends.cuda.matmul.allow_tf32 = False
DEVICE = f"cuda:{torch.cuda.current_device()}"
is_double = "Double" in torch.cuda.get_device_name()

CHECKS = []
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


class Skipped(Exception):
    pass


def check(function):
    CHECKS.append(function)
    return function


def expect_equal(found, expected, what=""):
    if not isinstance(expected, torch.Tensor):
        expected = torch.tensor(expected)
    on_host = found.detach().cpu()
    if on_host.shape != expected.shape or on_host.dtype != expected.dtype:
        raise AssertionError(f"{what}: {on_host.dtype} of {list(on_host.shape)} in place of {expected.dtype} of "
                             f"{list(expected.shape)}")
    if not torch.equal(on_host, expected):
        wrong = (on_host != expected).flatten().nonzero().flatten()
        first = int(wrong[0])
        raise AssertionError(f"{what}: {len(wrong)} of {on_host.numel()} elements are wrong; the first is number "
                             f"{first}: {on_host.flatten()[first]} in place of {expected.flatten()[first]}")


def expect_close(found, expected, relative, what):
    found, expected = found.detach().cpu().double(), expected.detach().cpu().double()
    difference = float((found - expected).abs().max())
    size = float(expected.abs().max())
    if not difference <= relative * max(size, 1e-30):
        raise AssertionError(f"{what} differs by {difference / max(size, 1e-30):.2e} of {size:.3g}, which may be "
                             f"{relative}")


def numbers(count, dtype, rank, step=0):
    """Small whole numbers, so that sums over a few ranks are exact in every type."""
    values = (torch.arange(count) * (rank + 1) + 3 * rank + step) % 11
    return values.to(dtype)


def sum_of(count, dtype, step=0, size=None):
    return sum(numbers(count, torch.int64, rank, step) for rank in range(size or hvd.size())).to(dtype)


def of_all_ranks(text):
    """The texts of all ranks. (Objects need cloudpickle, which this script does without.)"""
    mine = torch.tensor([list(text.encode()[:500].ljust(500))], dtype=torch.uint8)
    return [bytes(row.tolist()).decode(errors="replace").rstrip() for row in hvd.allgather(mine, name="texts")]


def delay(work=8):
    """Queues work on the current stream that takes some milliseconds of a GPU."""
    side = 64 if is_double else 3072
    matrix = torch.full((side, side), 1.0 / side, device=DEVICE)
    for _ in range(1 if is_double else work):
        matrix = matrix @ matrix
    return matrix
