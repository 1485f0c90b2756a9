"""The C++ example goes on where it was interrupted, and ends with the result of one that nobody interrupted:
example_goes_on.py HOROVODRUN EXAMPLE"""
import os
import signal
import subprocess
import sys
import tempfile

HOROVODRUN, EXAMPLE = sys.argv[1:3]
ROUNDS = 40


def run(file, warned_after=None):
    """Runs the example and returns its exit code and the lines that it prints. After this line it gets a signal that
    announces the end of the job."""
    job = subprocess.Popen([HOROVODRUN, "-np", "2", EXAMPLE, file, str(ROUNDS)], stdout=subprocess.PIPE, text=True)
    lines = []
    for line in job.stdout:
        lines.append(line)
        if warned_after and warned_after in line:
            job.send_signal(signal.SIGUSR1)
    return job.wait(), lines


with tempfile.TemporaryDirectory() as folder:
    code, whole = run(os.path.join(folder, "whole.h5"))
    assert code == 0, (code, whole)
    for attempt in range(5):  # while this process stands still, the example may come to its end
        file = os.path.join(folder, f"cut.{attempt}.h5")
        code, first = run(file, "round 5:")
        if code != 0:
            break
    assert code == 75, (code, first)
    code, second = run(file)
    assert code == 0, (code, second)
    assert "going on after round" in second[0], second
    assert first + second[1:] == whole, (first, second, whole)
