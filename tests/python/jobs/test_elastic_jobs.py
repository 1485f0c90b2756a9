"""Jobs whose ranks come and go: horovodrun --min-np."""
import os
import pathlib
import subprocess
import sys

import pytest

HOROVODRUN = os.environ.get("HOROVODRUN", "horovodrun")
PROGRAM = pathlib.Path(__file__).parents[1] / "elastic" / "train.py"


def run(folder, *flags, **variables):
    return subprocess.run([HOROVODRUN, *flags, sys.executable, str(PROGRAM)], cwd=folder, text=True, timeout=240,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **variables})


def lines_of(found, beginning):
    return [line.split(":", 1)[1] for line in found.stdout.splitlines() if f"<stdout>:{beginning}" in line]


def test_that_lose_rank_0_go_on_and_take_in_another_process(tmp_path):
    for gpu in range(3):
        entry = tmp_path / f"proc/driver/nvidia/gpus/0000:0{gpu}:00.0"
        entry.mkdir(parents=True)
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / f"dev/nvidia{gpu}").touch()
        (entry / "information").write_text(f"Model: \t\t V100\nGPU UUID: \t GPU-{gpu}\nDevice Minor: \t {gpu}\n")
    found = run(tmp_path, "-np", "3", "--min-np", "2",
                ENDS="step 0 3", UNTIL_SIZE="3", HOROVOD_GPU_ROOT=str(tmp_path), HOROVOD_BIND="0")
    assert found.returncode == 0, found.stdout
    assert "rank 0 (host localhost, slot 0) was killed by signal 9 (SIGKILL): the job goes on with 2 ranks" \
        in found.stdout
    assert "FIRST FAILURE" not in found.stdout
    assert "[0]<stderr>:Horovod: training begins again, reset 1: " in found.stdout
    assert len(lines_of(found, "went back to the last commit, step 5 of 9")) == 2, found.stdout
    ends = lines_of(found, "done ")
    assert sorted(end.split()[1] for end in ends) == ["0", "1", "2"], found.stdout
    assert len({end.split(" ", 2)[2] for end in ends}) == 1, found.stdout
    # Ranks 1 and 2 are local ranks 0 and 1 now and keep their GPUs; the new process has that of rank 0, which is gone.
    devices = sorted(line.split()[1:] for line in lines_of(found, "device "))
    assert devices == [["0", "0", "1", "1"], ["1", "1", "2", "2"], ["2", "2", "0", "0"]], found.stdout


@pytest.mark.parametrize("how, told", [("3", "ended with exit code 3"),
                                       ("interrupt", "was killed by signal 2 (SIGINT)")])
def test_that_lose_a_rank_by_its_exit_or_an_interrupt_go_on(how, told, tmp_path):
    found = run(tmp_path, "-np", "3", "--min-np", "2", ENDS="step 1 3", HOW=how)
    assert found.returncode == 0, found.stdout
    assert f"rank 1 (host localhost, slot 1) {told}: the job goes on with 2 ranks" in found.stdout
    assert len(lines_of(found, "went back to the last commit, step 5 of 9")) == 2, found.stdout
    ends = lines_of(found, "done ")
    assert len(ends) >= 2 and len({end.split(" ", 2)[2] for end in ends}) == 1, found.stdout


def test_of_which_a_rank_exits_with_0_before_the_others_end_with_an_error(tmp_path):
    found = run(tmp_path, "-np", "3", "--min-np", "2", ENDS="step 1 3", HOW="0")
    assert found.returncode == 1, found.stdout
    assert "rank 1 (host localhost, slot 1) has ended without a failure, and other ranks still need the job: all " \
           "ranks must make the same number of steps" in found.stdout
    assert lines_of(found, "done ") == [], found.stdout


def test_of_a_script_with_an_error_end_with_it(tmp_path):
    found = run(tmp_path, "-np", "2", "--min-np", "1", "--verbose", "--output-filename", "out", ENDS="start all 2",
                TRY_COMM="1")
    assert found.returncode == 7, found.stdout
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["localhost.0", "localhost.1"]
    assert "no rank is left that has the state of the training" in found.stdout
    assert "FIRST FAILURE: rank " in found.stdout
    assert "\nhorovodrun: slot 1 of host localhost: " in found.stdout, "what its processors are"
    refusals = lines_of(found, "refused: ")
    assert len(refusals) == 2 and "init(comm=...) in an elastic job: its ranks are those that horovodrun" in refusals[0]
