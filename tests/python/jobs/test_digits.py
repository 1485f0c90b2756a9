"""examples/digits: four ranks have the loss curve of one process, and the comparison can fail."""
import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parents[3] / "examples" / "digits" / "train.py"


def job(*arguments, ranks=4):
    command = [os.environ.get("HOROVODRUN", "horovodrun"), "-np", str(ranks), sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)


@pytest.fixture
def program(monkeypatch):
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    import train
    return train


def test_four_ranks_follow_the_curve_of_one_process():
    found = job()
    assert found.returncode == 0, found.stdout
    assert "the loss curves agree" in found.stdout and "images/s" in found.stdout
    accuracy = float(found.stdout.split("final accuracy: ")[1].split()[0])
    assert accuracy > 90.0, found.stdout


def test_without_reductions_the_comparison_fails():
    found = job("--no-reduction", "--epochs", "6")
    assert found.returncode == 1, found.stdout
    assert "the loss curves DIFFER" in found.stdout


def test_shares_of_the_ranks_are_disjoint_and_make_the_whole(program):
    _, labels, _, test_labels = program.load_data()
    assert len(labels) + len(test_labels) == 1797
    for epoch in range(3):
        batches = program.global_batches(epoch, len(labels), 100)
        seen = batches.flatten().tolist()
        assert len(set(seen)) == len(seen)
        for batch in batches:
            shares = [program.shard(batch, rank, 4).tolist() for rank in range(4)]
            assert [len(share) for share in shares] == [25] * 4
            assert sorted(sum(shares, [])) == sorted(batch.tolist())


def test_a_batch_that_cannot_be_shared(program):
    found = job("--batch-size", "101", ranks=2)
    assert found.returncode != 0 and "cannot be shared equally" in found.stdout
