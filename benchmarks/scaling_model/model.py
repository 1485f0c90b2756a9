#!/usr/bin/env python3
"""A model, not a measurement: how well a step of ResNet-50 is predicted to scale, from one node to 27 600 GPUs, by the
three ways of an allreduce of tensors in device memory. Writes SCALING.md and scaling.svg into a folder.

    benchmarks/scaling_model/model.py [--out benchmarks]

The formulas are those by which the library itself compares its ways (NcclLink::cost in src/transport/nccl/link.cpp,
stage_times() and pipelined() in src/collectives/hierarchical/on_device/estimate.cpp), with a site's figures in place of
the assumed ones. Nothing here has run on more than one GPU.
"""
import argparse
import math
import pathlib
import re
import textwrap
from dataclasses import dataclass

PARAMETER_BYTES = 25_557_032 * 4  # gradients of float32
IMAGES = 64
BACKWARD = 2 / 3                  # of a step; its gradients come evenly over this time
THRESHOLD = 32 << 20              # HOROVOD_DEVICE_FUSION_THRESHOLD
IDLE_BYTES, LINGER_S = 1 << 20, 1e-3
MOST_SHARE, LEAST_SHARE = 1 << 20, 64 << 10
RAIL_HOP_S, NCCL_HOP_S, NODE_HOP_S = 3e-6, 2e-6, 1e-6
NCCL_LAUNCH_S, COPY_S, MOVE_S = 5e-6, 10e-6, 3e-6
WAYS = {"flat": "#c0392b", "hierarchical": "#1668b0", "torus": "#2e8b57"}
HERE = pathlib.Path(__file__).resolve().parent


@dataclass
class Site:
    name: str
    gpus: int            # of a node
    node_rate: float     # bytes per second from GPU to GPU, which NCCL reaches in a node
    network_rate: float  # of a node
    bus_rate: float      # of a GPU from or to the host
    memory_rate: float   # of a GPU that packs: bytes of tensors per second
    step_s: float        # a step of one GPU alone
    counts: tuple[int, ...]  # of nodes
    source: str


SITES = (
    Site("Summit", 6, 40e9, 23e9, 40e9, 300e9, IMAGES / 1200, (1, 2, 8, 32, 86, 342, 1024, 2048, 4600),
         "V100: 1200 images/s in mixed precision (NVIDIA DeepLearningExamples, ResNet-50 v1.5, one V100 of 16 GB); "
         "two NVLinks of 25 GB/s to each neighbour and to the host, 80 % of which is assumed; 23 GB/s of network for "
         "a node (OLCF's Summit user guide)"),
    Site("8 H200 on a node", 8, 275e9, 8 * 46e9, 50e9, 1500e9, 16.5e-3, (1, 2, 8, 32, 64, 256, 1024, 3450),
         "the step alone was measured (RESULTS-gpu.md); 275 GB/s in a node and 46 GB/s for each of 8 adapters "
         "(nccl-tests, issues 212 and 290); PCIe 5 at 80 %; packing as measured, at half the rate of reads and writes"),
)


def doublings(size):
    return (size - 1).bit_length()


def nccl_s(size, share, hop_s, rate, ways=2):
    """Seconds of an allreduce (ways=2), or of half of it, of `share` bytes."""
    return NCCL_LAUNCH_S + ways * (doublings(size) * hop_s + (size - 1) / size * share / rate)


def flat_s(site, nodes, size):
    ranks = nodes * site.gpus
    if nodes == 1:
        return nccl_s(ranks, size, NODE_HOP_S, site.node_rate) + 2 * (MOVE_S + size / site.memory_rate)
    return nccl_s(ranks, size, NCCL_HOP_S, site.network_rate) + 2 * (MOVE_S + size / site.memory_rate)


def stages_s(site, nodes, chunk, over_host):
    """Seconds of the stages of a chunk."""
    share = chunk / site.gpus
    stages = [2 * (MOVE_S + chunk / site.memory_rate),
              2 * nccl_s(site.gpus, chunk, NODE_HOP_S, site.node_rate, ways=1)]
    rail_rate = site.network_rate / site.gpus  # the rails of a node share its adapters
    if over_host:
        copy = COPY_S + share / site.bus_rate
        return stages + [copy, 2 * doublings(nodes) * RAIL_HOP_S + 2 * (nodes - 1) / nodes * share / rail_rate, copy]
    return stages + [nccl_s(nodes, share, NCCL_HOP_S, rail_rate)]


def staged_s(site, nodes, size, over_host):
    if nodes == 1:
        return flat_s(site, nodes, size)
    best = math.inf
    share = MOST_SHARE
    while share >= LEAST_SHARE:
        chunks = max(1, math.ceil(size / (share * site.gpus)))
        stages = stages_s(site, nodes, size / chunks, over_host)
        best = min(best, (chunks - 1) * max(stages) + sum(stages))
        share //= 2
    return best


def batch_s(way, site, nodes, size):
    if way == "flat":
        return flat_s(site, nodes, size)
    return staged_s(site, nodes, size, over_host=way == "hierarchical")


def agreement_s(ranks):
    """Seconds until all ranks know what the last one has submitted: between the rows of AGREEMENT.md."""
    rows = re.findall(r"^\| (\d+) \|(?: [^|]* \|){4} ([\d.]+) (us|ms) \|", (HERE.parent / "AGREEMENT.md").read_text(),
                      re.M)
    known = [(1, 5e-6)] + [(int(size), float(time) * (1e-6 if unit == "us" else 1e-3)) for size, time, unit in rows]
    for (low, before), (high, after) in zip(known, known[1:]):
        if ranks <= high:
            part = math.log(ranks / low) / math.log(high / low)
            return before + part * (after - before)
    return known[-1][1]


