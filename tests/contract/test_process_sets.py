"""Tests of static and dynamic process sets: their ids, their errors, and every verb in them."""
import pytest
import torch

import horovod.torch as hvd
from horovod.torch import mpi_ops
from ranks import (SIZE, at_least, equal, error_of, everyone, gathered, halves, is_error, mine, of, restarted, sets_of,
                   share, total, wait_for)


def table():
    return mpi_ops._basics._get_process_set_ids_and_ranks()


# ---- ProcessSet, the class

@pytest.mark.parametrize("ranks", [[2, 0, 1], (1, 0, 2), range(2, -1, -1), reversed([0, 1, 2]), (r for r in [1, 2, 0])])
def test_a_set_sorts_its_ranks_whatever_they_come_in(ranks):
    """Contract §1.4 process sets"""
    made = hvd.ProcessSet(ranks)
    assert made.ranks == [0, 1, 2] and made.process_set_id is None and made.mpi_comm is None


@pytest.mark.parametrize("wrong", [["0", "1"], [0, 1.5], [None], 7, object()])
def test_a_set_of_other_things_than_ranks_is_a_value_error(wrong):
    """Contract §1.4 process sets"""
    is_error(error_of(hvd.ProcessSet, wrong), ValueError)


def test_a_set_that_nobody_registered_has_no_size_and_no_rank():
    """Contract §1.4 process sets"""
    made = hvd.ProcessSet([0])
    assert made.size() is None and made.rank() is None
    assert made.included() is (hvd.rank() == 0)


def test_a_set_says_what_it_is():
    """Contract §1.4 str [Horovod tests this]"""
    made = hvd.ProcessSet([1, 0])
    assert str(made) == "ProcessSet(process_set_id=None, ranks=[0, 1], mpi_comm=None)"
    known = hvd.global_process_set
    assert str(known) == f"ProcessSet(process_set_id=0, ranks={list(everyone())}, mpi_comm={known.mpi_comm})"


def test_sets_are_compared_by_identity():
    """Contract §1.4 process sets"""
    one, other = hvd.ProcessSet([0]), hvd.ProcessSet([0])
    assert one != other and len({one, other}) == 2


def test_the_global_set_has_id_0_and_all_ranks():
    """Contract §1.4 process sets [Horovod tests this]"""
    known = hvd.global_process_set
    assert known.process_set_id == 0 and known.ranks == list(range(SIZE))
    assert (known.size(), known.rank(), known.included()) == (hvd.size(), hvd.rank(), True)


def test_the_size_and_rank_of_a_set_need_a_runtime():
    """Contract §1.4 process sets"""
    hvd.barrier()
    hvd.shutdown()
    errors = [error_of(hvd.global_process_set.size), error_of(hvd.global_process_set.rank)]
    hvd.init()
    for error in errors:
        is_error(error, ValueError)


def test_a_made_up_id_is_a_value_error():
    """Contract §1.4 process sets, §2.10 errors"""
    from horovod.common.process_sets import _temp_process_set_object
    made_up = _temp_process_set_object(77)
    errors = [error_of(made_up.size), error_of(made_up.rank),
              error_of(hvd.allreduce, torch.ones(2), process_set=made_up),
              error_of(hvd.allgather, torch.ones(2), process_set=made_up)]
    for error in errors:
        is_error(error, ValueError)


@at_least(2)
def test_a_set_has_size_and_ranks_of_its_members_only():
    """Contract §1.4 process sets"""
    with sets_of([SIZE - 1]) as last:
        size, rank, included = last.size(), error_of(last.rank), last.included()
        inside = last.rank() if included else None
    assert size == 1 and included is (hvd.rank() == SIZE - 1)
    if included:
        assert inside == 0
    else:
        is_error(rank, ValueError)


# ---- static sets

@at_least(2)
def test_static_sets_get_ids_in_the_order_of_the_list():
    """Contract §5 static sets"""
    sets = [hvd.ProcessSet([0]), hvd.ProcessSet(range(SIZE - 1, 0, -1))]
    with restarted(process_sets=sets):
        known = table()
        found = [(made.process_set_id, made.ranks) for made in sets]
    assert known == {0: list(range(SIZE)), 1: [0], 2: list(range(1, SIZE))}
    assert found == [(1, [0]), (2, list(range(1, SIZE)))]


