"""Tests of horovod.common: small functions, exceptions and process sets."""
import os
import subprocess
import sys
import warnings

import pytest

from horovod import _ops
from horovod.common import exceptions, process_sets, util


WITH_SETTINGS = """
import os, signal
from horovod import _ops
from horovod.common import basics, meeting, nccl_version
hvd = basics.HorovodBasics()
ports = range(21000, 22000)
with meeting.Meeting(1) as opened:
    assert int(opened.place()[1]) in ports, opened.place()
assert meeting.start_timeout() == 7.5 and nccl_version.nccl_version() == 22809
hvd.init()
assert _ops.are_sets_dynamic
os.kill(os.getpid(), signal.SIGUSR1)
print("USR1 did not end it")
"""


def test_files_of_settings_hold_for_a_process_that_horovodrun_did_not_start(tmp_path):
    (tmp_path / "horovod").mkdir()
    (tmp_path / "libnccl.so.2.28.9").touch()
    (tmp_path / "horovod/config.yaml").write_text(
        "settings:\n  HOROVOD_DYNAMIC_PROCESS_SETS: yes\n  HOROVOD_START_TIMEOUT: 7.5\n"
        "  HOROVOD_PORT_RANGE: 21000-21999\n  HOROVOD_STOP_SIGNALS: USR1\n"
        f"  HOROVOD_NCCL_LIBRARY: {tmp_path}/libnccl.so.2.28.9\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    done = subprocess.run([sys.executable, "-c", WITH_SETTINGS], env=environment | {"XDG_CONFIG_HOME": str(tmp_path)},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "USR1 did not end it" in done.stdout, done


def test_a_flag_is_on_in_python_as_in_c(monkeypatch):
    on, off = ("1", "+1", "7", " yes ", "On", "TRUE"), ("0", "-1", "no", "Off", "false", "")
    for word in on + off:
        monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", word)
        assert _ops.is_on("HOROVOD_DYNAMIC_PROCESS_SETS") == (word in on), word


def test_split_list():
    assert util.split_list(list(range(10)), 3) == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert util.split_list([1], 3) == [[1], [], []]


def test_env():
    os.environ["HVD_TEST_A"] = "before"
    os.environ.pop("HVD_TEST_B", None)
    with util.env(HVD_TEST_A="inside", HVD_TEST_B="inside", HVD_TEST_C=None):
        assert os.environ["HVD_TEST_A"] == os.environ["HVD_TEST_B"] == "inside"
        assert "HVD_TEST_C" not in os.environ
    assert os.environ.pop("HVD_TEST_A") == "before" and "HVD_TEST_B" not in os.environ


def test_cache():
    values = iter(range(10))
    remembered = util._cache(lambda *a, **k: next(values))
    assert [remembered(1), remembered(1), remembered(2), remembered(2, x=1), remembered(2, x=1)] == [0, 0, 1, 2, 2]


def test_average_compatibility():
    class Ops:
        Average, Sum = "average", "sum"

    resolve = util.get_average_backwards_compatibility_fun(Ops)
    assert resolve(None, None) == "average" and resolve("max", None) == "max"
    with pytest.warns(DeprecationWarning):
        assert resolve(None, True) == "average"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert resolve(None, False) == "sum"
    with pytest.raises(ValueError):
        resolve("max", True)


def test_num_rank_is_power_2():
    assert [n for n in range(9) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8]


def test_versions():
    assert util.is_version_greater_equal_than("2.13.0+cpu", "2.1.0")
    assert util.is_version_greater_equal_than("2.1", "2.1.0")
    assert not util.is_version_greater_equal_than("1.13.1", "2.0.0")
    for wrong in ((2, "1.0.0"), ("1.0.0", "1.0"), ("1.0.0", None)):
        with pytest.raises(ValueError):
            util.is_version_greater_equal_than(*wrong)


def test_extensions():
    assert util.extension_available("torch")
    assert not util.extension_available("no_such_framework")
    assert util.mpi_built() in (True, False) and util.gloo_built() is True
    assert util.get_extension_full_path(__file__, "a", "b").endswith(os.path.join("a", "b" + util.get_ext_suffix()))
    with pytest.raises(ImportError):
        util.check_extension("horovod.none", "HOROVOD_WITH_NONE", __file__, "none")


def test_exceptions():
    assert issubclass(exceptions.HorovodInternalError, RuntimeError)
    assert exceptions.HostsUpdatedInterrupt().skip_sync is False
    assert exceptions.HostsUpdatedInterrupt(True).skip_sync is True
    error = exceptions.HorovodVersionMismatchError("torch", "1.0", "2.0")
    assert isinstance(error, ImportError) and (error.name, error.version, error.installed_version) == (
        "torch", "1.0", "2.0")
    assert "torch" in exceptions.get_version_mismatch_message("torch", "1.0", "2.0")


def test_process_set():
    import horovod.torch as hvd
    given = hvd.ProcessSet(reversed(range(4)))
    assert given.ranks == [0, 1, 2, 3]
    assert str(given) == "ProcessSet(process_set_id=None, ranks=[0, 1, 2, 3], mpi_comm=None)"
    assert given.size() is None and given.rank() is None
    for wrong in (17, ["a"], [0, None]):
        with pytest.raises(ValueError):
            hvd.ProcessSet(wrong)
    hvd.init()
    try:
        unknown = process_sets._temp_process_set_object(7)
        for question in (unknown.size, unknown.rank):
            with pytest.raises(ValueError):
                question()
        assert hvd.global_process_set.size() == 1 and given.included()
        assert str(hvd.global_process_set) == "ProcessSet(process_set_id=0, ranks=[0], mpi_comm=None)"
        assert hvd.remove_process_set(hvd.global_process_set) is False
    finally:
        hvd.shutdown()


def test_a_thread_ends_the_process_with_the_code_of_a_saved_training():
    code = """if True:
        import atexit, threading
        from horovod.common.stops import end_undisturbed
        atexit.register(print, "and left")
        print("saved")
        thread = threading.Thread(target=end_undisturbed, args=(75,))
        thread.start()
        thread.join()"""
    ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (75, "saved\nand left\n")
