"""Tests of the C functions that other Python code calls through ctypes."""
import ctypes
import glob
import os

import pytest
import torch

import horovod.torch as hvd
from horovod.torch import mpi_ops
from ranks import SIZE, at_least, equal, mine, power_of_two, restarted, sets_of, total

INT, BOOL = ctypes.c_int, ctypes.c_bool
NONE, DYNAMIC, UNKNOWN_SET, FOREIGN_SET, EXISTING_SET = -1, -2, -3, -4, -6
QUESTIONS = ["rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"]
BUILT = ["mpi_built", "gloo_built", "ddl_built", "ccl_built", "cuda_built", "rocm_built"]


@pytest.fixture
def library():
    found = glob.glob(os.path.join(os.path.dirname(hvd.__file__), "mpi_lib_v2*.so"))
    assert len(found) == 1, f"horovod/torch/mpi_lib_v2*.so: {found}"
    return ctypes.CDLL(found[0], mode=ctypes.RTLD_GLOBAL)


def call(library, name, *arguments, result=INT):
    function = getattr(library, "horovod_" + name)
    function.restype = result
    return function(*arguments)


def ints(*values):
    return (INT * len(values))(*values)


@pytest.fixture
def uninitialised():
    hvd.barrier()
    hvd.shutdown()
    yield
    hvd.init()


def test_the_library_is_the_one_that_python_uses(library):
    """Contract §1.3 C functions"""
    assert call(library, "is_initialized") == 1
    assert mpi_ops._basics.MPI_LIB_CTYPES.horovod_rank() == hvd.rank()


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_about_the_world_have_their_functions(question, library):
    """Contract §1.3 C functions"""
    assert call(library, question) == getattr(hvd, question)()


@pytest.mark.parametrize("question", QUESTIONS)
def test_before_init_the_answer_is_minus_one(question, library, uninitialised):
    """Contract §1.3 C functions"""
    assert call(library, question) == -1 and call(library, "is_initialized") == 0


@pytest.mark.parametrize("built", [*BUILT, "mpi_enabled", "gloo_enabled"])
def test_what_is_built_and_enabled_has_its_function(built, library):
    """Contract §1.3 C functions"""
    assert call(library, built, result=BOOL) is getattr(hvd, built)()


def test_further_questions_have_their_functions(library):
    """Contract §1.3 C functions"""
    assert call(library, "nccl_built") == hvd.nccl_built()
    assert call(library, "is_homogeneous", result=BOOL) is True
    assert call(library, "mpi_threads_supported") in (-1, 0, 1)


def test_reductions_have_their_numbers(library):
    """Contract §1.3 C functions"""
    names = ["average", "sum", "adasum", "min", "max", "product"]
    assert [call(library, "reduce_op_" + name) for name in names] == [0, 1, 2, 3, 4, 5]


def test_the_runtime_starts_and_ends_through_c(library, uninitialised):
    """Contract §1.3 horovod_init, horovod_shutdown"""
    assert call(library, "init", None, 0, None, None, 0, result=BOOL) is True
    assert call(library, "is_initialized") == 1 and call(library, "size") == SIZE
    equal(hvd.allreduce(mine(), op=hvd.Sum), total())
    hvd.barrier()
    call(library, "shutdown", result=None)
    assert call(library, "is_initialized") == 0


@at_least(2)
def test_static_sets_are_given_through_c(library, uninitialised):
    """Contract §1.3 horovod_init"""
    ranks, sizes = ints(*range(1, SIZE), 0), ints(SIZE - 1, 1)
    started = call(library, "init", None, 0, ranks, sizes, 2, result=BOOL)
    found = {number: ranks_of(library, number) for number in ids_of(library)}
    call(library, "shutdown", result=None)
    assert started is True and found == {0: list(range(SIZE)), 1: list(range(1, SIZE)), 2: [0]}


def ids_of(library):
    ids = (INT * call(library, "number_of_process_sets"))()
    call(library, "process_set_ids", ids, result=None)
    return list(ids)


def ranks_of(library, number):
    ranks = (INT * call(library, "process_set_size", number))()
    assert call(library, "process_set_ranks", number, ranks) in (0, len(ranks))
    return list(ranks)


def test_the_global_set_is_known(library):
    """Contract §1.3 set id 0"""
    assert ids_of(library) == [0] and ranks_of(library, 0) == list(range(SIZE))
    assert call(library, "process_set_rank", 0) == hvd.rank() and call(library, "process_set_size", 0) == hvd.size()
    assert call(library, "process_set_included", 0) == 1


def test_everyone_is_in_the_global_set_before_init_too(library, uninitialised):
    """Contract §1.3 set id 0"""
    assert call(library, "process_set_included", 0) == 1


@at_least(2)
def test_sets_are_added_and_removed_through_c(library):
    """Contract §1.3 horovod_add_process_set"""
    number = call(library, "add_process_set", ints(0), 1)
    found = (ids_of(library), ranks_of(library, number), call(library, "process_set_included", number),
             call(library, "process_set_rank", number), call(library, "add_process_set", ints(0), 1))
    removed = call(library, "remove_process_set", number)
    after = call(library, "process_set_size", number)
    assert number > 0 and found[0] == [0, number] and found[1] == [0]
    assert found[2:] == ((1, 0, EXISTING_SET) if hvd.rank() == 0 else (0, FOREIGN_SET, EXISTING_SET))
    assert removed >= 0 and after == UNKNOWN_SET


@at_least(2)
def test_without_dynamic_sets_adding_has_a_code_of_its_own(library):
    """Contract §1.3 error codes"""
    with restarted(HOROVOD_DYNAMIC_PROCESS_SETS=None):
        found = [call(library, "add_process_set", ints(0), 1), call(library, "remove_process_set", 1)]
    assert found[0] == DYNAMIC and found[1] in (DYNAMIC, UNKNOWN_SET)


def test_codes_of_sets_before_init_and_of_unknown_ones(library):
    """Contract §1.3 error codes"""
    unknown = [call(library, "process_set_rank", 55), call(library, "process_set_size", 55),
               call(library, "process_set_included", 55)]
    hvd.barrier()
    hvd.shutdown()
    before = [call(library, "add_process_set", ints(0), 1), call(library, "remove_process_set", 1),
              call(library, "process_set_rank", 1), call(library, "process_set_size", 1)]
    hvd.init()
    assert unknown == [UNKNOWN_SET] * 3 and before == [NONE] * 4


@at_least(2)
def test_sets_of_python_are_seen_through_c(library):
    """Contract §1.3 C functions, §1.4 process sets"""
    with sets_of([SIZE - 1]) as last:
        found = ranks_of(library, last.process_set_id)
    assert found == [SIZE - 1]


def test_the_timeline_has_its_codes(library, shared_folder):
    """Contract §1.3 horovod_start_timeline"""
    path = os.fsencode(shared_folder / "timeline")
    with restarted(HOROVOD_TIMELINE=None):
        off = call(library, "start_timeline", path, BOOL(False))
    with restarted(HOROVOD_TIMELINE="DYNAMIC"):
        on = [call(library, "start_timeline", path, BOOL(False)), call(library, "stop_timeline")]
    hvd.barrier()
    hvd.shutdown()
    before = [call(library, "start_timeline", path, BOOL(False)), call(library, "stop_timeline")]
    hvd.init()
    assert off == -2 and on == [1, 1] and before == [-1, -1]


@power_of_two
def test_functions_for_communicators_are_there(library):
    """Contract §1.3 horovod_init_multi_comm, horovod_comm_process_set"""
    assert library.horovod_init_multi_comm and library.horovod_comm_process_set
    equal(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), float(SIZE)))
