#!/usr/bin/env python3
"""Interrupts the digits job twice, starts it again each time, and draws its losses beside those of a job that nobody
interrupted.

    python examples/digits/interrupted.py [--ranks 4] [--epochs 12] [--out docs/interrupted.svg]

It needs what examples/digits/run sets up, and horovodrun in PATH ($HOROVODRUN: elsewhere). Exits with 1 if the curves
differ in a single bit; nothing is drawn then.
"""
import argparse
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import torch

import horovod.torch as hvd

PROGRAM = pathlib.Path(__file__).with_name("train.py")
AGAIN = 75  # the exit code of a job that has saved and would go on
COLOURS = ("#c0392b", "#1668b0", "#2e8b57")


def start(options, folder, warned_after=None):
    """Runs the job, and sends it SIGUSR1 after this epoch. Returns its exit code and its output."""
    command = [os.environ.get("HOROVODRUN", "horovodrun"), "-np", str(options.ranks), sys.executable, str(PROGRAM),
               "--no-compare", "--epochs", str(options.epochs), "--checkpoints", str(folder)]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = ""
    for line in job.stdout:
        output += line
        if warned_after and re.search(rf"epoch +{warned_after}/", line):
            job.send_signal(signal.SIGUSR1)
    return job.wait(), output


def run(options, folder, warnings):
    """Returns the steps at which the job stopped, and the loss of every step."""
    stops = []
    for warned_after in [*warnings, None]:
        code, output = start(options, folder, warned_after)
        if code != (AGAIN if warned_after else 0):
            sys.exit(f"the job ended with {code}:\n{output}")
        stops += [int(step) for step in re.findall(r"stopped at step (\d+)", output)]
    return stops, hvd.checkpoint.restore(folder, random_numbers=False)["losses"]


def first_difference(one, other):
    """Returns the first step whose losses differ in a bit; None if there is none."""
    if one.shape != other.shape:
        return min(len(one), len(other)) + 1
    differ = (one.view(torch.int32) != other.view(torch.int32)).nonzero()
    return int(differ[0]) + 1 if len(differ) > 0 else None


def draw(whole, cut, stops):
    """Draws the uninterrupted curve wide and grey, and over it the curve of each start in its own colour."""
    width, height, left, top = 640, 320, 60, 40
    low, high = math.floor(math.log10(min(whole))), math.ceil(math.log10(max(whole)))

    def x_of(step):
        return left + width * step / len(whole)

    def y_of(loss):
        return top + height * (high - math.log10(loss)) / (high - low)

    def curve(losses, first, colour, thickness):
        points = "L".join(f"{x_of(first + at):.1f} {y_of(loss):.1f}" for at, loss in enumerate(losses))
        return f'<path d="M{points}" fill="none" stroke="{colour}" stroke-width="{thickness}"/>'

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 20} {top + height + 60}" '
             'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    for power in range(low, high + 1):
        y = y_of(10 ** power)
        parts.append(f'<path d="M{left} {y:.1f}H{left + width}" stroke="#ddd"/>'
                     f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0 ** power:g}</text>')
    for step in range(0, len(whole) + 1, 30):
        parts.append(f'<text x="{x_of(step):.1f}" y="{top + height + 18}" text-anchor="middle">{step}</text>')
    parts.append(f'<text x="{left + width / 2}" y="{top + height + 40}" text-anchor="middle">step</text>')
    parts.append(f'<text x="{left + width / 2}" y="24" text-anchor="middle" font-size="14">loss of the digits job: '
                 'uninterrupted (wide), and in three starts</text>')
    parts.append(curve(whole, 1, "#ccc", 7))
    edges = [0, *stops, len(cut)]
    for at, (begin, end) in enumerate(zip(edges, edges[1:])):
        parts.append(curve(cut[begin:end], begin + 1, COLOURS[at], 2))
        parts.append(f'<text x="{x_of(begin) + 6:.1f}" y="{top + 14}" fill="{COLOURS[at]}">start {at + 1}</text>')
        if begin:
            parts.append(f'<path d="M{x_of(begin + 0.5):.1f} {top}V{top + height}" stroke="#888" '
                         'stroke-dasharray="4 3"/>')
    return "\n".join([*parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--out", metavar="FILE.svg")
    options = parser.parse_args()
    hvd.init()
    with tempfile.TemporaryDirectory() as folder:
        _, whole = run(options, pathlib.Path(folder, "whole"), [])
        stops, cut = run(options, pathlib.Path(folder, "cut"), [options.epochs // 4, 2 * options.epochs // 3])
    differs = first_difference(whole, cut)
    if differs is not None:
        sys.exit(f"the loss curves DIFFER from step {differs} on: {whole[differs - 1:differs].tolist()} without an "
                 f"interruption, {cut[differs - 1:differs].tolist()} with")
    print(f"{len(cut)} losses of {options.ranks} ranks are the same to the last bit, interrupted after the steps "
          f"{' and '.join(map(str, stops))}, or not")
    if options.out:
        pathlib.Path(options.out).write_text(draw(whole.tolist(), cut.tolist(), stops), encoding="utf-8")


if __name__ == "__main__":
    main()
