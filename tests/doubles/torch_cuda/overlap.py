"""overlap.py: a step of training overlaps with its reductions, in virtual time.

The double records what was queued on streams, and what had to wait for what. From that a timetable is computed in which
each kernel of torch and each call of NCCL takes a given time. It does not depend on how fast this machine is.
"""
import ctypes
import sys

import on_host
import torch

import horovod.torch as hvd

LAYERS, WIDTH = 12, 16
KERNEL = 1.0  # the time of a kernel


class Piece(ctypes.Structure):
    _fields_ = [("label", ctypes.c_char_p), ("kind", ctypes.c_char_p), ("stream", ctypes.c_int),
                ("bytes", ctypes.c_size_t)]

    @property
    def is_reduction(self):
        return self.label.startswith(b"NCCL's")


def timetable(duration):
    """Returns [(piece, begin, end)] of what was recorded."""
    table = []

    @ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p, ctypes.POINTER(Piece))
    def ask(_, piece):
        return duration(piece.contents)

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Piece), ctypes.c_double, ctypes.c_double)
    def tell(_, piece, begin, end):
        it = piece.contents
        table.append((Piece(it.label, it.kind, it.stream, it.bytes), begin, end))

    on_host.driver.hvd_double_timetable(ask, tell, None)
    return table


def recorded(step):
    """Runs a step for which everything is known already, and records it."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    hvd.barrier()
    on_host.driver.hvd_double_record()
    step()
    torch.cuda.synchronize()


def times(of_reduction):
    """Returns (the end of all, when each reduction begins) if a reduction takes `of_reduction`."""
    stream = on_host.driver.hvd_double_number_of_stream(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))

    def duration(piece):
        if piece.is_reduction:
            return of_reduction
        return KERNEL if piece.kind == b"to device" and piece.stream == stream else 0.0  # what a kernel stores

    table = timetable(duration)
    return max(end for _, _, end in table), [begin for piece, begin, _ in table if piece.is_reduction]


def model_and_batch():
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]).cuda()
    return model, torch.randn(4, WIDTH).cuda()


def overlaps():
    model, x = model_and_batch()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    recorded(step)
    alone, ready = times(0.0)  # a reduction that takes no time begins when its gradients are there
    after_the_last = alone - ready[-1]
    for of_reduction in (0.5, 2.0, 20.0):
        found = times(of_reduction)[0]
        # Reductions run one after the other, each once its gradients are there. Which gradients travel together, and so
        # when they are there, is another matter in each run.
        reduced = max(begin + (len(ready) - at) * of_reduction for at, begin in enumerate(ready))
        most = max(alone, reduced + after_the_last)
        print(f"rank {hvd.rank()}: {len(ready)} reductions of {of_reduction}, the step alone {alone}, both together "
              f"{found}, at most {most}", flush=True)
        assert found <= most, f"a step takes {found} in place of at most {most}"


def does_not_overlap_if_hooks_wait():
    """The comparison notices what it is for."""
    model, x = model_and_batch()
    names = {parameter: f"now {name}" for name, parameter in model.named_parameters()}

    def reduce(parameter):
        hvd.allreduce_(parameter.grad, name=names[parameter])

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(reduce)

    def step():
        model.zero_grad()
        model(x).sum().backward()

    recorded(step)
    alone, ready = times(0.0)
    count, found = len(ready), times(2.0)[0]
    print(f"rank {hvd.rank()}: hooks that wait, {count} reductions of 2.0: a step of {alone} takes {found}", flush=True)
    assert found == alone + count * 2.0, f"a step takes {found}, though each hook waits"


def main():
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    overlaps()
    does_not_overlap_if_hooks_wait()
    hvd.shutdown()
    print("ok", flush=True)


if __name__ == "__main__":
    sys.exit(main())
