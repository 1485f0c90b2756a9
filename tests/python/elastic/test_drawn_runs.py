"""Elastic jobs with faults that a seed draws: the phase, the victim and the cause.

HVD_SEEDS=200 makes 200 runs; HVD_SEEDS=17: and HVD_SEEDS=17:18 name the first and the one after the last.
HVD_ELASTIC_TIMEOUT: how long horovodrun waits for a stopped rank, and for each process to import its modules.
"""
import os
import pathlib
import random
import subprocess
import sys

import pytest

HOROVODRUN = os.environ.get("HOROVODRUN", "horovodrun")
PROGRAM = pathlib.Path(__file__).parent / "drawn_rank.py"
STEPS = 30
TIMEOUT = os.environ.get("HVD_ELASTIC_TIMEOUT", "60")
# A job whose faults leave no rank with the state, or come after the end of others, may end so, and only so.
NAMED_ENDS = ("no rank is left that has the state of the training", "after other ranks had finished",
              "all processes have ended before they had ranks", "all ranks must make the same number of steps")


@pytest.fixture(autouse=True)
def ends_if_it_hangs():
    """Takes the place of the limit of all tests: the job has a longer one, because horovodrun may wait for TIMEOUT."""


def result():
    """What drawn_rank.py prints: exact numbers, whichever ranks have trained."""
    plain = rolling = momentum = 0.0
    for step in range(1, STEPS + 1):
        momentum = 0.5 * momentum + step
        plain, rolling = plain + step, rolling + momentum
    return f"done {STEPS} {plain} {plain!r} {rolling!r}"


def seeds():
    text = os.environ.get("HVD_SEEDS", "8")
    first, _, last = text.partition(":") if ":" in text else ("0", ":", text)
    return range(int(first), int(last or int(first) + 1))


PHASES = {"start": 1, "call": 1, "meeting": 2, "again": 3, "step": 4, "commit": 3, "reset": 2, "end": 1}


def draw(seed):
    """Returns the number of ranks, the spares, the faults, and whether the state is live."""
    dice = random.Random(seed)
    faults = []
    for step in dice.sample(range(1, 28), dice.randint(1, 3)):
        phase = dice.choices(list(PHASES), list(PHASES.values()))[0]
        cause = dice.choice(["SIGKILL", "SIGKILL", "SIGSEGV", "exit", "exception", "SIGSTOP"])
        if phase in ("meeting", "again") and cause == "exception" or phase == "end" and cause == "SIGSTOP":
            cause = "SIGKILL"  # a thread's exception ends no process; after the training nobody waits for anybody
        faults.append((phase, str(dice.randint(0, 3)), str(step), cause))
    if any(fault[0] == "again" for fault in faults):  # a failure comes first
        faults.append(("step", str(dice.randint(0, 3)), "1", "SIGKILL"))
    ranks, spares, is_live = dice.randint(2, 4), dice.choice([0, 0, 1, 2]), dice.random() < 0.5
    if len(faults) >= ranks:  # a rank that meets nobody is not missed, however long it is stopped
        faults = [(*fault[:3], "SIGKILL") if fault[0::3] == ("again", "SIGSTOP") else fault for fault in faults]
    return ranks, spares, faults, is_live


def must_succeed(faults, ranks):
    """One fault less than ranks leaves a rank with the state, unless it comes when the others have finished."""
    return len(faults) < ranks and all(fault[0] != "end" for fault in faults)


@pytest.mark.parametrize("seed", seeds())
def test_a_job_with_drawn_faults_ends_with_its_result_or_by_name(tmp_path, seed):
    ranks, spares, faults, is_live = draw(seed)
    text = ";".join(" ".join(fault) for fault in faults)
    options = ["-np", str(ranks), "--min-np", "1", "--elastic-timeout", TIMEOUT, "--spares", str(spares)]
    environment = {**os.environ, "FAULTS": text, "LIVE": str(int(is_live)), "OMP_NUM_THREADS": "1",
                   "HOROVOD_TERMINATION_GRACE_SECONDS": "1",
                   "HOROVOD_STALL_CHECK_TIME_SECONDS": "3", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "6"}
    drawn = f"seed {seed}: {' '.join(options)}, live {is_live}, faults {text}\n"
    try:
        done = subprocess.run([HOROVODRUN, *options, sys.executable, str(PROGRAM)], cwd=tmp_path, text=True,
                              timeout=120 + 4 * int(TIMEOUT), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=environment, check=False)
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"{late.timeout} s were not enough, {drawn}{late.output.decode()}", pytrace=False)
    seen = drawn + done.stdout
    print(seen)  # pytest -rP shows it
    results = [line.split(":", 1)[1] for line in done.stdout.splitlines() if "<stdout>:done " in line]
    assert set(results) <= {result()}, seen
    if done.returncode == 0:
        assert results, seen
        for number, fault in enumerate(faults):
            # A reset comes only after a fault that some rank has survived.
            sure = fault[0] not in ("reset", "again")
            assert not sure or (tmp_path / f"fault.{number}").exists(), f"without fault {number}, {seen}"
    else:
        assert not must_succeed(faults, ranks), seen
        assert any(end in done.stdout for end in NAMED_ENDS), seen
