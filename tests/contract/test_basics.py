"""Tests of init, shutdown, ranks and sizes."""
import os
import threading

import pytest
import torch

import horovod.torch as hvd
from horovod.torch import mpi_ops
from ranks import SIZE, Job, alone, at_least, equal, error_of, is_error, limit, mine, restarted, total

QUESTIONS = ["rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"]
BUILT = ["mpi_built", "gloo_built", "ddl_built", "ccl_built", "cuda_built", "rocm_built"]


@pytest.fixture
def uninitialised():
    hvd.barrier()
    hvd.shutdown()
    yield
    hvd.init()


def works():
    equal(hvd.allreduce(mine(), op=hvd.Sum), total())


def test_the_reductions_are_these_numbers():
    """Contract §1.2 attributes"""
    names = ["Average", "Sum", "Adasum", "Min", "Max", "Product"]
    assert [getattr(hvd, name) for name in names] == [0, 1, 2, 3, 4, 5]
    assert all(type(getattr(hvd, name)) is int for name in names)
    assert [getattr(mpi_ops._basics, name) for name in names] == [0, 1, 2, 3, 4, 5]


def test_the_world_has_the_ranks_that_were_started():
    """Contract §1.2 rank size"""
    assert hvd.size() == SIZE
    assert hvd.rank() == int(os.environ["HOROVOD_RANK"])
    equal(hvd.allgather(torch.tensor([hvd.rank()])), torch.arange(SIZE))


def test_ranks_of_one_host_are_local_and_cross_is_alone():
    """Contract §1.2 local and cross"""
    assert (hvd.local_rank(), hvd.local_size()) == (hvd.rank(), hvd.size())
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)


def test_one_host_is_homogeneous():
    """Contract §1.2 is_homogeneous"""
    assert mpi_ops.is_homogeneous() is True


@pytest.mark.parametrize("question", QUESTIONS)
def test_before_init_a_question_about_the_world_is_a_value_error(question, uninitialised):
    """Contract §1.2 rank size … [Horovod tests this]"""
    is_error(error_of(getattr(hvd, question)), ValueError)


def test_before_init_mpi_threads_supported_is_a_value_error(uninitialised):
    """Contract §1.2 mpi_threads_supported"""
    is_error(error_of(hvd.mpi_threads_supported), ValueError)


def test_mpi_threads_supported_needs_mpi():
    """Contract §1.2 mpi_threads_supported"""
    if hvd.mpi_enabled():
        assert isinstance(hvd.mpi_threads_supported(), bool)
    else:
        is_error(error_of(hvd.mpi_threads_supported), ValueError)


@pytest.mark.parametrize("built", BUILT)
def test_what_is_built_is_a_bool_with_and_without_a_runtime(built):
    """Contract §1.2 …_built"""
    with_runtime = getattr(hvd, built)()
    hvd.barrier()
    hvd.shutdown()
    assert isinstance(with_runtime, bool) and getattr(hvd, built)() is with_runtime


def test_something_is_built():
    """Contract §1.2 …_built: users ask this before they start anything"""
    assert hvd.mpi_built() or hvd.gloo_built()


def test_nccl_built_is_a_version_code():
    """Contract §1.2 nccl_built [Horovod tests this]"""
    assert type(hvd.nccl_built()) is int and (hvd.nccl_built() == 0 or hvd.nccl_built() > 2000)


def test_what_is_enabled_is_a_bool():
    """Contract §1.2 mpi_enabled gloo_enabled"""
    assert isinstance(hvd.mpi_enabled(), bool) and isinstance(hvd.gloo_enabled(), bool)


def test_init_again_changes_nothing():
    """Contract §1.2 init [Horovod tests this]"""
    first = hvd.allreduce_async(mine(), name="again.first")
    hvd.synchronize(first)
    hvd.init()
    works()
    assert hvd.is_initialized() and hvd.global_process_set.process_set_id == 0


def test_the_runtime_starts_again_and_again():
    """Contract §1.2 init, §6.12 [Horovod tests this]"""
    for _ in range(10):
        hvd.barrier()
        hvd.shutdown()
        assert not hvd.is_initialized()
        hvd.init()
        assert hvd.is_initialized()
        works()


def test_shutdown_of_what_does_not_run_does_nothing(uninitialised):
    """Contract §1.2 shutdown"""
    hvd.shutdown()
    hvd.shutdown()
    assert not hvd.is_initialized()


