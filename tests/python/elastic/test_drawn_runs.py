"""Elastic jobs with faults that a seed draws: the phase, the victim and the cause.

HVD_SEEDS=200 makes 200 runs; HVD_SEEDS=17: and HVD_SEEDS=17:18 name the first and the one after the last.
"""
import os
import pathlib
import random
import subprocess
import sys

import pytest

HOROVODRUN = os.environ.get("HOROVODRUN", "horovodrun")
PROGRAM = pathlib.Path(__file__).parent / "drawn_rank.py"
RESULT = f"done 30 {sum(range(1, 31)):.1f}"
# A job whose faults leave no rank with the state, or come after the end of others, may end so, and only so.
NAMED_ENDS = ("no rank is left that has the state of the training", "after other ranks had finished",
              "all processes have ended before they had ranks", "all ranks must make the same number of steps")


def seeds():
    text = os.environ.get("HVD_SEEDS", "8")
    first, _, last = text.partition(":") if ":" in text else ("0", ":", text)
    return range(int(first), int(last or int(first) + 1))


def draw(seed):
    """Returns the number of ranks and the faults."""
    dice = random.Random(seed)
    faults = []
    for step in dice.sample(range(1, 28), dice.randint(1, 3)):
        phase = dice.choices(["start", "meeting", "step", "commit", "reset", "end"], [1, 2, 4, 3, 2, 1])[0]
        cause = dice.choice(["SIGKILL", "SIGKILL", "SIGSEGV", "exit", "exception"])
        faults.append((phase, str(dice.randint(0, 3)), str(step), cause))
    return dice.randint(2, 4), faults


def must_succeed(faults, ranks):
    """One fault less than ranks leaves a rank with the state, unless it comes when the others have finished."""
    return len(faults) < ranks and all(fault[0] != "end" for fault in faults)


@pytest.mark.parametrize("seed", seeds())
def test_a_job_with_drawn_faults_ends_with_its_result_or_by_name(tmp_path, seed):
    ranks, faults = draw(seed)
    text = ";".join(" ".join(fault) for fault in faults)
    done = subprocess.run([HOROVODRUN, "-np", str(ranks), "--min-np", "1", sys.executable, str(PROGRAM)], cwd=tmp_path,
                          text=True, timeout=110, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "FAULTS": text, "OMP_NUM_THREADS": "1"}, check=False)
    seen = f"seed {seed}: -np {ranks}, faults {text}\n{done.stdout}"
    results = [line.split(":", 1)[1] for line in done.stdout.splitlines() if "<stdout>:done " in line]
    assert set(results) <= {RESULT}, seen
    if done.returncode == 0:
        assert results, seen
        for number, fault in enumerate(faults):
            assert fault[0] == "reset" or (tmp_path / f"fault.{number}").exists(), f"without fault {number}, {seen}"
    else:
        assert not must_succeed(faults, ranks), seen
        assert any(end in done.stdout for end in NAMED_ENDS), seen
