#!/usr/bin/env python3
"""Writing and reading a checkpoint, how long the training stands still for it, and by how much the process grows: ours
beside h5py, torch.save and torch.distributed.checkpoint, and beside the disk itself.

usage: checkpoint.py [--megabytes N] [--folder FOLDER] [--rounds N] [--plot FILE.svg]

One process (`horovodrun -np 1`, or alone). All write the same state (a model and Adam's moments) into FOLDER, a new
file each time, and are done when it is durable: what has no fsync of its own gets one. The methods take turns in each
round; the table has the median. Before a cold read the file is dropped from the page cache. "disk" writes the same
number of bytes by one program without any form, as fast as it will.
"""
import argparse
import os
import shutil
import statistics
import tempfile
import time

import torch

import horovod.torch as hvd


def make_state(megabytes):
    """Makes a model whose parameters and moments have this size together. Its layers differ in size, like real ones."""
    width = 1024
    layer = 3 * 4 * width * width / 1e6
    count = max(1, round(megabytes / layer))
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(count)])
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    return model, optimizer


def bytes_in(model, optimizer):
    tensors = [*model.state_dict().values(),
               *(value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value))]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def sync(path):
    paths = [path] if os.path.isfile(path) else [os.path.join(path, name) for name in os.listdir(path)]
    for each in [*paths, os.path.dirname(path)]:
        descriptor = os.open(each, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def drop_from_cache(path):
    paths = [path] if os.path.isfile(path) else [os.path.join(path, name) for name in os.listdir(path)]
    for each in paths:
        descriptor = os.open(each, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def flat(model, optimizer):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = {f"model/{name}": value for name, value in model.state_dict().items()}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            found[f"optimizer/{names[id(parameter)]}/{key}"] = value
    return found


class Ours:
    name = "hvd.checkpoint"

    def write(self, path, model, optimizer):
        hvd.checkpoint.save(path, model, optimizer, step=1)

    def read(self, path, model, optimizer):
        hvd.checkpoint.restore(path, model, optimizer)


class H5py:
    """Writes the same datasets with h5py. If wanted, h5py computes its checksums."""

    def __init__(self, checksums):
        self.name = "h5py, fletcher32" if checksums else "h5py"
        self.options = {"chunks": True, "fletcher32": True} if checksums else {}

    def write(self, path, model, optimizer):
        import h5py
        with h5py.File(path, "w") as file:
            for name, value in flat(model, optimizer).items():
                file.create_dataset(name, data=value.numpy(), **(self.options if value.dim() else {}))
        sync(path)

    def read(self, path, model, optimizer):
        import h5py
        with h5py.File(path) as file:
            for name, value in flat(model, optimizer).items():
                if value.dim():
                    file[name].read_direct(value.numpy())
                else:
                    value.fill_(file[name][()])


class TorchSave:
    name = "torch.save"

    def write(self, path, model, optimizer):
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        sync(path)

    def read(self, path, model, optimizer):
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])


class DistributedCheckpoint:
    name = "torch.distributed.checkpoint"

    def write(self, path, model, optimizer):
        import torch.distributed.checkpoint as dcp
        dcp.save(flat(model, optimizer), checkpoint_id=path, no_dist=True)
        sync(path)

    def read(self, path, model, optimizer):
        import torch.distributed.checkpoint as dcp
        dcp.load(flat(model, optimizer), checkpoint_id=path, no_dist=True)


class Disk:
    name = "disk"

    def __init__(self, size):
        self.data = torch.randint(0, 255, (64 << 20,), dtype=torch.uint8).numpy().data
        self.size = size

    def write(self, path, model, optimizer):
        with open(path, "wb", buffering=0) as file:
            for at in range(0, self.size, len(self.data)):
                file.write(self.data[:self.size - at])
            os.fsync(file.fileno())

    def read(self, path, model, optimizer):
        buffer = bytearray(16 << 20)
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def timed(do, *arguments):
    began = time.perf_counter()
    do(*arguments)
    return time.perf_counter() - began


def measure(methods, folder, rounds, model, optimizer):
    times = {method.name: {"write": [], "read cold": [], "read warm": []} for method in methods}
    for _ in range(rounds):
        for method in methods:
            path = os.path.join(folder, "checkpoint")
            found = times[method.name]
            found["write"].append(timed(method.write, path, model, optimizer))
            drop_from_cache(path)
            found["read cold"].append(timed(method.read, path, model, optimizer))
            found["read warm"].append(timed(method.read, path, model, optimizer))
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                for name in os.listdir(folder):
                    os.unlink(os.path.join(folder, name))
    return {name: {kind: statistics.median(values) for kind, values in kinds.items()} for name, kinds in times.items()}


