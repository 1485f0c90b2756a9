"""Settings for all Python tests: a test that hangs is ended, and the stacks of all its threads are printed."""
import faulthandler
import os
import sys

import pytest

LONGEST_TEST_SECONDS = int(os.environ.get("LONGEST_TEST_SECONDS", 300))


@pytest.fixture(autouse=True)
def ends_if_it_hangs():
    faulthandler.dump_traceback_later(LONGEST_TEST_SECONDS, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()
