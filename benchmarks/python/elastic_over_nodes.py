"""Writes a table: times from a loss to the next step, over virtual nodes; `benchmarks/elastic-over-nodes --help`."""
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from elastic import SIZE, times_of

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NODES = str(ROOT / "tests" / "cluster" / "nodes")
ROWS = [  # name, what is lost, spares
    ("a process is killed; the job goes on with fewer ranks", "last", 0),
    ("a process is killed; a spare on another node takes the place", "last", 1),
    ("a node is cut off; the job goes on with fewer ranks", "node", 0),
    ("a node is cut off; a spare on another node takes the place", "node", 1),
]
STEPS_BEFORE = 20


def events_in(path):
    return [line.split() for line in path.read_text(encoding="utf-8").splitlines()]


def cut_off_a_node(events, spares, job):
    """Cuts off the node of a rank that is not rank 0, when all ranks have made some steps. Returns the node."""
    while job.poll() is None:
        found = events_in(events)
        steps = [words for words in found if words[0] == "step" and int(words[2]) == SIZE - 1]
        if len(steps) >= STEPS_BEFORE and sum(words[0] == "ready" for words in found) == SIZE + spares:
            node = steps[-1][5]
            lost_at = time.time()
            subprocess.run([NODES, "cut", node], check=True)
            with events.open("a", encoding="utf-8") as file:
                file.write(f"loss {lost_at} {SIZE - 1} {SIZE}\n")
            return node
        time.sleep(0.02)
    return None


def time_of_a_loss(lost, spares, events):
    """Runs a job that has one loss, and returns the seconds from it to the next step."""
    events.touch()
    hosts = ",".join(f"n{number}:1" for number in range(1, SIZE + 1 + spares))
    command = [NODES, "on", "n1", "horovodrun", "-np", str(SIZE), "--min-np", str(SIZE - 1), "--max-np", str(SIZE),
               "--spares", str(spares), "-H", hosts, sys.executable, str(HERE / "elastic_training.py"),
               "nodes", str(SIZE), "1", str(events), lost, str(spares)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HOROVOD_SSH": str(ROOT / "tests" / "cluster" / "agent")}
    with open(f"{events}.output", "w", encoding="utf-8") as output:
        job = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        node = None
        try:
            node = cut_off_a_node(events, spares, job) if lost == "node" else None
            code = job.wait()
        finally:
            job.terminate()
            if node:
                subprocess.run([NODES, "mend", node], check=True)
    if code != 0:
        sys.exit(f"{' '.join(command)} has ended with {code}:\n"
                 + pathlib.Path(f"{events}.output").read_text(encoding="utf-8")[-4000:])
    return times_of(events_in(events), must_be_whole=bool(spares))[0]


def main():
    losses = int(sys.argv[1])
    print(f"{SIZE} ranks on {SIZE} virtual nodes of {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before; "
          f"{losses} losses each\n\n| over TCP | median | worst |\n|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        for row, (name, lost, spares) in enumerate(ROWS):
            times = [time_of_a_loss(lost, spares, pathlib.Path(folder) / f"{row}.{loss}") for loss in range(losses)]
            print(f"| {name} | {statistics.median(times):.2f} s | {max(times):.2f} s |", flush=True)


main()