@at_least(2)
def test_static_sets_need_no_dynamic_ones():
    """Contract §5 static sets"""
    first = hvd.ProcessSet([0])
    with restarted(process_sets=[first], HOROVOD_DYNAMIC_PROCESS_SETS=None):
        found = hvd.allreduce(mine(), op=hvd.Sum, process_set=first) if hvd.rank() == 0 else of(0)
        refused = error_of(hvd.add_process_set, [SIZE - 1])
    equal(found, of(0))
    is_error(refused, ValueError)


@at_least(2)
def test_the_order_of_ranks_in_a_static_set_does_not_matter():
    """Contract §5 static sets"""
    ranks = list(range(SIZE))[:2]
    pair = hvd.ProcessSet(ranks if hvd.rank() == 0 else ranks[::-1])
    if SIZE == 2:
        pair = hvd.ProcessSet([0])
    with restarted(process_sets=[pair]):
        known = table()
    assert known[1] == pair.ranks


@at_least(3)
def test_static_sets_are_looked_up_again_by_a_second_init():
    """Contract §1.2 init [Horovod tests this]"""
    with restarted(process_sets=[hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2])]):
        other = [hvd.ProcessSet([1, 2]), hvd.ProcessSet([0, 1])]
        hvd.init(process_sets=other)
        found = [made.process_set_id for made in other]
        unknown = error_of(hvd.init, process_sets=[hvd.ProcessSet([0, 2])])
    assert found == [2, 1]
    is_error(unknown, KeyError)


@at_least(2)
@pytest.mark.parametrize("twice", [[[0], [0]], [[0], list(range(SIZE))], [[0], []]],
                         ids=["an earlier one", "the global one", "the empty one"])
def test_a_set_given_twice_is_refused_and_the_runtime_goes_on(twice):
    """Contract §5 static sets [Horovod tests this]"""
    hvd.barrier()
    hvd.shutdown()
    error = error_of(hvd.init, process_sets=[hvd.ProcessSet(ranks) for ranks in twice])
    running = hvd.is_initialized()
    again = hvd.ProcessSet([0])
    second = error_of(hvd.init, process_sets=[again])
    known = again.process_set_id
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    is_error(error, ValueError)
    assert "1" in str(error), "names the index in the list"
    assert running and second is None and known == 1


@at_least(2)
@pytest.mark.parametrize("disagree", ["content", "number", "size"])
def test_ranks_that_disagree_about_static_sets_are_refused_on_all_of_them(disagree):
    """Contract §5 static sets"""
    mine_only = {"content": [[hvd.rank()]], "number": [[0]] * (hvd.rank() == 0), "size": [[0, 1][:hvd.rank() + 1]]}
    if disagree == "size" and SIZE == 2:
        pytest.skip("the pair is the global set")
    hvd.barrier()
    hvd.shutdown()
    error = error_of(hvd.init, process_sets=[hvd.ProcessSet(ranks) for ranks in mine_only[disagree]])
    hvd.shutdown()
    hvd.init()  # with Horovod this process could not initialise again
    found = hvd.allreduce(mine(), op=hvd.Sum)
    equal(found, total())
    is_error(error, ValueError)


# ---- dynamic sets

@at_least(2)
def test_without_dynamic_sets_none_can_be_added():
    """Contract §5 dynamic sets"""
    with restarted(HOROVOD_DYNAMIC_PROCESS_SETS=None):
        error = error_of(hvd.add_process_set, [0])
    is_error(error, ValueError)


@at_least(2)
def test_add_takes_ranks_and_gives_a_set():
    """Contract §1.4 add_process_set"""
    added = hvd.add_process_set([0])
    known, number = table(), added.process_set_id
    removed = hvd.remove_process_set(added)
    assert isinstance(added, hvd.ProcessSet) and known[number] == [0] and removed is True
    assert added.process_set_id is None


@at_least(2)
def test_the_same_set_can_be_added_removed_and_added_again():
    """Contract §1.4 add_process_set [Horovod tests this]"""
    made = hvd.ProcessSet([0])
    found = []
    for _ in range(3):
        found.append(hvd.add_process_set(made) is made)
        found.append(made.process_set_id is not None)
        found.append(hvd.remove_process_set(made) is True)
        found.append(made.process_set_id is None)
    assert all(found)


@at_least(2)
@pytest.mark.parametrize("ranks", [[0], list(range(SIZE))], ids=["an added one", "the global one"])
def test_a_set_that_exists_cannot_be_added_again(ranks):
    """Contract §5 dynamic sets [Horovod tests this]"""
    with sets_of([0]):
        error = error_of(hvd.add_process_set, ranks)
        equal(hvd.allreduce(mine(), op=hvd.Sum), total())
    is_error(error, ValueError)


