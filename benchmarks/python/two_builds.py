"""Compares two builds of this library: python benchmarks/python/two_builds.py OLD NEW [--pairs 5] [--ranks 2]

OLD and NEW are folders such as build/release, with bin/ and python/. The builds run by turns, a launch each, and Gloo
runs in each launch: its ratio shows how even the machine was. A row is worse if the new build's median is above the
old one's by more than 3 %, and above the slowest launch of the old one.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
PROGRAMS = {"communication.py": "allreduce,one_8B,one_8B_after_work,tiny_200,tiny_200_after_work,step_64MB",
            "training_step.py": "train_mlp,train_small_400,train_mlp_10M,train_cnn,train_resnet50_sizes"}


def launch(build, program, ranks):
    """Returns {(workload, bytes, contender): median of microseconds}."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out")
        environment = {**os.environ, "PYTHONPATH": str(build / "python"), "OMP_NUM_THREADS": "1"}
        subprocess.run([build / "bin/horovodrun", "-np", str(ranks), sys.executable, HERE / program, "--out", out,
                        "--scratch", folder, "--workloads", PROGRAMS[program]], env=environment, check=True)
        records = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(all(record["correct"].values()) for record in records if "correct" in record), records
    return {(record["workload"], record.get("bytes", ""), contender): statistics.median(times)
            for record in records for contender, times in record["us"].items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs=2, type=lambda path: pathlib.Path(path).resolve(), metavar=("OLD", "NEW"))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    seen = [{}, {}]
    for pair in range(options.pairs):
        for which in (0, 1) if pair % 2 == 0 else (1, 0):
            for program in PROGRAMS:
                for row, time in launch(options.builds[which], program, options.ranks).items():
                    seen[which].setdefault(row, []).append(time)
    print(f"{'workload':24}{'bytes':>10}  {'contender':14}{'old us':>11}{'least':>11}{'most':>11}{'new us':>11}"
          f"{'ratio':>8}")
    worse = 0
    for row, old in seen[0].items():
        workload, size, contender = row
        before, now = statistics.median(old), statistics.median(seen[1][row])
        is_worse = now > 1.03 * before and now > max(old) and "gloo" not in contender
        worse += is_worse
        print(f"{workload:24}{size:>10}  {contender:14}{before:11.1f}{min(old):11.1f}{max(old):11.1f}{now:11.1f}"
              f"{now / before:8.3f}{'  worse' * is_worse}")
    return min(worse, 1)


if __name__ == "__main__":
    sys.exit(main())
