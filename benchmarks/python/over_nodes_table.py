"""Prints what communication.py measured, as rows like those of mpi/over_nodes.cpp: milliseconds, and how many times
faster than the first contender."""
import json
import statistics
import sys

NAMES = {"gloo": "gloo", "gloo_packed": "gloo", "ours_library": "tcp", "ours": "tcp", "ours_together": "tcp, grouped"}


def main():
    print("| workload | gloo ms | tcp ms | tcp, grouped ms |\n|---|---|---|---|")
    with open(sys.argv[1]) as file:
        for row in map(json.loads, file):
            times = {NAMES[name]: rounds for name, rounds in row["us"].items() if name in NAMES}
            if not all(row["correct"].values()):
                sys.exit(f"wrong values: {row}")
            peer = times.pop("gloo")
            cells = [f"{row['bytes']} B in {row.get('tensors', 1)}", f"{statistics.median(peer) / 1e3:.3f}"]
            for name in ("tcp", "tcp, grouped"):
                if name not in times:
                    cells.append("")
                    continue
                ratios = [theirs / ours for theirs, ours in zip(peer, times[name])]
                cells.append(f"{statistics.median(times[name]) / 1e3:.3f} · {statistics.median(ratios):.2f}x "
                             f"({min(ratios):.2f}–{max(ratios):.2f})")
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
