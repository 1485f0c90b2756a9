"""In the pages for users, the commands of blocks that are marked ```console runs python``` succeed."""
import os
import pathlib
import subprocess
import sys

TEST = pathlib.Path(__file__).parents[2] / "docs" / "docs_test.py"


def test_marked_commands_of_the_documentation_run():
    done = subprocess.run([sys.executable, str(TEST), "WhatUsersRead.test_every_command_that_is_marked_runs"],
                          env={**os.environ, "PARTS_OF_DOCS": "python"}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=240)
    assert done.returncode == 0, done.stdout