@pytest.mark.parametrize("ranks", [[SIZE], [-1], [0, 0], [0, SIZE + 3]],
                         ids=["too large", "negative", "twice", "one too large"])
def test_ranks_that_do_not_exist_or_come_twice_are_a_value_error(ranks):
    """Contract §5 dynamic sets [a quirk of Horovod]: upstream crashes"""
    error = error_of(lambda: hvd.add_process_set(ranks))
    equal(hvd.allreduce(mine(), op=hvd.Sum), total())
    is_error(error, ValueError)


def test_remove_is_false_for_the_global_set_and_for_strangers():
    """Contract §5 remove_process_set"""
    assert hvd.remove_process_set(hvd.global_process_set) is False
    assert hvd.remove_process_set(hvd.ProcessSet([0])) is False
    assert hvd.global_process_set.process_set_id == 0


@at_least(3)
def test_freed_ids_are_used_again_first_freed_first_and_before_new_ones():
    """Contract §5 dynamic sets [Horovod tests this]"""
    with restarted(HOROVOD_DYNAMIC_PROCESS_SETS=1):
        sets = [hvd.add_process_set(ranks) for ranks in ([0], [1], [2])]
        first = [made.process_set_id for made in sets]
        hvd.remove_process_set(sets[1])
        hvd.remove_process_set(sets[0])
        again = [hvd.add_process_set(ranks).process_set_id for ranks in ([0, 1], [1, 2], [0, 2])]
    assert first == [1, 2, 3] and again == [2, 1, 4]


@at_least(2)
def test_after_shutdown_ids_start_at_one_again():
    """Contract §5 shutdown"""
    with restarted(HOROVOD_DYNAMIC_PROCESS_SETS=1):
        hvd.add_process_set([0])
        hvd.add_process_set([1])
        hvd.barrier()
        hvd.shutdown()
        hvd.init()
        known = table()
        again = hvd.add_process_set([SIZE - 1]).process_set_id
    assert known == {0: list(range(SIZE))} and again == 1


@at_least(3)
def test_an_op_that_waits_in_a_removed_set_ends_with_an_error():
    """Contract §5 remove_process_set"""
    added = hvd.add_process_set(range(SIZE - 1))
    # The other members of the set never submit this op.
    handle = hvd.allreduce_async(torch.ones(3), name="left.behind", process_set=added) if hvd.rank() == 0 else None
    hvd.barrier()
    hvd.remove_process_set(added)
    error = error_of(hvd.synchronize, handle) if hvd.rank() == 0 else None
    equal(hvd.allreduce(mine(), op=hvd.Sum), total())
    if hvd.rank() == 0:
        is_error(error, hvd.HorovodInternalError)


VERBS = {
    "allreduce": lambda s: hvd.allreduce(torch.ones(4), process_set=s),
    "grouped_allreduce": lambda s: hvd.grouped_allreduce([torch.ones(4)], process_set=s),
    "allgather": lambda s: hvd.allgather(torch.ones(4), process_set=s),
    "grouped_allgather": lambda s: hvd.grouped_allgather([torch.ones(4)], process_set=s),
    "broadcast": lambda s: hvd.broadcast(torch.ones(4), 0, process_set=s),
    "alltoall": lambda s: hvd.alltoall(torch.ones(12), process_set=s),
    "reducescatter": lambda s: hvd.reducescatter(torch.ones(12), process_set=s),
    "grouped_reducescatter": lambda s: hvd.grouped_reducescatter([torch.ones(12)], process_set=s),
    "barrier": lambda s: hvd.barrier(process_set=s),
}


@at_least(2)
@pytest.mark.parametrize("verb", VERBS)
def test_who_is_not_a_member_gets_a_value_error(verb):
    """Contract §5 where ops run, §2.10"""
    with sets_of([0]) as first:
        error = error_of(VERBS[verb], first)
    if hvd.rank() == 0:
        assert error is None
    else:
        is_error(error, ValueError)


@pytest.mark.parametrize("verb", VERBS)
def test_a_set_without_an_id_is_a_type_error(verb):
    """Contract §2.10 errors"""
    error = error_of(VERBS[verb], hvd.ProcessSet([0]))
    equal(hvd.allreduce(mine(), op=hvd.Sum), total())
    is_error(error, TypeError)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "barrier"])
