"""Tests of RecentlyUsed, a table that keeps the entries that were used last."""
from horovod._ops import RecentlyUsed


def test_it_forgets_what_was_not_used_for_long_and_keeps_the_rest():
    table = RecentlyUsed(4)
    for number in range(100):
        table[number] = str(number)
        table["always"] = table["always"] or "kept"
        assert len(table) <= 4
    assert table["always"] == "kept" and table[99] == "99" and table[0] is None


def test_what_is_forgotten_is_freed():
    import weakref

    class Value:
        pass

    table, first = RecentlyUsed(4), Value()
    watched = weakref.ref(first)
    table["first"] = first
    del first
    for number in range(8):
        table[number] = Value()
    assert watched() is None


def test_cleared_it_is_empty():
    table = RecentlyUsed(2)
    for number in range(5):
        table[number] = number
    table.clear()
    assert all(table[number] is None for number in range(5))
