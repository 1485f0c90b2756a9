"""How a test program comes to have virtual nodes."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
NODES = os.path.join(HERE, "nodes")


def enter(count, build, arguments):
    """Runs this program once more, with these arguments and a cluster around it that ends with it, unless it has one.
    Exit code 77 where the machine cannot make one."""
    if "HVD_CLUSTER" in os.environ:
        return
    can = subprocess.run([NODES, "can"], stdout=subprocess.PIPE, text=True, check=False)
    if can.returncode != 0:
        print("cluster tests were not run:", can.stdout.strip())
        sys.exit(77)
    program = os.path.abspath(sys.argv[0])
    os.execv(NODES, [NODES, "with", str(count), "--share", str(build), "--", sys.executable, program, *arguments])
