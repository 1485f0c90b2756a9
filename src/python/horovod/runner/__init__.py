"""Starts Horovod jobs. The launcher itself is the program `horovodrun`; `run` starts it for a function of Python."""
import operator
import sys
import warnings


class _HorovodArgs:
    """The arguments of the launcher as an object; what is None was not given."""

    def __init__(self):
        from horovod.runner import flags
        vars(self).update(vars(flags.parser().parse_args([])))
        self.num_proc = 1


def run(func, args=(), kwargs=None, num_proc=1, min_num_proc=None, max_num_proc=None, slots=None, reset_limit=None,
        cooldown_range=None, hosts=None, hostfile=None, host_discovery_script=None, start_timeout=None, ssh_port=None,
        ssh_identity_file=None, disable_cache=None, output_filename=None, verbose=None, use_gloo=None, use_mpi=None,
        mpi_args=None, network_interface=None, network_interfaces=None, executable=None, np=None, min_np=None,
        max_np=None):
    """Calls func(*args, **kwargs) in `num_proc` processes, the ranks of a job, and returns their results by rank.

    The function, its arguments and its results are pickled by cloudpickle. The ranks are started by horovodrun, with
    the flags that the arguments stand for, and with the interpreter `executable` (default: this one). What they print
    is printed here. An elastic job returns the results of the first `min_num_proc` ranks.

    RuntimeError if a rank fails; it has the traceback of the function. KeyboardInterrupt ends the job.
    """
    for name, value, instead in (("np", np, "num_proc"), ("min_np", min_np, "min_num_proc"),
                                 ("max_np", max_np, "max_num_proc"),
                                 ("network_interface", network_interface, "network_interfaces")):
        if value is not None:
            warnings.warn(f"horovod.run: {name} is deprecated; use {instead}", DeprecationWarning, stacklevel=2)
    if hosts is not None and hostfile is not None:
        raise ValueError("horovod.run takes hosts or hostfile; found both")
    if use_gloo and use_mpi:
        raise ValueError("horovod.run takes use_gloo or use_mpi; found both")

    # Here, since `import horovod` is to bring next to nothing.
    import functools

    from horovod.runner import launch

    given = _HorovodArgs()
    given.num_proc = _number("num_proc", num_proc if np is None else np)
    given.min_num_proc = _number("min_num_proc", min_num_proc if min_np is None else min_np)
    given.max_num_proc = _number("max_num_proc", max_num_proc if max_np is None else max_np)
    given.slots, given.reset_limit, given.cooldown_range = slots, reset_limit, cooldown_range
    given.hosts, given.hostfile, given.host_discovery_script = hosts, hostfile, host_discovery_script
    given.start_timeout, given.ssh_port, given.ssh_identity_file = start_timeout, ssh_port, ssh_identity_file
    given.disable_cache, given.output_filename, given.verbose = disable_cache, output_filename, verbose
    given.use_gloo, given.use_mpi, given.mpi_args = use_gloo, use_mpi, mpi_args
    given.nics = _names_in(network_interface) | _names_in(network_interfaces) or None
    given.executable = executable or sys.executable
    given.run_func = functools.partial(func, *args, **(kwargs or {}))
    return launch._run(given)


def _number(name, value):
    """Accepts every whole number, also those of numpy, except True and False."""
    if value is None:
        return None
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise ValueError(f"horovod.run: {name}: expected a number of ranks, found {value!r}")


def _names_in(interfaces):
    """Interfaces are given as one text with commas, or as several names."""
    if not interfaces:
        return set()
    return set(interfaces.split(",") if isinstance(interfaces, str) else interfaces) - {""}
