"""Elastic jobs with a live state: a rank is killed in each phase of a step, and no step is made twice or left out."""
import os
import pathlib
import subprocess
import sys

import pytest

HOROVODRUN = os.environ.get("HOROVODRUN", "horovodrun")
PROGRAM = pathlib.Path(__file__).parent / "live_rank.py"
STEPS, STEP = 12, 7
# Where the others begin again: what was committed, what was marked with the step that was going on, or the copy.
BEGINS = {"forward": STEP, "between": STEP, "step": STEP + 1, "commit": STEP + 1, "ahead": STEP + 1, "behind": 5}


def result():
    first = second = momentum = 0.0
    for number in range(1, STEPS + 1):
        momentum = 0.5 * momentum + number
        first, second = first + number, second + momentum
    return f"done {STEPS} {first} {first} {second} {first}"


@pytest.mark.parametrize("phase,victim", [(phase, victim) for phase in BEGINS for victim in (0, 2)
                                          if (phase, victim) != ("ahead", 0)])
def test_no_step_is_made_twice_or_left_out(tmp_path, phase, victim):
    done = subprocess.run([HOROVODRUN, "-np", "3", "--min-np", "1", sys.executable, str(PROGRAM)], cwd=tmp_path,
                          text=True, timeout=110, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          env={**os.environ, "PHASE": phase, "STEP": str(STEP), "VICTIM": str(victim),
                               "COMMITS_PER_COPY": "5", "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0 and (tmp_path / "killed").exists(), done.stdout
    lines = [line.split(":", 1)[1] for line in done.stdout.splitlines() if "<stdout>:" in line]
    assert {line for line in lines if line.startswith("done ")} == {result()}, done.stdout
    begins = [line.split() for line in lines if line.startswith("began ")]
    assert max(len(each) for each in begins) >= 3, "a rank that was there from the first step"
    assert {each[2] for each in begins if each[1] == "0"} == {str(BEGINS[phase])}, done.stdout
    is_told = "no rank that is left had the state of the last commit any more" in done.stdout
    assert is_told is (phase == "behind"), done.stdout
