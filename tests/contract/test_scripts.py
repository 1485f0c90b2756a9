"""Training scripts as users write them, in jobs of two ranks. Each script itself checks that the loss has fallen and
that the ranks have equal parameters."""
import pathlib

import pytest

from ranks import Job, alone, limit

SCRIPTS = sorted((pathlib.Path(__file__).parent / "scripts").glob("*.py"))


@alone
@limit(150)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_training_script_runs_unchanged(script, tmp_path):
    """Contract §2 a whole script"""
    with Job(tmp_path, 2, script) as job:
        code = job.ends(120)
    assert code == 0 and job.text().count("OK") == 2, job.text()[-3000:]