def test_init_takes_an_empty_list_for_all_processes(uninitialised):
    """Contract §1.2 init"""
    hvd.init([])
    works()


def test_init_takes_the_list_of_all_ranks(uninitialised):
    """Contract §1.2 init"""
    hvd.init(comm=list(range(SIZE)))
    works()


def test_init_refuses_what_is_neither_list_nor_communicator(uninitialised):
    """Contract §1.2 init"""
    error = error_of(hvd.init, object())
    hvd.shutdown()
    hvd.init()
    works()
    is_error(error, ValueError)


@pytest.mark.parametrize("word", ["dynamic", "Dynamic", "DYNAMIC"])
def test_the_word_dynamic_makes_sets_dynamic(word):
    """Contract §1.2 init"""
    with restarted(process_sets=word, HOROVOD_DYNAMIC_PROCESS_SETS=None):
        variable = os.environ.get("HOROVOD_DYNAMIC_PROCESS_SETS")
        known = mpi_ops._basics._get_process_set_ids_and_ranks()
        if SIZE > 1:
            added = hvd.add_process_set([0])
            hvd.remove_process_set(added)
    assert variable == "1" and known == {0: list(range(SIZE))}


def test_the_table_of_sets_begins_with_the_global_one():
    """Contract §1.2 _get_process_set_ids_and_ranks [Horovod tests this]"""
    assert mpi_ops._basics._get_process_set_ids_and_ranks() == {0: list(range(SIZE))}


def test_the_table_of_sets_needs_a_runtime(uninitialised):
    """Contract §1.2 _get_process_set_ids_and_ranks"""
    is_error(error_of(mpi_ops._basics._get_process_set_ids_and_ranks), ValueError)


def test_basics_are_the_methods_of_horovod_basics():
    """Contract §1.2 HorovodBasics"""
    from horovod.common.basics import HorovodBasics
    assert isinstance(mpi_ops._basics, HorovodBasics)
    assert all(callable(getattr(mpi_ops._basics, name)) for name in [*QUESTIONS, *BUILT, "init", "shutdown"])


def test_init_and_shutdown_work_from_any_thread():
    """Contract §6.12, issue 20: from any thread"""
    found, tensor = [], mine()

    def lives_once():
        hvd.init()
        found.append(hvd.allreduce(tensor, op=hvd.Sum, name="thread"))

    hvd.barrier()
    for target in (hvd.shutdown, lives_once, hvd.shutdown, lives_once):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    works()
    for each in found:
        equal(each, total())
    assert len(found) == 2


def test_a_wrong_kind_of_cpu_operations_is_refused_at_init():
    """Contract §6.7 HOROVOD_CPU_OPERATIONS"""
    hvd.barrier()
    hvd.shutdown()
    os.environ["HOROVOD_CPU_OPERATIONS"] = "PIGEONS"
    error = error_of(hvd.init)
    del os.environ["HOROVOD_CPU_OPERATIONS"]
    hvd.shutdown()
    hvd.init()
    works()
    is_error(error, ValueError, RuntimeError)


@pytest.mark.parametrize("flag", ["HIERARCHICAL_ALLREDUCE", "HIERARCHICAL_ALLGATHER", "TORUS_ALLREDUCE"])
def test_hierarchical_flags_do_not_change_results(flag):
    """Contract §6.8 hierarchical"""
    with restarted(**{f"HOROVOD_{flag}": 1}):
        reduced = hvd.allreduce(mine((1000,)), op=hvd.Sum)
        gathered = hvd.allgather(torch.full((hvd.rank() + 1,), hvd.rank()))
    equal(reduced, total((1000,)))
    assert gathered.tolist() == [rank for rank in range(SIZE) for _ in range(rank + 1)]


@pytest.mark.parametrize("milliseconds", [0, 0.5, 20])
def test_the_cycle_time_does_not_change_results(milliseconds):
    """Contract §6.1 threads"""
    with restarted(HOROVOD_CYCLE_TIME=milliseconds):
        found = [hvd.synchronize(handle) for handle in
                 [hvd.allreduce_async(mine() * i, op=hvd.Sum, name=f"cycle.{i}") for i in range(20)]]
    for i, tensor in enumerate(found):
        equal(tensor, total() * i)


def cores_of_threads():
    found = []
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/status") as status:
            found += [line.split()[1] for line in status if line.startswith("Cpus_allowed_list")]
    return found


