"""horovodrun from Python: `python -m horovod.runner.launch -np 4 python train.py`."""
import os
import shutil
import sys

import horovod


def run_commandline():
    """Becomes the program horovodrun, with this program's arguments."""
    beside = os.path.join(os.path.dirname(horovod.__file__), "bin", "horovodrun")
    program = beside if os.path.exists(beside) else shutil.which("horovodrun")
    if program is None:
        sys.exit(f"horovodrun is neither at {beside} nor along PATH: install Horovod again (pip install .)")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    run_commandline()
