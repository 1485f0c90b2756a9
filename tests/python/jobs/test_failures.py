"""horovodrun names the rank that failed first, not a rank that failed as a consequence."""
import os
import subprocess
import sys
import textwrap

import pytest

HOROVODRUN = os.environ.get("HOROVODRUN", "horovodrun")


@pytest.mark.parametrize("end, code", [("raise ValueError('a bad batch')", 1), ("sys.exit(7)", 7)])
def test_a_rank_that_ends_in_the_midst_of_the_others_work(tmp_path, end, code):
    (tmp_path / "program.py").write_text(textwrap.dedent("""
        import atexit
        import os
        import sys
        import time

        # Called after hvd.shutdown(), which is registered later. Slow as a real program's end can be: a rank that
        # notices the shutdown at once is gone before.
        def end_slowly():
            for _ in range(30):
                if os.path.exists("others.have.heard"):
                    time.sleep(0.5)
                    break
                time.sleep(0.01)

        if os.environ["HOROVOD_RANK"] == "1":
            atexit.register(end_slowly)
        import torch
        import horovod.torch as hvd
        hvd.init()
        if hvd.rank() == 1:
            END
        try:
            hvd.allreduce(torch.ones(4))
        except hvd.HorovodInternalError:
            open("others.have.heard", "w").close()
            os._exit(2)
    """).replace("END", end))
    found = subprocess.run([HOROVODRUN, "-np", "3", sys.executable, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=240)
    assert found.returncode == code, found.stdout
    assert "FIRST FAILURE: rank 1 " in found.stdout, found.stdout
