"""Tests of horovod.common.util and horovod.common.exceptions."""
import os
import pickle
import warnings

import pytest

from horovod.common import exceptions, util
from ranks import alone

pytestmark = alone


def test_a_cached_function_is_called_once_per_arguments():
    """Contract §1.6 _cache [Horovod tests this]"""
    calls = []

    @util._cache
    def function(*arguments, **named):
        calls.append((arguments, named))
        return len(calls)

    assert [function(1), function(1), function(2), function(1, a=3), function(1, a=3)] == [1, 1, 2, 3, 3]


def test_env_sets_variables_and_puts_them_back():
    """Contract §1.6 env [Horovod tests this]"""
    os.environ["CONTRACT_OLD"], _ = "old", os.environ.pop("CONTRACT_NEW", None)
    with util.env(CONTRACT_OLD="changed", CONTRACT_NEW="new", CONTRACT_NONE=None):
        assert (os.environ["CONTRACT_OLD"], os.environ["CONTRACT_NEW"]) == ("changed", "new")
        assert "CONTRACT_NONE" not in os.environ
    assert os.environ.pop("CONTRACT_OLD") == "old" and "CONTRACT_NEW" not in os.environ


def test_env_puts_variables_back_after_an_error():
    """Contract §1.6 env [Horovod tests this]"""
    with pytest.raises(KeyError), util.env(CONTRACT_NEW="new"):
        raise KeyError
    assert "CONTRACT_NEW" not in os.environ


def test_op_and_average_are_resolved():
    """Contract §1.6 get_average_backwards_compatibility_fun"""
    class Ops:
        Average, Sum, Adasum = 0, 1, 2

    resolve = util.get_average_backwards_compatibility_fun(Ops)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [resolve(None, None), resolve(1, None), resolve(2, None)] == [0, 1, 2]
    for average, expected in ((True, 0), (False, 1)):
        with pytest.warns(DeprecationWarning):
            assert resolve(None, average) == expected
        with pytest.raises(ValueError):
            resolve(1, average)


@pytest.mark.parametrize("number, expected", [(0, False), (1, True), (2, True), (3, False), (4, True), (6, False),
                                              (1024, True), (1023, False)])
def test_powers_of_two_are_known(number, expected):
    """Contract §1.6 num_rank_is_power_2"""
    assert util.num_rank_is_power_2(number) is expected


@pytest.mark.parametrize("length, parts, expected", [(7, 3, [3, 2, 2]), (6, 3, [2, 2, 2]), (2, 4, [1, 1, 0, 0]),
                                                     (0, 2, [0, 0]), (5, 1, [5])])
def test_a_list_is_split_into_nearly_equal_parts(length, parts, expected):
    """Contract §1.6 split_list"""
    found = util.split_list(list(range(length)), parts)
    assert [len(part) for part in found] == expected and sum(map(list, found), []) == list(range(length))


@pytest.mark.parametrize("thing, expected", [([], True), ((), True), ("text", True), ({}, True), (5, False),
                                             (None, False)])
def test_iterables_are_known(thing, expected):
    """Contract §1.6 is_iterable"""
    assert util.is_iterable(thing) is expected


@pytest.mark.parametrize("version, target, expected", [("1.2.3", "1.2.3", True), ("1.10.0", "1.9.0", True),
                                                       ("1.2.3", "1.2.4", False), ("2.0.0+cpu", "1.9.9", True),
                                                       ("0.9", "1.0.0", False)])
def test_versions_are_compared(version, target, expected):
    """Contract §1.6 is_version_greater_equal_than"""
    assert util.is_version_greater_equal_than(version, target) is expected


@pytest.mark.parametrize("version, target", [(1.2, "1.2.3"), ("1.2.3", 1.2), ("1.2.3", "1.2"), ("1.2.3", "text"),
                                             (None, "1.2.3")])
def test_versions_of_another_form_are_a_value_error(version, target):
    """Contract §1.6 is_version_greater_equal_than"""
    with pytest.raises(ValueError):
        util.is_version_greater_equal_than(version, target)


