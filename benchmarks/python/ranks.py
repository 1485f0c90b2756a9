"""What the Python programs share: ranks that are in Horovod and in Gloo at the same time, a barrier that belongs to
neither, contenders that take turns on the same tensors, and the record of their times."""
import argparse
import ctypes
import json
import mmap
import os
import statistics
import time

import torch
import torch.distributed as gloo

import horovod.torch as hvd

WORK_SECONDS = 0.002
WORK_ENDS = 1  # the index of this time in rank 0's line of the shared counters


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True, help="file of JSON lines that rank 0 appends to")
    parser.add_argument("--scratch", required=True, help="empty folder, equal on all ranks")
    parser.add_argument("--workloads", required=True, help="names with commas")
    parser.add_argument("--link-library", help="libhvd_benchmark_link.so: our data plane alone")
    parser.add_argument("--launch", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="per contender and round")
    parser.add_argument("--largest", type=int, default=64 << 20, help="bytes, of the plain allreduce")
    return parser.parse_args()


class Ranks:
    def __init__(self, options):
        hvd.init()
        self.options = options
        self.rank, self.size = hvd.rank(), hvd.size()
        self.cores = os.cpu_count() or 1
        torch.set_num_threads(max(1, self.cores // self.size))
        gloo.init_process_group("gloo", init_method=f"file://{options.scratch}/gloo", rank=self.rank,
                                world_size=self.size)
        self._turns = self._shared_counters()
        self._turn = 0

    def _shared_counters(self):
        """Makes one number per rank in shared memory, each in a cache line of its own. Only that rank writes it."""
        path = os.path.join(self.options.scratch, "turns")
        if self.rank == 0:
            with open(path, "wb") as file:
                file.write(bytes(64 * self.size))
        gloo.barrier()
        with open(path, "r+b") as file:
            return memoryview(mmap.mmap(file.fileno(), 64 * self.size)).cast("q")

    def barrier(self, pause=os.sched_yield):
        self._turn += 1
        turns, turn = self._turns, self._turn
        turns[8 * self.rank] = turn
        for rank in range(self.size):
            while turns[8 * rank] < turn:
                pause()

    def largest(self, numbers):
        return hvd.allreduce(torch.tensor(numbers, dtype=torch.float64), op=hvd.Max).tolist()

    def record(self, **fields):
        if self.rank == 0:
            common = {"program": "python", "ranks": self.size, "launch": self.options.launch, "peer": "gloo",
                      "torch": torch.__version__}
            with open(self.options.out, "a") as file:
                file.write(json.dumps(common | fields) + "\n")

    def measure(self, description, contenders, write=None, is_right=None, fewest_calls=3, work=None):
        """Measures the contenders, (name, call) each. Returns rounds of medians over their calls, of the slowest rank.

        `write(turn)` rewrites the tensors before every call, outside of the time. `is_right(turn)` checks them
        afterwards. `work(end)` computes until a time that is the same on all ranks, two milliseconds before every call.
        """
        write = write or (lambda turn: None)
        calls, right = {}, {}
        for name, call in contenders:
            right[name] = 1.0
            for turn in range(2):
                write(turn)
                self.barrier()
                call()
                if is_right is not None and not is_right(turn):
                    right[name] = 0.0
            per_call = min(self._timed(write, call, turn, work) for turn in range(2))
            per_turn = 2 * self.largest([per_call])[0] + (WORK_SECONDS if work else 0)
            calls[name] = max(fewest_calls, min(500, int(self.options.seconds / per_turn)))
        times = {name: [] for name, _ in contenders}
        for number in range(self.options.rounds):
            first = number % len(contenders)
            for name, call in contenders[first:] + contenders[:first]:
                times[name].append(statistics.median(self._timed(write, call, turn, work)
                                                     for turn in range(calls[name])))
        microseconds = {name: [1e6 * t for t in self.largest(each)] for name, each in times.items()}
        wrong = {name: value for (name, _), value in
                 zip(contenders, self.largest([1.0 - right[name] for name, _ in contenders]))}
        self.record(**description, us=microseconds, correct={name: wrong[name] == 0.0 for name in wrong})

    def _timed(self, write, call, turn, work=None):
        write(turn)
        if work:
            if self.rank == 0:
                self._turns[WORK_ENDS] = time.perf_counter_ns() + int(1e9 * WORK_SECONDS)
            # A rank that waits here must sleep. The scheduler would remember yields, and other ranks would then get the
            # whole core.
            self.barrier(lambda: time.sleep(5e-5))
            work(self._turns[WORK_ENDS] / 1e9)
        else:
            self.barrier()
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    def end(self):
        self.barrier()
        gloo.destroy_process_group()
        hvd.shutdown()


class OurLink:
    """Our data plane without the runtime. The caller steps a planned task; one call of ctypes makes many calls of the
    task."""

    _Allgather = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)

    def __init__(self, ranks):
        self._library = ctypes.CDLL(ranks.options.link_library)
        self._library.hvd_benchmark_open.restype = ctypes.c_void_p
        self._library.hvd_benchmark_allreduce.restype = ctypes.c_double
        self._callback = self._Allgather(self._allgather(ranks.size))
        self._link = ctypes.c_void_p(self._library.hvd_benchmark_open(
            ranks.rank, ranks.size, int(ranks.size > ranks.cores), self._callback))

    @staticmethod
    def _allgather(size):
        def allgather(mine, length, everything):
            sent = torch.frombuffer((ctypes.c_uint8 * length).from_address(mine), dtype=torch.uint8)
            received = torch.frombuffer((ctypes.c_uint8 * (length * size)).from_address(everything), dtype=torch.uint8)
            gloo.all_gather(list(received.split(length)), sent)
        return allgather

    def plan(self, tensor):
        self._library.hvd_benchmark_plan(self._link, ctypes.c_void_p(tensor.data_ptr()),
                                         ctypes.c_size_t(tensor.numel()))

    def allreduce(self, calls=1):
        return self._library.hvd_benchmark_allreduce(self._link, calls)

    def close(self):
        self._library.hvd_benchmark_close(self._link)


def resnet50_gradients(count, total):
    """Does the same as the C++ function of this name: numbers of elements of ResNet-50's gradients, the last layer
    first, scaled to `total`."""
    sizes = []

    def convolution(inputs, outputs, window):
        sizes.extend([inputs * outputs * window * window, outputs, outputs])

    convolution(3, 64, 7)
    inputs, width = 64, 64
    for blocks in (3, 4, 6, 3):
        for block in range(blocks):
            convolution(inputs, width, 1)
            convolution(width, width, 3)
            convolution(width, 4 * width, 1)
            if block == 0:
                convolution(inputs, 4 * width, 1)
            inputs = 4 * width
        width *= 2
    sizes.extend([inputs * 1000, 1000])
    sizes.reverse()
    repeated = [sizes[i % len(sizes)] for i in range(count)]
    return [max(1, round(size * total / sum(repeated))) for size in repeated]
