"""What Horovod's users rely on in horovod.run and horovod.runner.launch."""
import inspect
import itertools
import sys
from unittest import mock

import pytest

import horovod
from horovod.runner import _HorovodArgs, launch
from ranks import alone, limit

PARAMETERS = """func args=() kwargs=None num_proc=1 min_num_proc=None max_num_proc=None slots=None reset_limit=None
    cooldown_range=None hosts=None hostfile=None host_discovery_script=None start_timeout=None ssh_port=None
    ssh_identity_file=None disable_cache=None output_filename=None verbose=None use_gloo=None use_mpi=None mpi_args=None
    network_interface=None network_interfaces=None executable=None np=None min_np=None max_np=None"""
NO_GLOO = (r"^Gloo support has not been built\.  If this is not expected, ensure CMake is installed and reinstall "
           r"Horovod with HOROVOD_WITH_GLOO=1 to debug the build error\.$")
NO_MPI = (r"^MPI support has not been built\.  If this is not expected, ensure MPI is installed and reinstall Horovod "
          r"with HOROVOD_WITH_MPI=1 to debug the build error\.$")
NO_LSF = (r"^Horovod did not detect an LSF job\.  The jsrun launcher can only be used in that environment\. Please, "
          r"pick a different launcher for other environments\.$")
NOTHING = (r"^Neither MPI nor Gloo support has been built\. Try reinstalling Horovod ensuring that either MPI is "
           r"installed \(MPI\) or CMake is installed \(Gloo\)\.$")


@alone
def test_run_has_the_parameters_of_horovod():
    """Contract §8.9 horovod.run"""
    assert [str(parameter) for parameter in inspect.signature(horovod.run).parameters.values()] == PARAMETERS.split()


def rank_and_size(offset, factor=1):
    import horovod.torch as hvd
    hvd.init()
    return hvd.rank() * factor + offset, hvd.size()


@alone
@limit(150)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_run_returns_the_results_by_rank(ranks):
    """Contract §8.9 horovod.run"""
    found = horovod.run(rank_and_size, args=(5,), kwargs={"factor": 2}, num_proc=ranks, hosts=f"localhost:{ranks}")
    assert found == [(rank * 2 + 5, ranks) for rank in range(ranks)]


@alone
def test_deprecated_names_warn_and_work():
    """Contract §8.9 deprecated aliases"""
    for name, value, kept in (("np", 3, "num_proc"), ("min_np", 3, "min_num_proc"), ("max_np", 3, "max_num_proc"),
                              ("network_interface", "a,b", "nics")):
        with mock.patch.object(launch, "_run") as started, pytest.warns(DeprecationWarning):
            horovod.run(print, **{name: value})
        assert getattr(started.call_args[0][0], kept) == ({"a", "b"} if kept == "nics" else 3)


@alone
def test_a_failing_rank_is_named_by_the_error():
    """Contract §8.9, §8.7 [Horovod tests this]: the text of the error"""
    def fails():
        raise ValueError("on purpose")

    with pytest.raises(RuntimeError, match="^Horovod detected that one or more processes exited with non-zero status"):
        horovod.run(fails, num_proc=2)


@alone
def test_the_arguments_object_has_every_attribute():
    """Contract §8.9 _HorovodArgs"""
    args = _HorovodArgs()
    assert args.num_proc == 1 and args.nics is None and args.run_func is None and args.executable is None
    with mock.patch.object(sys, "argv", ["horovodrun", "-np", "1", "true"]):
        assert set(vars(launch.parse_args())) == set(vars(args))
    neutral = {name: value for name, value in vars(args).items() if value not in (None, False, [])}
    assert neutral == {"num_proc": 1}


@alone
def test_the_command_line_is_parsed():
    """Contract §8.1, §8.2 [Horovod tests this]: parse_args"""
    def parsed(*words):
        with mock.patch.object(sys, "argv", ["horovodrun", *words]):
            return launch.parse_args()

    args = parsed("-np", "2", "--fusion-threshold-mb", "10", "--cycle-time-ms", "20", "--no-hierarchical-allgather",
                  "--hierarchical-allreduce", "-H", "a:1", "--network-interfaces", "x,y", "--gloo", "--log-level",
                  "info", "--no-stall-check", "--log-without-timestamp", "python", "-c", "pass", "-np", "7")
    assert (args.num_proc, args.fusion_threshold_mb, args.cycle_time_ms, args.hosts) == (2, 10, 20.0, "a:1")
    assert (args.hierarchical_allreduce, args.hierarchical_allgather, args.torus_allreduce) == (True, False, None)
    assert args.nics == {"x", "y"} and args.use_gloo and not args.use_mpi and args.log_level == "INFO"
    assert args.no_stall_check is True and args.log_with_timestamp is False and args.autotune is None
    assert args.command == ["python", "-c", "pass", "-np", "7"] and args.run_func is None and args.executable is None
    with pytest.warns(DeprecationWarning):
        assert parsed("-np", "1", "--log-hide-timestamp", "true").log_with_timestamp is False
    for wrong in ("--fusion-threshold-mb=-1", "--cycle-time-ms=-1", "--cache-capacity=-1", "--thread-affinity=-1",
                  "--autotune-warmup-samples=-1", "--autotune-gaussian-process-noise=1.5"):
        with pytest.raises(ValueError):
            parsed("-np", "1", wrong, "true")


