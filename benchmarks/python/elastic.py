"""Writes a table of the times from the loss of a process to the next step; `benchmarks/elastic --help`."""
import argparse
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
SIZE = 3
ROWS = [  # name, with, the rank that ends, spares, whether the job has to be whole again
    ("goes on with fewer ranks", "horovod", "last", 0, False),
    ("… when rank 0 ends", "horovod", "first", 0, False),
    ("a spare takes the place", "horovod", "last", 1, True),
    ("a replacement takes the place (its start included)", "horovod", "last", 0, True),
    ("torchrun's restart of all ranks (their start included)", "torchrun", "last", 0, True),
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def run(kind, victim, spares, losses, folder):
    """Runs one job and returns its events as lists of words."""
    events = folder / f"{kind}.{victim}.{spares}"
    if not events.exists():
        events.touch()
        program = [str(HERE / "elastic_training.py"), kind, str(SIZE), str(losses), str(events), victim, str(spares)]
        if kind == "horovod":
            command = ["horovodrun", "-np", str(SIZE), "--min-np", str(SIZE - 1), "--max-np", str(SIZE), "--spares",
                       str(spares), sys.executable, *program]
        else:
            command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={SIZE}",
                       f"--max-restarts={losses}", f"--master-port={free_port()}", *program]
        with open(f"{events}.output", "w", encoding="utf-8") as output:
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} has ended with {done.returncode}:\n"
                     + pathlib.Path(f"{events}.output").read_text(encoding="utf-8")[-4000:])
    return [line.split() for line in events.read_text(encoding="utf-8").splitlines()]


def times_of(events, must_be_whole):
    """Seconds from each loss to the first step of a later start."""
    steps = [(float(word[1]), int(word[3]), int(word[4])) for word in events if word[0] == "step"]
    found = []
    for loss in (float(word[1]) for word in events if word[0] == "loss"):
        epoch = max(step[2] for step in steps if step[0] <= loss)
        later = [step[0] for step in steps if step[2] > epoch and (step[1] == SIZE or not must_be_whole)]
        found.append(min(later) - loss)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--losses", type=int, default=40)
    parser.add_argument("--only", nargs="*", default=["horovod", "torchrun", "commit"])
    parser.add_argument("--rows", type=int, nargs="*", default=range(len(ROWS)), help="of the first table, from 0 on")
    wanted = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{SIZE} ranks on {os.cpu_count()} cores, load {load:.1f} before; {wanted.losses} losses each\n")
    print("| after a loss the job | median | worst |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, kind, victim, spares, must_be_whole in (ROWS[row] for row in wanted.rows):
            if kind not in wanted.only:
                continue
            times = times_of(run(kind, victim, spares, wanted.losses, pathlib.Path(folder)), must_be_whole)
            print(f"| {name} | {statistics.median(times):.2f} s | {max(times):.2f} s |", flush=True)
    if "commit" in wanted.only:
        print("\n| ranks | one copy of 100 MB | save | asking for news of hosts | commit | by one copy |\n"
              "|---|---|---|---|---|---|", flush=True)
        for ranks in (1, 2):
            subprocess.run(["horovodrun", "-np", str(ranks), "--min-np", "1", sys.executable,
                            str(HERE / "elastic_commit.py")], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()