def test_an_extension_is_available_if_it_imports():
    """Contract §1.6 extension_available"""
    assert util.extension_available("torch") is True and util.extension_available("torch", verbose=True) is True
    assert util.extension_available("no_such_framework") is False


def test_asking_for_an_extension_says_nothing(capfd):
    """Contract §1.6 extension_available: output suppressed"""
    assert util.extension_available("no_such_framework") is False
    assert capfd.readouterr() == ("", "")


def test_a_gpu_is_looked_for_by_the_extension():
    """Contract §1.6 gpu_available"""
    import torch
    assert util.gpu_available("torch") is torch.cuda.is_available()


@pytest.mark.parametrize("name", ["mpi_built", "gloo_built", "nccl_built", "ddl_built", "ccl_built"])
def test_what_is_built_can_be_asked_without_a_framework(name):
    """Contract §1.6 …_built"""
    import horovod.torch as hvd
    assert getattr(util, name)() == getattr(hvd, name)() and getattr(util, name)(verbose=True) is not None


def test_extensions_have_the_suffix_of_this_python():
    """Contract §1.6 get_ext_suffix, get_extension_full_path, §1.1"""
    import sysconfig

    import horovod.torch
    suffix = util.get_ext_suffix()
    assert suffix == sysconfig.get_config_var("EXT_SUFFIX") or suffix == ".so"
    path = util.get_extension_full_path(horovod.torch.__file__, "mpi_lib_v2")
    assert path == os.path.join(os.path.dirname(horovod.torch.__file__), "mpi_lib_v2" + suffix)
    assert os.path.exists(path)


def test_a_missing_extension_is_an_import_error():
    """Contract §1.6 check_extension"""
    import horovod
    with pytest.raises(ImportError):
        util.check_extension("horovod.nothing", "HOROVOD_WITH_NOTHING", horovod.__file__, "no_such_lib")
    import horovod.torch
    assert util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", horovod.torch.__file__, "mpi_lib_v2") is None


def test_the_version_of_the_framework_is_checked():
    """Contract §1.6 check_installed_version, §1.1 metadata.json"""
    import torch
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        util.check_installed_version("pytorch", torch.__version__)


def test_a_failed_import_with_another_version_is_a_mismatch():
    """Contract §1.1 metadata.json, §1.6"""
    original = ImportError("symbol not found")
    with pytest.raises(exceptions.HorovodVersionMismatchError) as found:
        util.check_installed_version("pytorch", "0.0.1", original)
    assert found.value.__cause__ is original


def test_the_package_tells_what_it_was_built_against():
    """Contract §1.1 metadata.json"""
    import json

    import horovod
    with open(os.path.join(os.path.dirname(horovod.__file__), "metadata.json")) as file:
        known = json.load(file)
    assert isinstance(known, dict)


# ---- exceptions

def test_exceptions_are_of_their_kinds():
    """Contract §1.5 exceptions"""
    assert issubclass(exceptions.HorovodInternalError, RuntimeError)
    assert issubclass(exceptions.HostsUpdatedInterrupt, RuntimeError)
    assert issubclass(exceptions.HorovodVersionMismatchError, ImportError)


def test_an_interrupt_tells_whether_to_skip_the_sync():
    """Contract §1.5 exceptions"""
    assert exceptions.HostsUpdatedInterrupt().skip_sync is False
    assert exceptions.HostsUpdatedInterrupt(True).skip_sync is True
    assert exceptions.HostsUpdatedInterrupt(skip_sync=True).skip_sync is True


def test_a_mismatch_tells_the_versions():
    """Contract §1.5 exceptions"""
    error = exceptions.HorovodVersionMismatchError("pytorch", "1.0", "2.0")
    assert (error.name, error.version, error.installed_version) == ("pytorch", "1.0", "2.0")
    text = exceptions.get_version_mismatch_message("pytorch", "1.0", "2.0")
    assert isinstance(text, str) and "1.0" in text and "2.0" in text and "pytorch" in text


def test_an_internal_error_can_be_pickled():
    """Contract §1.5: errors travel between processes"""
    found = pickle.loads(pickle.dumps(exceptions.HorovodInternalError("why")))
    assert isinstance(found, exceptions.HorovodInternalError) and str(found) == "why"
