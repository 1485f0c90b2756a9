"""An elastic job that must end for want of ranks writes its last commit, if its state was given a Checkpointer."""
import os
import pathlib
import subprocess
import sys

HOROVODRUN = os.environ.get("HOROVODRUN", "horovodrun")
PROGRAM = pathlib.Path(__file__).parent / "kept_rank.py"
TOO_FEW = "2 ranks are needed (--min-np), 1 can take part, and the hosts of this job are fixed"


def job(folder, **variables):
    done = subprocess.run([HOROVODRUN, "-np", "2", "--min-np", "2", sys.executable, str(PROGRAM)], cwd=folder,
                          text=True, timeout=300, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          env={**os.environ, "OMP_NUM_THREADS": "1", **variables})
    lines = [line.partition("<stdout>:")[2] for line in done.stdout.splitlines() if "<stdout>:" in line]
    return done.returncode, set(lines), done.stdout


def test_too_few_ranks_end_with_75_after_the_last_commit_was_saved(tmp_path):
    code, lines, seen = job(tmp_path, LOSES="1")
    assert code == 75, seen
    assert f"{TOO_FEW}; the training was saved" in seen, seen
    assert "FIRST FAILURE" not in seen, seen
    assert sorted(os.listdir(tmp_path / "run")) == ["step-000000000005.h5", "step-000000000006.h5"], seen
    code, lines, seen = job(tmp_path)
    assert code == 0, seen
    assert "begins with step 6" in lines, seen
    _, undisturbed, seen = job(tmp_path / "run")  # another folder, without a checkpoint in its own folder `run`
    assert {line for line in lines if line.startswith("done")} == undisturbed - {"begins with step 0"}, seen


def test_too_few_ranks_without_a_checkpointer_end_by_the_failure(tmp_path):
    code, _, seen = job(tmp_path, LOSES="1", WITHOUT="1")
    assert code not in (0, 75), seen
    assert TOO_FEW in seen and "was saved" not in seen, seen
