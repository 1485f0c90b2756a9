"""Runs the benchmark programs and writes table.md, results.json and benchmark.png. Started by benchmarks/run."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys

from evaluation import evaluate, values
from launches import Launches
from plot import draw
from table import markdown
from targets import all_checks

BUSY = 1.0  # number of processes that want to run
PARTS = ("data_plane", "whole_library", "python", "start")


def cpu_model():
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def machine(records):
    commit = subprocess.run(["git", "-C", str(pathlib.Path(__file__).parent), "describe", "--always", "--dirty"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()
    peers = sorted({record["mpi_version"] for record in records if "mpi_version" in record})
    torch = sorted({"torch " + record["torch"] for record in records if "torch" in record})
    return {"processor": f"{cpu_model()}, {os.cpu_count()} cores", "kernel": platform.platform(),
            "date": datetime.datetime.now().strftime("%Y-%m-%d %H:%M"), "commit": commit or "unknown",
            "peers": ", ".join(peers + torch)}


def load_of(out, again):
    """Returns the load at the time when the records were made."""
    kept = out / "load"
    if not again or not kept.exists():
        kept.write_text(f"{os.getloadavg()[0]}")
    return float(kept.read_text())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--horovodrun", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--again", action="store_true", help="no measuring: table and plot of the records that exist")
    options = parser.parse_args()
    # ends by an exception, so that the launched programs are ended, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    out = pathlib.Path(options.out).resolve()  # absolute, because a part of it becomes a file:// address
    out.mkdir(parents=True, exist_ok=True)
    load = load_of(out, options.again)
    programs = pathlib.Path(options.build) / "bin"
    peers = [peer for peer in ("openmpi", "mpich")
             if shutil.which(f"mpiexec.{peer}") and (programs / f"hvd_data_plane_{peer}").exists()]
    if load > BUSY and not options.again:
        print(f"The machine is busy (load {load:.1f}): what is measured now says little.", flush=True)
    launches = Launches(options.build, out, options.horovodrun, options.quick, options.only.split(","), peers)
    if not options.again:
        for name in ("records.jsonl", "launches.log"):
            (out / name).unlink(missing_ok=True)
        launches.run()
    with open(launches.records) as file:
        records = [json.loads(line) for line in file]
    about = machine(records)
    about["load before"] = f"{load:.1f}" + (" — BUSY: other programs ran, these numbers say little" if load > BUSY
                                            else "")
    rows = [row for row in (evaluate(check, records) for check in all_checks()) if row is not None]
    numbers = values(records)
    table = markdown(about, rows, numbers, launches.failures, options.quick)
    (out / "table.md").write_text(table)
    (out / "results.json").write_text(json.dumps(
        {"machine": about, "rows": rows, "values": numbers, "failures": launches.failures, "records": records},
        indent=1))
    draw(out / "benchmark.png", about, records, rows)
    print(f"\n{table}\nwritten: {out / 'table.md'}, {out / 'results.json'}, {out / 'benchmark.png'}")
    return 1 if launches.failures or any(row["verdict"] == "WRONG RESULT" for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
