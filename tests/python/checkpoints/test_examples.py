"""An example that was interrupted goes on from its checkpoint. Its state at the end must equal that of a run that
nobody interrupted."""
import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys

HOROVODRUN = os.environ.get("HOROVODRUN", "horovodrun")
EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"


def start(folder, *words, ranks=2, warned_after=None, expected=0):
    """Runs the example. When it has printed this text, it gets SIGUSR1. Returns its output."""
    job = subprocess.Popen([HOROVODRUN, "-np", str(ranks), sys.executable, *words], cwd=folder, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = ""
    for line in job.stdout:
        output += line
        if warned_after and warned_after in line:
            job.send_signal(signal.SIGUSR1)
    assert job.wait() == expected, output
    return output


def check_that_states_are_equal(one, other):
    """Asserts that two checkpoints are equal, except for the states of random number generators that the example
    neither seeds nor uses."""
    done = subprocess.run([HOROVODRUN, "--checkpoint", "diff", one, other], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    assert done.returncode in (0, 1), done.stdout
    assert re.sub(r"/random/rank_\d/(numpy|python)/.*\n", "", done.stdout) == "", done.stdout


def test_the_digits_job_interrupted_twice_has_the_losses_of_one_uninterrupted(tmp_path):
    drawn = tmp_path / "drawn.svg"
    done = subprocess.run([sys.executable, EXAMPLES / "digits" / "interrupted.py", "--ranks", "2", "--out", drawn],
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    assert "the same to the last bit" in done.stdout
    assert drawn.read_text().count("<path") >= 4


def test_a_difference_of_one_bit_is_found():
    import torch
    spec = importlib.util.spec_from_file_location("interrupted", EXAMPLES / "digits" / "interrupted.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    one = torch.rand(30)
    other = one.clone()
    assert program.first_difference(one, other) is None
    other.view(torch.int32)[17] ^= 1
    assert program.first_difference(one, other) == 18
    assert program.first_difference(one, one[:20]) == 21


def test_the_large_model_goes_on_where_it_was_interrupted(tmp_path):
    words = (str(EXAMPLES / "large_model.py"), "--megabytes", "3", "--width", "128", "--steps", "600")
    start(tmp_path, *words, "--checkpoints", "whole")
    start(tmp_path, *words, "--checkpoints", "cut", warned_after="step   100", expected=75)
    assert "going on after step" in start(tmp_path, *words, "--checkpoints", "cut")
    check_that_states_are_equal(tmp_path / "whole", tmp_path / "cut")
