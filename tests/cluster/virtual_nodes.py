"""Gives a test program virtual nodes."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
NODES = os.path.join(HERE, "nodes")


def enter(count, build, arguments):
    """Unless the program runs in a cluster already, runs it once more with these arguments in a cluster of `count`
    nodes, which ends with the program. Exits with code 77 if the machine cannot make a cluster."""
    if "HVD_CLUSTER" in os.environ:
        return
    can = subprocess.run([NODES, "can"], stdout=subprocess.PIPE, text=True, check=False)
    if can.returncode != 0:
        print("cluster tests were not run:", can.stdout.strip())
        sys.exit(77)
    program = os.path.abspath(sys.argv[0])
    os.execv(NODES, [NODES, "with", str(count), "--share", str(build), "--", sys.executable, program, *arguments])
