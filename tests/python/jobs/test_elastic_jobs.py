"""Jobs whose ranks come and go: horovodrun --min-np."""
import os
import pathlib
import subprocess
import sys

HOROVODRUN = os.environ.get("HOROVODRUN", "horovodrun")
PROGRAM = pathlib.Path(__file__).parents[1] / "elastic" / "train.py"


def run(folder, *flags, **variables):
    return subprocess.run([HOROVODRUN, *flags, sys.executable, str(PROGRAM)], cwd=folder, text=True, timeout=110,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **variables})


def lines_of(found, beginning):
    return [line.split(":", 1)[1] for line in found.stdout.splitlines() if f"<stdout>:{beginning}" in line]


def test_that_lose_rank_0_go_on_and_take_in_another_process(tmp_path):
    found = run(tmp_path, "-np", "3", "--min-np", "2",
                ENDS="step 0 3", UNTIL_SIZE="3")
    assert found.returncode == 0, found.stdout
    assert "rank 0 (host localhost, slot 0) was killed by signal 9 (SIGKILL): the job goes on with 2 ranks" \
        in found.stdout
    assert "FIRST FAILURE" not in found.stdout
    assert len(lines_of(found, "went back to the last commit, step 5 of 9")) == 2, found.stdout
    ends = lines_of(found, "done ")
    assert sorted(end.split()[1] for end in ends) == ["0", "1", "2"], found.stdout
    assert len({end.split(" ", 2)[2] for end in ends}) == 1, found.stdout


def test_of_a_script_with_an_error_end_with_it(tmp_path):
    found = run(tmp_path, "-np", "2", "--min-np", "1", ENDS="start all 2")
    assert found.returncode == 7, found.stdout
    assert "no rank is left that has the state of the training" in found.stdout
    assert "FIRST FAILURE: rank " in found.stdout
