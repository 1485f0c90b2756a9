"""Tests of horovod.data."""
import threading

import pytest

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader


class Loader(BaseDataLoader):
    def __init__(self, batches):
        self.batches, self.epochs = batches, 0

    def __len__(self):
        return len(self.batches)

    def _iterate(self):
        self.epochs += 1
        for batch in self.batches:
            if isinstance(batch, Exception):
                raise batch
            yield batch

    def _process_batch(self, batch):
        return batch, threading.current_thread() is threading.main_thread()


class AsyncLoader(AsyncDataLoaderMixin, Loader):
    pass


@pytest.mark.parametrize("queue_size", [0, 1, 64])
def test_epochs_come_in_order(queue_size):
    loader = AsyncLoader(queue_size, False, [1, 2, 3])
    for _ in range(3):
        assert list(loader) == [(1, True), (2, True), (3, True)]
    assert len(loader) == 3
    loader.close_async_loader()
    loader.close_async_loader()


def test_a_failure_is_raised_where_batches_are_used():
    loader = AsyncLoader(8, False, [1, KeyError("broken")])
    found = iter(loader)
    assert next(found) == (1, True)
    with pytest.raises(KeyError, match="broken"):
        next(found)
    assert list(loader) == []
    loader.close_async_loader()


def test_closing_ends_a_thread_that_waits_for_room():
    loader = AsyncLoader(1, False, list(range(100)))
    found = iter(loader)
    next(found)
    loader.close_async_loader()
    assert not loader.thread.is_alive() and list(found) == [] and loader.epochs == 1


def test_it_says_what_happens(capsys):
    loader = AsyncLoader(2, True, [1])
    assert list(loader) == [(1, True)]
    loader.close_async_loader()
    assert "AsyncLoader: epoch done" in capsys.readouterr().out


def test_without_the_mixin():
    assert [batch for batch, _ in Loader([5, 6])] == [5, 6]
    with pytest.raises(NotImplementedError):
        len(BaseDataLoader())
