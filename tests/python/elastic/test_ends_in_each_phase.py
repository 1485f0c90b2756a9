"""Elastic jobs whose processes are killed in each phase. The job goes on, and ends with 0."""
import os
import pathlib
import subprocess
import sys

import pytest

HOROVODRUN = os.environ.get("HOROVODRUN", "horovodrun")
PROGRAM = pathlib.Path(__file__).parent / "train.py"

SCHEDULES = {
    "at the start": "start {rank} 3",
    "in a step": "step {rank} 3",
    "before a commit": "commit {rank} 3",
    "in the reset after another one": "step 2 3;reset {rank} 2",
    "one after the other": "step {rank} 3;commit {rank} 2",
}


@pytest.mark.parametrize("when", SCHEDULES)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_is_killed(tmp_path, when, rank):
    found = subprocess.run([HOROVODRUN, "-np", "3", "--min-np", "1", sys.executable, str(PROGRAM)], cwd=tmp_path,
                           text=True, timeout=110, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           env={**os.environ, "ENDS": SCHEDULES[when].format(rank=rank)})
    assert found.returncode == 0, found.stdout
    survived = found.stdout.count("was killed by signal 9 (SIGKILL): the job goes on")
    assert survived >= SCHEDULES[when].count(";") + 1 or when == "at the start", found.stdout
    ends = [line.split(":", 1)[1].split(" ", 2)[2] for line in found.stdout.splitlines() if "<stdout>:done " in line]
    assert len(ends) >= 1 and len(set(ends)) == 1, found.stdout