def test_a_set_with_a_made_up_id_is_a_value_error(verb):
    """Contract §2.10 errors"""
    from horovod.common.process_sets import _temp_process_set_object
    error = error_of(VERBS[verb], _temp_process_set_object(99))
    is_error(error, ValueError)


def test_a_barrier_of_a_made_up_set_is_an_error():
    """Contract §2.10 errors [a quirk of Horovod]"""
    from horovod.common.process_sets import _temp_process_set_object
    is_error(error_of(hvd.barrier, process_set=_temp_process_set_object(99)), IndexError, ValueError)


# ---- every verb inside a set

@at_least(2)
@pytest.mark.parametrize("op", ["Sum", "Average", "Min", "Max", "Product"])
def test_allreduce_in_a_set_reduces_its_members(op):
    """Contract §5, §2.6: n is the size of the set"""
    with halves() as (half, ranks):
        found = hvd.allreduce(mine(), op=getattr(hvd, op), process_set=half)
        in_place = mine()
        hvd.allreduce_(in_place, op=getattr(hvd, op), process_set=half)
    stack = torch.stack([of(rank) for rank in ranks])
    expected = {"Sum": stack.sum(0), "Average": stack.mean(0), "Min": stack.amin(0), "Max": stack.amax(0),
                "Product": stack.prod(0)}[op]
    equal(found, expected)
    equal(in_place, expected)


@at_least(2)
def test_grouped_allreduce_in_a_set_reduces_its_members():
    """Contract §5 process sets"""
    with halves() as (half, ranks):
        found = hvd.grouped_allreduce([mine((i + 1,)) for i in range(4)], op=hvd.Sum, process_set=half)
    for i, tensor in enumerate(found):
        equal(tensor, total((i + 1,), ranks=ranks))


@at_least(2)
def test_allgather_in_a_set_concatenates_by_set_rank():
    """Contract §5 process sets, §2.8 details of ops"""
    with halves() as (half, ranks):
        found = hvd.allgather(mine((hvd.rank() + 1, 2)), process_set=half)
        group = hvd.grouped_allgather([mine((hvd.rank() + 1, 2)), mine((3,))], process_set=half)
    equal(found, gathered(lambda rank: rank + 1, (2,), ranks=ranks))
    equal(group[0], found)
    equal(group[1], gathered(lambda rank: 3, ranks=ranks))


@at_least(2)
def test_the_root_in_a_set_is_a_global_rank():
    """Contract §2.8 broadcast [Horovod tests this]"""
    found = []
    with halves() as (half, ranks):
        for root in ranks:
            found.append((root, hvd.broadcast(mine(), root, process_set=half)))
    for root, tensor in found:
        equal(tensor, of(root))


@at_least(3)
def test_a_root_outside_the_set_is_a_value_error():
    """Contract §2.10 broadcast root not in set"""
    with halves() as (half, ranks):
        stranger = next(rank for rank in everyone() if rank not in ranks)
        errors = [error_of(hvd.broadcast, mine(), root, process_set=half) for root in (stranger, SIZE, -1)]
    for error in errors:
        is_error(error, ValueError)


@at_least(2)
def test_alltoall_in_a_set_splits_by_set_rank():
    """Contract §5 process sets, §2.8 details of ops"""
    with halves() as (half, ranks):
        splits = torch.arange(len(ranks), dtype=torch.int32) + half.rank()
        rows = torch.full((int(splits.sum()),), float(hvd.rank()))
        found, received = hvd.alltoall(rows, splits, process_set=half)
        here = half.rank()
    expected = [here + index for index in range(len(ranks))]
    assert received.tolist() == expected
    assert found.tolist() == [float(rank) for rank, count in zip(ranks, expected) for _ in range(count)]


@at_least(2)
def test_reducescatter_in_a_set_shares_rows_among_members():
    """Contract §5 process sets, §2.8 details of ops"""
    with halves() as (half, ranks):
        found = hvd.reducescatter(mine((7, 2)), op=hvd.Sum, process_set=half)
        average = hvd.reducescatter(mine((7, 2)), process_set=half)
        rows = share(7, half.rank(), len(ranks))
    equal(found, total((7, 2), ranks=ranks)[rows])
    equal(average, (total((7, 2), ranks=ranks) / len(ranks))[rows])