class OursAsynchronous:
    name = "hvd.checkpoint.Checkpointer"

    def __init__(self, folder, model, optimizer):
        self.checkpointer = hvd.checkpoint.Checkpointer(os.path.join(folder, "run"), model, optimizer, keep=1)

    def save(self, step):
        self.checkpointer.save(step)

    def wait(self):
        self.checkpointer.wait()

    def close(self):
        self.checkpointer.close()


class DistributedAsynchronous:
    name = "torch.distributed.checkpoint.async_save"

    def __init__(self, folder, model, optimizer):
        self.path = os.path.join(folder, "dcp")
        self.model, self.optimizer = model, optimizer

    def save(self, step):
        import torch.distributed.checkpoint as dcp
        self.writing = dcp.async_save(flat(self.model, self.optimizer), checkpoint_id=self.path, no_dist=True)

    def wait(self):
        self.writing.result()
        shutil.rmtree(self.path)

    def close(self):
        pass


def memory_of_process(what):
    """Returns VmRSS, or VmHWM, which is the greatest VmRSS since begin_peak(). In bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(what))


def begin_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def measure_stall(way, folder, rounds, model, optimizer):
    """Returns three values: the seconds that save() takes (median, without the first), the seconds until the file is
    written, and the bytes by which the process has grown at most, in the first save and in the others."""
    stalls, writes, grown = [], [], []
    before = memory_of_process("VmRSS")
    way = way(folder, model, optimizer)
    for step in range(1, rounds + 2):
        begin_peak()
        stalls.append(timed(way.save, step))
        began = time.perf_counter()
        way.wait()
        writes.append(time.perf_counter() - began + stalls[-1])
        grown.append(memory_of_process("VmHWM") - before)
    way.close()
    shutil.rmtree(folder)
    return statistics.median(stalls[1:]), statistics.median(writes[1:]), grown[0], max(grown[1:])


def plot(path, speeds):
    kinds = ["write", "read cold", "read warm"]
    most = max(max(values.values()) for values in speeds.values())
    rows, y = [], 30
    for name, values in speeds.items():
        rows.append(f'<text x="10" y="{y}" font-weight="bold">{name}</text>')
        for kind, colour in zip(kinds, ("#2a6f97", "#e07a5f", "#f2cc8f")):
            y += 18
            width = 420 * values[kind] / most
            rows.append(
                f'<rect x="110" y="{y - 12}" width="{width:.0f}" height="14" fill="{colour}"/>'
                f'<text x="20" y="{y}">{kind}</text><text x="{116 + width:.0f}" y="{y}">{values[kind]:.0f} MB/s</text>')
        y += 30
    with open(path, "w") as file:
        file.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="640" height="{y}" font-family="sans-serif" font-size="12">'
            f'{"".join(rows)}</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--folder", default=".")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plot")
    options = parser.parse_args()
    hvd.init()
    model, optimizer = make_state(options.megabytes)
    size = bytes_in(model, optimizer)
    methods = [Ours(), TorchSave(), DistributedCheckpoint(), Disk(size)]
    try:
        import h5py  # noqa: F401
        methods[1:1] = [H5py(False), H5py(True)]
    except ImportError:
        print("(no h5py here)")
    folder = tempfile.mkdtemp(prefix="checkpoint-", dir=options.folder)
    try:
        stalls = {way.name: measure_stall(way, tempfile.mkdtemp(dir=folder), options.rounds, model, optimizer)
                  for way in (OursAsynchronous, DistributedAsynchronous)}
        times = measure(methods, folder, options.rounds, model, optimizer)
    finally:
        shutil.rmtree(folder)
    speeds = {name: {kind: size / 1e6 / value for kind, value in values.items()} for name, values in times.items()}
    print(f"{size / 1e6:.0f} MB, median of {options.rounds}; MB/s\n")
    print("| | write | read cold | read warm |\n|---|---|---|---|")
    for name, values in speeds.items():
        print(f"| {name} | {values['write']:.0f} | {values['read cold']:.0f} | {values['read warm']:.0f} |")
    print("\n| asynchronous | training stands still | of a write of | share | memory, first save | later |\n"
          "|---|---|---|---|---|---|")
    for name, (stall, whole, first, later) in stalls.items():
        print(f"| {name} | {stall * 1000:.0f} ms | {whole * 1000:.0f} ms | {100 * stall / whole:.1f} % | "
              f"{first / 1e6:.0f} MB | {later / 1e6:.0f} MB |")
    for name in ("torch.save", "torch.distributed.checkpoint"):
        print(f"| {name}, not asynchronous | {times[name]['write'] * 1000:.0f} ms | the same | 100 % | | |")
    if options.plot:
        plot(options.plot, speeds)


if __name__ == "__main__":
    main()
