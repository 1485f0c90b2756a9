"""The arguments of Horovod's launcher by name, and the flags of horovodrun that they stand for.

`parser()` reads them from a command line, and `flags_of()` writes them for the program horovodrun, which checks them
again and knows more flags.
"""
import argparse
import json
import subprocess
import warnings

_NEGATIVE = ("fusion_threshold_mb", "cycle_time_ms", "cache_capacity", "autotune_warmup_samples",
             "autotune_steps_per_sample", "autotune_bayes_opt_max_samples", "stall_check_warning_time_seconds",
             "stall_check_shutdown_time_seconds", "num_nccl_streams", "thread_affinity", "gloo_timeout_seconds")
_LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")


class _Nics(argparse.Action):
    """Adds to the set of interfaces."""

    def __call__(self, parser, namespace, values, option_string=None):
        if option_string == "--network-interface" and "," in values:
            warnings.warn("--network-interface with several interfaces is deprecated; use --network-interfaces",
                          DeprecationWarning, stacklevel=2)
        namespace.nics = (namespace.nics or set()) | {name for name in values.split(",") if name}


class _Deprecated(argparse.Action):
    """A tri-state under an old name."""

    def __init__(self, *arguments, const, **options):
        super().__init__(*arguments, nargs=0, const=const, **options)

    def __call__(self, parser, namespace, values, option_string=None):
        warnings.warn(f"{option_string} is deprecated; use --log-with-timestamp or --log-without-timestamp",
                      DeprecationWarning, stacklevel=2)
        setattr(namespace, self.dest, self.const)


# Rows of a name, the spellings of its flag, and how argparse reads it. The last spelling is given to horovodrun.
_WITH_VALUE = (
    ("num_proc", "-np --num-proc", int), ("start_timeout", "--start-timeout", int),
    ("output_filename", "--output-filename", str), ("config_file", "--config-file", str),
    ("ssh_port", "-p --ssh-port", int), ("ssh_identity_file", "-i --ssh-identity-file", str),
    ("fusion_threshold_mb", "--fusion-threshold-mb", int), ("cycle_time_ms", "--cycle-time-ms", float),
    ("cache_capacity", "--cache-capacity", int), ("autotune_log_file", "--autotune-log-file", str),
    ("autotune_warmup_samples", "--autotune-warmup-samples", int),
    ("autotune_steps_per_sample", "--autotune-steps-per-sample", int),
    ("autotune_bayes_opt_max_samples", "--autotune-bayes-opt-max-samples", int),
    ("autotune_gaussian_process_noise", "--autotune-gaussian-process-noise", float),
    ("min_num_proc", "--min-np --min-num-proc", int), ("max_num_proc", "--max-np --max-num-proc", int),
    ("slots", "--slots-per-host", int), ("elastic_timeout", "--elastic-timeout", int),
    ("reset_limit", "--reset-limit", int), ("timeline_filename", "--timeline-filename", str),
    ("stall_check_warning_time_seconds", "--stall-check-warning-time-seconds", int),
    ("stall_check_shutdown_time_seconds", "--stall-check-shutdown-time-seconds", int), ("mpi_args", "--mpi-args", str),
    ("binding_args", "--binding-args", str), ("num_nccl_streams", "--num-nccl-streams", int),
    ("thread_affinity", "--thread-affinity", int), ("gloo_timeout_seconds", "--gloo-timeout-seconds", int))
_TOGGLES = (
    ("check_build", "-cb --check-build"), ("disable_cache", "--disable-cache"), ("verbose", "--verbose"),
    ("tcp_flag", "--tcp"), ("prefix_output_with_timestamp", "-prefix-timestamp --prefix-output-with-timestamp"))
# Three values: None says that neither flag was given.
_TRISTATES = (
    ("hierarchical_allreduce", "--hierarchical-allreduce", "--no-hierarchical-allreduce"),
    ("hierarchical_allgather", "--hierarchical-allgather", "--no-hierarchical-allgather"),
    ("torus_allreduce", "--torus-allreduce", "--no-torus-allreduce"), ("autotune", "--autotune", "--no-autotune"),
    ("timeline_mark_cycles", "--timeline-mark-cycles", "--no-timeline-mark-cycles"),
    ("no_stall_check", "--no-stall-check", "--stall-check"),
    ("mpi_threads_disable", "--mpi-threads-disable", "--no-mpi-threads-disable"),
    ("log_with_timestamp", "--log-with-timestamp", "--log-without-timestamp"))