@alone
def test_the_command_line_wins_over_the_configuration_file(tmp_path):
    """Contract §8.3 [Horovod tests this]: --config-file"""
    file = tmp_path / "config.yaml"
    file.write_text("params:\n  fusion_threshold_mb: 32\n  cycle_time_ms: 10\n  hierarchical_allreduce: true\n"
                    "autotune:\n  enabled: true\n  log_file: log.csv\nstall_check:\n  enabled: false\n"
                    "logging:\n  level: INFO\n  hide_timestamp: true\ncontroller: MPI\n")
    for words in (["--config-file", str(file), "--cycle-time-ms", "20", "--no-hierarchical-allreduce", "--gloo"],
                  ["--cycle-time-ms", "20", "--no-hierarchical-allreduce", "--gloo", "--config-file", str(file)]):
        with mock.patch.object(sys, "argv", ["horovodrun", "-np", "2", *words, "true"]):
            args = launch.parse_args()
        assert args.fusion_threshold_mb == 32 and args.cycle_time_ms == 20 and args.autotune and args.no_stall_check
        assert args.hierarchical_allreduce is False and args.autotune_log_file == "log.csv" and args.num_proc == 2
        assert args.log_level == "INFO" and not args.log_with_timestamp and args.use_gloo and not args.use_mpi
    with mock.patch.object(sys, "argv", ["horovodrun", "-np", "2", "--config-file", str(file), "true"]):
        assert launch.parse_args().use_mpi is True
    file.write_text("controller: none\n")
    with mock.patch.object(sys, "argv", ["horovodrun", "-np", "2", "--config-file", str(file), "true"]):
        with pytest.raises(ValueError, match="controller must be gloo or mpi"):
            launch.parse_args()


@alone
def test_the_launcher_is_chosen_by_flags_and_by_what_is_built():
    """Contract §8.6 [Horovod tests this]: run_controller over all combinations"""
    choices = itertools.product((None, True, False), (None, True, False), (None, True, False), *[(True, False)] * 4)
    for gloo, mpi, jsrun, has_gloo, has_mpi, in_lsf, has_jsrun in choices:
        functions = {name: mock.Mock() for name in ("gloo", "mpi", "jsrun")}
        if gloo:
            wanted = "gloo" if has_gloo else NO_GLOO
        elif mpi:
            wanted = "mpi" if has_mpi else NO_MPI
        elif jsrun:
            wanted = NO_MPI if not has_mpi else "jsrun" if in_lsf else NO_LSF
        elif has_mpi:
            wanted = "jsrun" if in_lsf and has_jsrun else "mpi"
        else:
            wanted = "gloo" if has_gloo else NOTHING
        with mock.patch("horovod.runner.launch.gloo_built", return_value=has_gloo), \
                mock.patch("horovod.runner.launch.mpi_built", return_value=has_mpi), \
                mock.patch("horovod.runner.launch.lsf.LSFUtils.using_lsf", return_value=in_lsf), \
                mock.patch("horovod.runner.launch.is_jsrun_installed", return_value=has_jsrun):
            def call():
                launch.run_controller(gloo, functions["gloo"], mpi, functions["mpi"], jsrun, functions["jsrun"], 2)

            if wanted in functions:
                call()
            else:
                with pytest.raises(ValueError, match=wanted):
                    call()
            assert launch.is_gloo_used(gloo, mpi, jsrun) == bool(gloo or (not mpi and not jsrun and not has_mpi))
        assert [name for name, function in functions.items() if function.called] == [wanted] * (wanted in functions)


@alone
def test_the_job_of_a_namespace_is_run_as_elastic_or_not():
    """Contract §8.6 _run"""
    for given, kind in ((dict(), "static"), (dict(min_num_proc=2), "elastic"),
                        (dict(host_discovery_script="hosts.sh"), "elastic")):
        args = _HorovodArgs()
        vars(args).update(given)
        with mock.patch.object(launch, "_run_static") as static, mock.patch.object(launch, "_run_elastic") as elastic:
            launch._run(args)
        assert (static.called, elastic.called) == (kind == "static", kind == "elastic")
    args = _HorovodArgs()
    args.command = [sys.executable, "-c", "import sys; sys.exit(3)"]
    with pytest.raises(RuntimeError, match="exited with non-zero status.*exit code 3"):
        launch._run(args)
    args.command = ["true"]
    assert launch._run(args) is None
