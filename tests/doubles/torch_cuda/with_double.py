"""with_double.py SCRIPT [ARGUMENT …]: runs a program of torch on the double of CUDA."""
import runpy
import sys

import on_host  # noqa: F401  (operators of torch are computed on the host from here on)

sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
