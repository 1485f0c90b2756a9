"""Measures how long it takes before a user's program does anything: imports, and horovodrun until the first line of 4
ranks."""
import argparse
import json
import subprocess
import sys
import time



def seconds_to_import(statement, before):
    program = f"{before}\nimport time\nbegin = time.perf_counter()\n{statement}\nprint(time.perf_counter() - begin)"
    return float(subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE).stdout)


def seconds_to_first_line(horovodrun, ranks):
    """Returns the time until the last rank runs its first line."""
    begin = time.time()
    lines = subprocess.run([horovodrun, "-np", str(ranks), "--oversubscribe", "date", "+now %s.%N"], check=True,
                           stdout=subprocess.PIPE, text=True).stdout
    return max(float(line.split()[-1]) for line in lines.splitlines() if "now" in line) - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--horovodrun", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    subprocess.run([sys.executable, "-c", "import horovod.torch"], check=True)  # loads the files into the page cache
    measured = {
        "import_horovod": lambda: seconds_to_import("import horovod", ""),
        "import_horovod_torch": lambda: seconds_to_import("import horovod.torch", "import torch"),
        "horovodrun_4": lambda: seconds_to_first_line(options.horovodrun, 4)}
    for name, measure in measured.items():
        measure()
        milliseconds = [1e3 * measure() for _ in range(options.rounds)]
        with open(options.out, "a") as file:
            file.write(json.dumps({"program": "start", "workload": name, "ms": milliseconds}) + "\n")


if __name__ == "__main__":
    main()
