"""horovodrun from Python: `python -m horovod.runner.launch -np 4 python train.py`."""
import os
import shutil
import subprocess
import sys

import horovod
from horovod.common.util import gloo_built, mpi_built
from horovod.runner import flags
from horovod.runner.util import lsf  # noqa: F401  callers replace these names here

_NO_GLOO = ("Gloo support has not been built.  If this is not expected, ensure CMake is installed and reinstall "
            "Horovod with HOROVOD_WITH_GLOO=1 to debug the build error.")
_NO_MPI = ("MPI support has not been built.  If this is not expected, ensure MPI is installed and reinstall Horovod "
           "with HOROVOD_WITH_MPI=1 to debug the build error.")
_NO_LSF = ("Horovod did not detect an LSF job.  The jsrun launcher can only be used in that environment. Please, pick "
           "a different launcher for other environments.")
_NOTHING = ("Neither MPI nor Gloo support has been built. Try reinstalling Horovod ensuring that either MPI is "
            "installed (MPI) or CMake is installed (Gloo).")


def is_jsrun_installed():
    return shutil.which("jsrun") is not None


def is_gloo_used(use_gloo=None, use_mpi=None, use_jsrun=None):
    """True if these choices mean the launcher of Gloo, which is horovodrun itself."""
    return bool(use_gloo or (not use_mpi and not use_jsrun and not mpi_built()))


def run_controller(use_gloo, gloo_run, use_mpi, mpi_run, use_jsrun, js_run, verbosity):
    """Calls one of the three functions: the chosen one, else the first that is possible here."""
    verbose = verbosity is not None and verbosity >= 2
    if use_gloo:
        if not gloo_built(verbose=verbose):
            raise ValueError(_NO_GLOO)
        gloo_run()
    elif use_mpi:
        if not mpi_built(verbose=verbose):
            raise ValueError(_NO_MPI)
        mpi_run()
    elif use_jsrun:
        if not mpi_built(verbose=verbose):
            raise ValueError(_NO_MPI)
        if not lsf.LSFUtils.using_lsf():
            raise ValueError(_NO_LSF)
        js_run()
    elif mpi_built(verbose=verbose):
        (js_run if lsf.LSFUtils.using_lsf() and is_jsrun_installed() else mpi_run)()
    elif gloo_built(verbose=verbose):
        gloo_run()
    else:
        raise ValueError(_NOTHING)


def parse_args():
    """Returns the arguments of this program, and of its --config-file, as a namespace. ValueError for values that no
    job can have."""
    args = flags.parser().parse_args()
    if args.config_file is not None:
        flags.add_config_file(args, program())
    flags.check(args)
    return args


def _run(args):
    """Starts a job and waits for its end. With args.run_func, a function, returns its results by rank. RuntimeError if
    the job fails."""
    is_elastic = args.host_discovery_script is not None or args.min_num_proc is not None
    return (_run_elastic if is_elastic else _run_static)(args)


def _run_static(args):
    return _run_job(args, args.num_proc)


def _run_elastic(args):
    return _run_job(args, args.min_num_proc or args.num_proc)


def _run_job(args, results):
    command = [program(), *flags.flags_of(args)]
    if args.run_func is not None:
        from horovod.runner import call
        return call.in_job(command, args, results)
    code = subprocess.run([*command, *args.command], check=False).returncode
    if code != 0:
        raise RuntimeError("Horovod detected that one or more processes exited with non-zero status, thus causing the "
                           f"job to be terminated: horovodrun ended with exit code {code}; its output names the first.")
    return None


def program():
    """Returns the path of horovodrun."""
    beside = os.path.join(os.path.dirname(horovod.__file__), "bin", "horovodrun")
    found = beside if os.path.exists(beside) else shutil.which("horovodrun")
    if found is None:
        raise FileNotFoundError(f"horovodrun is neither at {beside} nor along PATH: install Horovod again "
                                "(pip install .)")
    return found


def run_commandline():
    """Becomes the program horovodrun, with this program's arguments."""
    try:
        found = program()
    except FileNotFoundError as error:
        sys.exit(str(error))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(found, [found, *sys.argv[1:]])


if __name__ == "__main__":
    run_commandline()