def test_thread_affinity_pins_the_background_thread():
    """Contract §7 HOROVOD_THREAD_AFFINITY"""
    cores = sorted(os.sched_getaffinity(0))
    wanted = [cores[rank % len(cores)] for rank in range(SIZE)]
    with restarted(HOROVOD_THREAD_AFFINITY=",".join(map(str, wanted))):
        pinned = cores_of_threads()
        works()
    assert len(cores) == 1 or str(wanted[hvd.local_rank()]) in pinned


@pytest.mark.parametrize("value", ["nonsense", "-1", "99999"])
def test_bad_thread_affinity_leaves_the_runtime_usable(value):
    """Contract §7 HOROVOD_THREAD_AFFINITY"""
    hvd.barrier()
    hvd.shutdown()
    os.environ["HOROVOD_THREAD_AFFINITY"] = ",".join([value] * SIZE)
    error = error_of(hvd.init)  # Horovod logs this and goes on; an error for a malformed value is better
    started = hvd.is_initialized()
    found = hvd.allreduce(mine(), op=hvd.Sum) if started else None
    if started:
        hvd.barrier()
    hvd.shutdown()
    del os.environ["HOROVOD_THREAD_AFFINITY"]
    hvd.init()
    works()
    if started:
        equal(found, total())
    else:
        is_error(error, ValueError)


@alone
def test_a_program_may_end_without_shutdown(tmp_path):
    """Contract §1.2 init: registers shutdown with atexit"""
    with Job(tmp_path, 2, """
            hvd.init()
            hvd.init()
            assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [2, 2, 2]
            """) as job:
        assert job.ends() == 0, job.text()


@alone
def test_without_a_launcher_the_world_is_one_process(tmp_path):
    """Contract §1.2 init"""
    import subprocess
    import sys
    program = ("import horovod.torch as hvd, torch; hvd.init(); "
               "print(hvd.rank(), hvd.size(), hvd.allreduce(torch.ones(2), name='one').tolist())")
    found = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=50)
    assert (found.returncode, found.stdout.strip()) == (0, "0 1 [1.0, 1.0]")


@alone
@limit(120)
def test_init_takes_a_communicator_and_sets_of_communicators(tmp_path):
    """Contract §1.2 init, §5 from MPI communicators"""
    pytest.importorskip("mpi4py")
    if not hvd.mpi_built():
        pytest.skip("no MPI in this build")
    with Job(tmp_path, 3, """
            from mpi4py import MPI
            even = MPI.COMM_WORLD.Split(color=MPI.COMM_WORLD.rank % 2, key=MPI.COMM_WORLD.rank)
            mine, first = hvd.ProcessSet(even), hvd.ProcessSet([0])
            hvd.init(comm=MPI.COMM_WORLD, process_sets=[mine, first])
            table = hvd.mpi_ops._basics._get_process_set_ids_and_ranks()
            assert table == {0: [0, 1, 2], 1: [0, 2], 2: [1], 3: [0]}, table
            expected = ([0, 2], 1) if hvd.rank() % 2 == 0 else ([1], 2)
            assert (mine.ranks, mine.process_set_id) == expected, mine
            assert hvd.global_process_set.mpi_comm is not None and first.process_set_id == 3
            found = hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=mine)
            assert found.tolist() == [len(expected[0])] * 2
            """, options=["--mpi", "-H", "localhost:3"]) as job:
        assert job.ends(100) == 0, job.text()


@alone
def test_sets_of_communicators_need_a_communicator_as_world(tmp_path):
    """Contract §1.2 init"""
    pytest.importorskip("mpi4py")
    if not hvd.mpi_built():
        pytest.skip("no MPI in this build")
    with Job(tmp_path, 2, """
            from mpi4py import MPI
            try:
                hvd.init(process_sets=[hvd.ProcessSet(MPI.COMM_WORLD.Dup())])
            except NotImplementedError:
                sys.exit(0)
            sys.exit("no NotImplementedError")
            """, options=["--mpi", "-H", "localhost:3"]) as job:
        assert job.ends() == 0, job.text()


@at_least(2)
def test_a_runtime_stays_initialised_when_another_rank_ended_it():
    """Contract §1.2 is_initialized [a quirk of Horovod, relied on]"""
    hvd.barrier()
    if hvd.rank() == 0:
        hvd.shutdown()
        here = True
    else:
        error = error_of(lambda: hvd.synchronize(hvd.allreduce_async(torch.ones(3), name="after.the.end")))
        here = hvd.is_initialized() and isinstance(error, hvd.HorovodInternalError)
    hvd.shutdown()
    hvd.init()
    works()
    assert here