def step_s(way, site, nodes):
    """Seconds of a step. A batch takes what is ready when the one before ends: at least 1 MB, or what came within a
    millisecond."""
    backward = BACKWARD * site.step_s
    begin = site.step_s - backward
    agreement = agreement_s(nodes * site.gpus)
    now, sent = begin, 0.0

    def ready(time):
        return min(PARAMETER_BYTES, PARAMETER_BYTES * max(0.0, time - begin - agreement) / backward)

    while sent < PARAMETER_BYTES - 1:
        for_idle = begin + agreement + backward * min(1, (sent + IDLE_BYTES) / PARAMETER_BYTES)
        first = begin + agreement + backward * sent / PARAMETER_BYTES
        now = max(now, min(for_idle, first + LINGER_S, begin + agreement + backward))
        size = min(THRESHOLD, ready(now) - sent)
        if size <= 0:  # rounding
            now += 1e-6
            continue
        now += batch_s(way, site, nodes, size)
        sent += size
    return max(site.step_s, now)


def efficiency(way, site, nodes):
    return site.step_s / step_s(way, site, nodes)


def percent(value):
    return f"{100 * value:.1f} %"


def table(site):
    lines = [f"## {site.name}: {site.gpus} GPUs a node, {site.step_s * 1e3:.1f} ms a step of {IMAGES} images", "",
             *textwrap.wrap(f"From: {site.source}.", 116), "",
             "| GPUs | nodes | " + " | ".join(WAYS) + " | all gradients in one batch: " + " | ".join(WAYS) + " |",
             "|--:" * (2 + 2 * len(WAYS)) + "|"]
    for nodes in site.counts:
        cells = [percent(efficiency(way, site, nodes)) for way in WAYS]
        cells += [f"{1e3 * batch_s(way, site, nodes, PARAMETER_BYTES):.2f} ms" for way in WAYS]
        lines.append(f"| {nodes * site.gpus} | {nodes} | " + " | ".join(cells) + " |")
    return lines + [""]


def plot():
    width, height, left, top = 420, 300, 60, 40
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * (width + left) + 50} {height + top + 60}" '
             'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    low = 100 * min(efficiency(way, site, nodes) for way in WAYS for site in SITES for nodes in site.counts)
    low = max(0, 10 * math.floor(low / 10))
    for panel, site in enumerate(SITES):
        x0 = left + panel * (width + left)
        first, last = site.counts[0], site.counts[-1]

        def x_of(nodes):
            return x0 + width * math.log(nodes / first) / math.log(last / first)

        def y_of(value):
            return top + height * (100 - 100 * value) / (100 - low)

        parts.append(f'<text x="{x0 + width / 2}" y="24" text-anchor="middle" font-size="14">{site.name}: predicted '
                     'efficiency (a model)</text>')
        for tick in range(low, 101, 10 if low < 90 else 2):
            parts.append(f'<path d="M{x0} {y_of(tick / 100):.1f}H{x0 + width}" stroke="#ddd"/><text x="{x0 - 6}" '
                         f'y="{y_of(tick / 100) + 4:.1f}" text-anchor="end">{tick} %</text>')
        for nodes in site.counts:
            parts.append(f'<text x="{x_of(nodes):.1f}" y="{top + height + 18}" text-anchor="middle">'
                         f'{nodes * site.gpus}</text>')
        parts.append(f'<text x="{x0 + width / 2}" y="{top + height + 38}" text-anchor="middle">GPUs</text>')
        for row, (way, colour) in enumerate(WAYS.items()):
            points = [(x_of(nodes), y_of(efficiency(way, site, nodes))) for nodes in site.counts]
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            parts.append(f'<text x="{x0 + 12}" y="{top + height - 52 + 18 * row}" fill="{colour}">{way}</text>')
    return "\n".join(parts + ["</svg>", ""])


HEAD = """# How a step is predicted to scale

**This is a model, not a measurement.** Nothing of it has run on more than one GPU. `scaling_model/model.py` computes it
from the formulas by which the library compares its ways (`NcclLink::cost`, `hierarchical/on_device/estimate.cpp`), with
figures of sites in place of the assumed ones:

    benchmarks/scaling_model/model.py

![predicted efficiency](scaling.svg)

What is assumed:

- ResNet-50 with gradients of float32 (102 MB). They come evenly over the last two thirds of the step, and batches of at
  most 32 MB go as they do in the library: the next one takes what is ready when the one before ends.
- Communication takes nothing from the GPU's arithmetic, and all ranks are equally fast. On real machines the slowest of
  thousands of ranks, the file system and the network's other jobs cost more than anything here: 0.93 was published for
  27 600 V100 of Summit (Romero et al., NSDI 2022; Laanait et al., 2019), 90 % for ResNet-101 and Inception V3 and 68 %
  for VGG-16 on 512 Pascal GPUs (Horovod's documentation). So this is a bound from above.
- Messages of NCCL take 2 us a hop between nodes and trees over all ranks; shares of the rail over the host 3 us. The
  network has no congestion. The agreement takes the time of [`AGREEMENT.md`](AGREEMENT.md).
- Each rank of a node has a rail and its part of the node's adapters. *hierarchical* goes through the host's memory
  (`HOROVOD_HIERARCHICAL_ALLREDUCE`), *torus* from GPU to GPU (`HOROVOD_TORUS_ALLREDUCE`).
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parent)
    out = parser.parse_args().out
    lines = [line for site in SITES for line in table(site)]
    (out / "SCALING.md").write_text(HEAD + "\n" + "\n".join(lines).rstrip() + "\n")
    (out / "scaling.svg").write_text(plot())


if __name__ == "__main__":
    main()
