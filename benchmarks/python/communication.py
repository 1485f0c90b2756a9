"""Communication alone: Horovod as a user sees it (horovod.torch) and our data plane, against Gloo
(torch.distributed)."""
import statistics
import time

import torch
import torch.distributed as gloo

import horovod.torch as hvd
from ranks import OurLink, Ranks, arguments, resnet50_gradients

STEPS = {"one_8B": [2], "tiny_200": [16] * 200, "step_64MB": resnet50_gradients(200, (64 << 20) // 4)}
AS_IN_TRAINING = "_after_work"  # the workload after some other arithmetic, in which nobody communicates


def do_other_arithmetic(end, a=torch.ones(64, 64), b=torch.ones(64, 64)):
    while time.perf_counter() < end:
        torch.mm(a, b)


def step(ranks, workload):
    """Averages many tensors: by us one by one and as a group; by Gloo packed by hand, and one by one."""
    name = workload.removesuffix(AS_IN_TRAINING)
    tensors = [torch.zeros(count) for count in STEPS[name]]
    flat = torch.zeros(sum(STEPS[name]))
    sources = [torch.arange(count, dtype=torch.float32) % 31 for count in STEPS[name]]
    mean = (ranks.size - 1) / 2

    def write(turn):
        for tensor, source in zip(tensors, sources):
            torch.add(source, ranks.rank + turn, out=tensor)

    def is_right(turn):
        return all(torch.equal(tensor, source + (mean + turn)) for tensor, source in zip(tensors, sources))

    def gloo_packed():
        torch.cat(tensors, out=flat)
        gloo.all_reduce(flat)
        flat.mul_(1 / ranks.size)
        offset = 0
        for tensor in tensors:
            tensor.copy_(flat[offset:offset + tensor.numel()])
            offset += tensor.numel()

    def gloo_each():
        for work in [gloo.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()
        for tensor in tensors:
            tensor.mul_(1 / ranks.size)

    names = [f"{workload}.{i}" for i in range(len(tensors))]

    def ours():
        for handle in [hvd.allreduce_async_(tensor, name=each) for tensor, each in zip(tensors, names)]:
            hvd.synchronize(handle)

    def ours_together():
        hvd.grouped_allreduce_(tensors, name=f"{workload}.group")

    contenders = [("gloo_packed", gloo_packed), ("ours", ours), ("ours_together", ours_together)]
    if len(tensors) > 1:
        contenders.insert(1, ("gloo_each", gloo_each))
    ranks.measure({"workload": workload, "bytes": 4 * flat.numel(), "tensors": len(tensors)}, contenders, write,
                  is_right, work=do_other_arithmetic if workload != name else None)


def plain(ranks, link, count):
    """Sums one tensor: our data plane and our whole library against Gloo's allreduce."""
    tensor, source = torch.zeros(count), torch.arange(count, dtype=torch.float32) % 31

    def write(turn):
        torch.add(source, ranks.rank + turn, out=tensor)

    def is_right(turn):
        expected = source * ranks.size + (ranks.size * (ranks.size - 1) // 2 + turn * ranks.size)
        return torch.equal(tensor, expected)

    contenders = [("gloo", lambda: gloo.all_reduce(tensor)),
                  ("ours_library", lambda: hvd.allreduce_(tensor, op=hvd.Sum, name=f"plain.{count}"))]
    if link is not None:
        link.plan(tensor)
        contenders.append(("ours", link.allreduce))
    ranks.measure({"workload": "allreduce", "dtype": "float32", "bytes": 4 * count}, contenders, write, is_right)
    if link is not None and count <= 1024:
        # Such a call is shorter than the interpreter's work around it. So it is timed in a loop in C++.
        tensor.zero_()
        rounds = []
        for _ in range(ranks.options.rounds):
            ranks.barrier()
            rounds.append(statistics.median(1e6 * link.allreduce(500) / 500 for _ in range(9)))
        ranks.record(workload="allreduce_loop", dtype="float32", bytes=4 * count, us={"ours": ranks.largest(rounds)},
                     correct={"ours": True})


def main():
    options = arguments()
    ranks = Ranks(options)
    wanted = options.workloads.split(",")
    if "allreduce" in wanted:
        link = OurLink(ranks) if options.link_library else None
        for size in (8, 512, 4096, 64 << 10, 1 << 20, 16 << 20, 64 << 20):
            if size <= options.largest:
                plain(ranks, link, size // 4)
        if link is not None:
            link.close()
    for workload in [name + when for name in STEPS for when in ("", AS_IN_TRAINING)]:
        if workload in wanted:
            step(ranks, workload)
    ranks.end()


if __name__ == "__main__":
    main()
