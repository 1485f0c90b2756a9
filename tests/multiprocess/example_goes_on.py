"""The C++ example goes on where it was interrupted, and ends with the result of one that nobody interrupted:
example_goes_on.py HOROVODRUN EXAMPLE"""
import os
import signal
import subprocess
import sys
import tempfile

HOROVODRUN, EXAMPLE = sys.argv[1:3]
ROUNDS = 40


def run(file, expected, warned_after=None):
    """Runs the example and returns the lines that it prints. After this line it gets a signal that announces the end
    of the job."""
    job = subprocess.Popen([HOROVODRUN, "-np", "2", EXAMPLE, file, str(ROUNDS)], stdout=subprocess.PIPE, text=True)
    lines = []
    for line in job.stdout:
        lines.append(line)
        if warned_after and warned_after in line:
            job.send_signal(signal.SIGUSR1)
    code = job.wait()
    assert code == expected, (code, lines)
    return lines


with tempfile.TemporaryDirectory() as folder:
    whole = run(os.path.join(folder, "whole.h5"), 0)
    file = os.path.join(folder, "cut.h5")
    first = run(file, 75, "round 5:")
    second = run(file, 0)
    assert "going on after round" in second[0], second
    assert first + second[1:] == whole, (first, second, whole)
