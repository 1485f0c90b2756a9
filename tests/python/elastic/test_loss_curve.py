"""A training that loses five processes has the losses of an undisturbed one."""
import os
import pathlib
import subprocess
import sys

import pytest

HOROVODRUN = os.environ.get("HOROVODRUN", "horovodrun")
PROGRAM = pathlib.Path(__file__).parent / "loss_curve_rank.py"
LOST = "1 2;5 0;10 1;16 0;20 2"


def job(folder, options, **variables):
    folder.mkdir()
    return subprocess.run([HOROVODRUN, "-np", "3", *options, sys.executable, str(PROGRAM)], cwd=folder, text=True,
                          timeout=300, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          env={**os.environ, "OMP_NUM_THREADS": "1", **variables})


def curve(folder, options, **variables):
    """The loss of each step; a step that was made again has its last one."""
    done = job(folder, options, **variables)
    assert done.returncode == 0, done.stdout
    lost = [each for each in os.listdir(folder) if each.startswith("lost.")]
    assert len(lost) == variables.get("LOST", "").count(";") + ("LOST" in variables), done.stdout
    lines = (folder / "losses").read_text(encoding="utf-8").splitlines()
    steps = dict(line.split() for line in lines)
    assert len(steps) == 24, done.stdout
    return {step: float.fromhex(loss) for step, loss in steps.items()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return curve(tmp_path_factory.mktemp("job") / "undisturbed", ["--min-np", "3"])


def test_replaced_ranks_give_the_same_bits(tmp_path, undisturbed):
    assert curve(tmp_path / "run", ["--min-np", "3", "--spares", "1"], LOST=LOST) == undisturbed


def test_fewer_ranks_give_the_same_losses_but_for_rounding(tmp_path, undisturbed):
    found = curve(tmp_path / "run", ["--min-np", "1"], LOST="1 2;5 0")
    assert found == pytest.approx(undisturbed, rel=1e-4)


def test_a_process_set_that_does_not_fit_any_more_is_named(tmp_path):
    done = job(tmp_path / "run", ["--min-np", "1"], LOST="1 1", SETS="0 2")
    assert done.returncode not in (0, 75), done.stdout
    assert "a process set needs ranks from 0 to 1, each once; got [0, 2]" in done.stdout
    assert "The process sets of hvd.init() need 3 ranks: start the job with --min-np 3" in done.stdout