_EXCLUSIVE = ((("hosts", "-H --hosts", str), ("hostfile", "-hostfile --hostfile", str),
               ("host_discovery_script", "--host-discovery-script", str)),
              (("use_gloo", "--gloo", None), ("use_mpi", "--mpi", None), ("use_jsrun", "--jsrun", None)))


def parser():
    result = argparse.ArgumentParser(prog="horovodrun", description="Starts the ranks of a Horovod job.",
                                     allow_abbrev=False)
    add = result.add_argument
    for name, spellings, kind in _WITH_VALUE:
        add(*spellings.split(), dest=name, type=kind)
    for name, spellings in _TOGGLES:
        add(*spellings.split(), dest=name, action="store_true")
    for name, yes, no in _TRISTATES:
        group = result.add_mutually_exclusive_group()
        group.add_argument(yes, dest=name, action="store_true", default=None)
        group.add_argument(no, dest=name, action="store_false", default=None)
    add("--log-hide-timestamp", dest="log_with_timestamp", action=_Deprecated, const=False)
    add("--no-log-hide-timestamp", dest="log_with_timestamp", action=_Deprecated, const=True)
    for rows in _EXCLUSIVE:
        group = result.add_mutually_exclusive_group()
        for name, spellings, kind in rows:
            how = {"action": "store_true", "default": None} if kind is None else {"type": kind}
            group.add_argument(*spellings.split(), dest=name, **how)
    add("--network-interfaces", "--network-interface", dest="nics", action=_Nics)
    add("--blacklist-cooldown-range", dest="cooldown_range", type=int, nargs=2)
    add("--log-level", dest="log_level", type=str.upper, choices=_LEVELS)
    add("command", nargs=argparse.REMAINDER)
    result.set_defaults(run_func=None, executable=None)
    return result


def check(args):
    """ValueError for values that no job can have."""
    for name in _NEGATIVE:
        value = getattr(args, name)
        if value is not None and value < 0:
            raise ValueError(f"--{name.replace('_', '-')}={value}: expected a number that is not negative")
    noise = args.autotune_gaussian_process_noise
    if noise is not None and not 0 <= noise <= 1:
        raise ValueError(f"--autotune-gaussian-process-noise={noise}: expected a number from 0 to 1")


def add_config_file(args, program):
    """Adds what args.config_file says, as horovodrun reads it, where the command line says nothing. ValueError if it is
    faulty."""
    shown = subprocess.run([program, f"--config-file={args.config_file}", "--show-config", "--json"], text=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if shown.returncode != 0:
        raise ValueError(shown.stderr.strip())
    chosen = any((args.use_gloo, args.use_mpi, args.use_jsrun))
    actions = {spelling: action for action in parser()._actions for spelling in action.option_strings}
    for flag, row in json.loads(shown.stdout)["flags"].items():
        action = actions.get(flag)
        if action is None or row["layer"] != "config-file":
            continue
        if getattr(args, action.dest) not in (None, False) or (action.dest.startswith("use_") and chosen):
            continue
        if getattr(args, action.dest) is False and action.default is None:
            continue  # the command line says no
        setattr(args, action.dest, _value_of(action, row["value"]))


def _value_of(action, text):
    """Returns what argparse makes of a flag whose value horovodrun shows as this text."""
    if action.nargs == 0:
        return text == "1"
    if action.nargs == 2:
        return [action.type(part) for part in text.split(",")]
    return {*text.split(",")} if action.dest == "nics" else (action.type or str)(text)


def flags_of(args):
    """Returns the flags of horovodrun for these arguments. What is None or not given leaves none."""
    def value_of(name):
        return getattr(args, name, None)

    flags = []
    for name, spellings, kind in (*_WITH_VALUE, *(row for rows in _EXCLUSIVE for row in rows)):
        value, flag = value_of(name), spellings.split()[-1]
        if kind is None:
            flags += [flag] if value else []
        elif value is not None:
            flags.append(f"{flag}={value}")
    flags += [spellings.split()[-1] for name, spellings in _TOGGLES if value_of(name)]
    for name, yes, no in _TRISTATES:
        if value_of(name) is not None:
            flags.append(yes if value_of(name) else no)
    if value_of("nics"):
        flags.append("--network-interfaces=" + ",".join(sorted(args.nics)))
    if value_of("cooldown_range") is not None:
        flags += ["--blacklist-cooldown-range", *(str(limit) for limit in args.cooldown_range)]
    if value_of("log_level") is not None:
        flags.append(f"--log-level={args.log_level}")
    return flags
