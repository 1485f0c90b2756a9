"""Two disjoint process sets of two ranks reduce at the same time, and one after the other. `benchmarks/two-sets` starts
it on four virtual nodes; it needs four ranks."""
import statistics
import sys
import time

import torch

import horovod.torch as hvd

ROUNDS = 9


def main():
    hvd.init(process_sets="dynamic")
    torch.set_num_threads(1)
    if hvd.size() != 4:
        sys.exit(f"two_sets.py needs 4 ranks, and has {hvd.size()}")
    sets = [hvd.add_process_set([0, 1]), hvd.add_process_set([2, 3])]
    mine = sets[hvd.rank() // 2]
    if hvd.rank() == 0:
        print("| bytes | at the same time | one after the other | ratio |\n|---|---|---|---|", flush=True)
    for size, steps in ((1 << 10, 200), (1 << 16, 50), (1 << 20, 10), (16 << 20, 1)):
        tensor = torch.ones(size // 4)

        def turn(of_both, which=None):
            if of_both or sets[which] is mine:
                for _ in range(steps):
                    hvd.allreduce_(tensor, op=hvd.Average, name=f"tensor.{size}", process_set=mine)
            hvd.barrier()

        def seconds(*turns):
            hvd.barrier()
            began = time.perf_counter()
            for arguments in turns:
                turn(*arguments)
            return (time.perf_counter() - began) / steps

        turn(True)  # the first use of a set makes its links
        together, apart = [], []
        for _ in range(ROUNDS):
            together.append(seconds((True,)))
            apart.append(seconds((False, 0), (False, 1)))
        ratio = statistics.median(b / a for a, b in zip(together, apart))
        if hvd.rank() == 0:
            print(f"| {size} | {statistics.median(together) * 1e6:.0f} us | {statistics.median(apart) * 1e6:.0f} us "
                  f"| {ratio:.2f} |", flush=True)


main()