@at_least(2)
def test_a_barrier_of_a_set_does_not_wait_for_others(shared_folder):
    """Contract §2.8 barrier [Horovod tests this]"""
    odd = [rank for rank in everyone() if rank % 2]
    with sets_of(odd) as others:
        if hvd.rank() in odd:
            hvd.barrier(process_set=others)
            (shared_folder / str(hvd.rank())).touch()
        elif hvd.rank() == 0:
            wait_for(lambda: all((shared_folder / str(rank)).exists() for rank in odd))


@at_least(2)
def test_one_name_may_be_in_flight_in_several_sets():
    """Contract §2.4 names of ops"""
    with halves() as (half, ranks):
        handles = [hvd.allreduce_async(mine(), name="shared", op=hvd.Sum, process_set=half),
                   hvd.allreduce_async(mine(), name="shared", op=hvd.Sum)]
        found = [hvd.synchronize(handle) for handle in handles]
    equal(found[0], total(ranks=ranks))
    equal(found[1], total())


@at_least(3)
def test_overlapping_sets_in_different_orders_do_not_block_each_other():
    """Contract §5, issue 20: one log, one order"""
    lists = [[0, 1], [1, 2], [0, 2]]
    with sets_of(*lists) as sets:
        order = [0, 1, 2] if hvd.rank() % 2 == 0 else [2, 1, 0]
        handles = {}
        for turn in range(5):
            for index in order:
                if sets[index].included():
                    handles[turn, index] = hvd.allreduce_async(mine(), name=f"turn.{turn}", op=hvd.Sum,
                                                               process_set=sets[index])
        found = {key: hvd.synchronize(handle) for key, handle in handles.items()}
    for (_, index), tensor in found.items():
        equal(tensor, total(ranks=lists[index]))


@at_least(2)
def test_a_set_that_waits_does_not_hold_up_another(shared_folder):
    """Contract §5, issue 20: lanes"""
    with halves() as (half, ranks):
        # The last even rank submits only after all odd ranks have finished.
        late = [rank for rank in everyone() if rank % 2 == 0][-1]
        odd = [rank for rank in everyone() if rank % 2]
        if hvd.rank() == late:
            wait_for(lambda: all((shared_folder / str(rank)).exists() for rank in odd))
        found = hvd.allreduce(mine(), op=hvd.Sum, process_set=half)
        if hvd.rank() in odd:
            (shared_folder / str(hvd.rank())).touch()
    equal(found, total(ranks=ranks))


@at_least(2)
def test_an_error_in_one_set_leaves_the_others_alone():
    """Contract §5 process sets, §2.10 errors"""
    with halves() as (half, ranks):
        shape = (3 + (half.rank() == 0 and len(ranks) > 1),)
        error = error_of(hvd.allreduce, torch.ones(shape), name="wrong", process_set=half)
        found = hvd.allreduce(mine(), op=hvd.Sum)
        again = hvd.allreduce(mine(), name="wrong", op=hvd.Sum, process_set=half)
    equal(found, total())
    equal(again, total(ranks=ranks))
    if len(ranks) > 1:
        is_error(error, hvd.HorovodInternalError)


@at_least(2)
@pytest.mark.parametrize("kind", ["add", "remove"])
def test_ops_in_flight_go_on_while_a_set_is_added_or_removed(kind):
    """Contract §5 dynamic sets"""
    added = hvd.add_process_set([0])
    handles = [hvd.allreduce_async(mine(), name=f"meanwhile.{i}", op=hvd.Sum) for i in range(5)]
    other = hvd.add_process_set([1]) if kind == "add" else None
    hvd.remove_process_set(added)
    found = [hvd.synchronize(handle) for handle in handles]
    if other:
        hvd.remove_process_set(other)
    for tensor in found:
        equal(tensor, total())


@at_least(2)
def test_adasum_and_join_are_for_the_global_set_only():
    """Contract §5 where ops run, §2.6 Adasum"""
    import inspect
    with sets_of([0]) as first:
        error = error_of(hvd.allreduce, torch.ones(3), op=hvd.Adasum, process_set=first)
    is_error(error, NotImplementedError)
    assert "process_set" not in inspect.signature(hvd.join).parameters


@at_least(2)
def test_broadcast_object_in_a_set_takes_a_global_root():
    """Contract §2.13 broadcast helpers"""
    with halves() as (half, ranks):
        found = hvd.broadcast_object({"from": hvd.rank()}, root_rank=ranks[-1], process_set=half)
    assert found == {"from": ranks[-1]}
