#!/usr/bin/env python3
"""What the simulator predicts for 4 nodes of 2 ranks beside what virtual nodes measure.

    tests/cluster/nodes with 4 --share BUILD -- benchmarks/agreement_simulator/compare.py BUILD [--rounds N]

Steps of 200 tensors without elements: agreement and nothing else. Messages and bytes need no fitting. How long the work
of a rank and of a frame takes, and a sleeper to wake, is fitted to 1, 2 and 3 nodes of 2 ranks, measured in turns with
the 4 that are predicted; all virtual nodes share this machine's cores, so the simulated ones share as many. The first
decile of a round's steps and the least of the rounds counts: whatever else runs here only adds to it. Exit code 1: off
by more than 20 %; 77: no cluster.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CLUSTER = HERE.parent.parent / "tests" / "cluster"
STEPS = 1000
LIMIT = 0.2
FITTED = ("--rank-submits", "--frame-sent", "--wake")


def measure(build, nodes):
    hosts = ",".join(f"n{1 + i // 2}" for i in range(2 * nodes))
    command = [CLUSTER / "nodes", "on", "n1", build / "tests/rendezvous_launcher", CLUSTER / "agent", hosts,
               build / "tests/frames_rank", str(STEPS), "0"]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, check=True, timeout=300)
    return json.loads(done.stdout)


def simulate(build, nodes, fitted):
    options = {"--hosts": nodes, "--ranks-per-host": 2, "--steps": 4, "--shared-cores": os.cpu_count(),
               "--latency": 1000, "--jitter": 0, "--gigabits": 40, "--item": 20, **fitted}
    options["--rank-finishes"] = options["--rank-submits"]
    options["--frame-received"] = options["--frame-sent"]
    words = [str(word) for pair in options.items() for word in pair]
    done = subprocess.run([str(build / "bin/hvd_agreement_simulator"), *words], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["steps"][-1]


def fit(build, measured):
    """Returns the costs in nanoseconds with which the simulation comes closest to the measurement. Searches along each
    cost with steps that are halved."""
    def error(costs):
        return sum(math.log(simulate(build, nodes, costs)["duration_ns"] / 1e3 / it["quick_step_us"]) ** 2
                   for nodes, it in measured.items())
    best = {name: 4000 for name in FITTED}
    least, factor = error(best), 4.0
    while factor > 1.02:
        tried = [dict(best, **{name: round(best[name] * by)}) for name in FITTED for by in (factor, 1 / factor)]
        errors = [error(it) for it in tried]
        if min(errors) < least:
            least, best = min(errors), tried[errors.index(min(errors))]
        else:
            factor = math.sqrt(factor)
    return best


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build", type=pathlib.Path)
    options.add_argument("--rounds", type=int, default=20)
    chosen = options.parse_args()
    build = chosen.build.resolve()
    if "HVD_CLUSTER" not in os.environ:
        sys.exit("compare.py: there is no cluster: start it by tests/cluster/nodes with 4 --share BUILD -- …")
    measured = {}
    for _ in range(chosen.rounds):
        for nodes in (1, 2, 3, 4):
            it = measure(build, nodes)
            measured[nodes] = min(measured.get(nodes, it), it, key=lambda each: each["quick_step_us"])
    wanted = measured.pop(4)
    costs = fit(build, measured)
    step = simulate(build, 4, costs)
    rows = [("messages per step", step["messages"], wanted["messages"]),
            ("bytes per step", step["bytes"], wanted["bytes"]),
            ("bytes at the root per step", step["bytes_at_root"], wanted["bytes_at_root"]),
            ("time of a step, us", step["duration_ns"] / 1e3, wanted["quick_step_us"])]
    print(f"4 nodes of 2 ranks, {STEPS} steps of 200 tensors, least of {chosen.rounds} rounds, {os.cpu_count()} cores")
    print("fitted to", ", ".join(f"{nodes}x2: {it['quick_step_us']:.0f} us" for nodes, it in measured.items()), "->",
          costs)
    print(f"{'':28} {'predicted':>10} {'measured':>10} {'off by':>8}")
    worst = 0.0
    for name, predicted, found in rows:
        off = predicted / found - 1
        worst = max(worst, abs(off))
        print(f"{name:28} {predicted:10.1f} {found:10.1f} {100 * off:+7.1f}%")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
