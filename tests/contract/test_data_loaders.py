"""Tests of horovod.data: base classes of data loaders, and a loader that loads in a thread."""
import inspect
import threading

import pytest

from ranks import alone

pytestmark = alone


def loader_of(batches=5, fails_at=None, queue_size=64):
    from horovod.data import AsyncDataLoaderMixin, BaseDataLoader

    class Plain(BaseDataLoader):
        def __init__(self):
            super().__init__()
            self.threads = set()

        def __len__(self):
            return batches

        def _iterate(self):
            for i in range(batches):
                self.threads.add(threading.current_thread())
                if i == fails_at:
                    raise RuntimeError(f"batch {i} cannot be read")
                yield i

        def _process_batch(self, batch):
            return batch * 10

    class Asynchronous(AsyncDataLoaderMixin, Plain):
        pass

    return Plain() if queue_size is None else Asynchronous(async_loader_queue_size=queue_size)


def test_a_loader_yields_its_batches_processed():
    """Contract §2.16 BaseDataLoader"""
    loader = loader_of(queue_size=None)
    assert list(loader) == list(loader) == [0, 10, 20, 30, 40] and len(loader) == 5


def test_the_base_loader_leaves_length_and_iteration_to_others():
    """Contract §2.16 BaseDataLoader"""
    from horovod.data import BaseDataLoader
    with pytest.raises(NotImplementedError):
        list(BaseDataLoader())
    with pytest.raises(NotImplementedError):
        len(BaseDataLoader())


@pytest.mark.parametrize("queue_size", [1, 2, 64])
def test_an_asynchronous_loader_yields_the_same_every_epoch(queue_size):
    """Contract §2.16 AsyncDataLoaderMixin"""
    loader = loader_of(queue_size=queue_size)
    epochs = [list(loader) for _ in range(3)]
    loader.close_async_loader()
    assert epochs == [[0, 10, 20, 30, 40]] * 3


def test_batches_are_loaded_in_another_thread():
    """Contract §2.16: a daemon thread started on first iteration"""
    loader = loader_of()
    before = threading.active_count()
    next(iter(loader))
    threads = loader.threads
    loader.close_async_loader()
    assert threads and threading.current_thread() not in threads and all(thread.daemon for thread in threads)
    assert threading.active_count() == before


def test_a_queue_of_size_0_loads_in_the_caller():
    """Contract §2.16: queue size 0"""
    loader = loader_of(queue_size=0)
    assert list(loader) == [0, 10, 20, 30, 40] and loader.threads == {threading.current_thread()}
    loader.close_async_loader()


def test_an_error_of_the_thread_is_raised_where_batches_are_used():
    """Contract §2.16: an exception is queued and re-raised"""
    loader = loader_of(fails_at=3)
    found = []
    with pytest.raises(RuntimeError, match="batch 3 cannot be read"):
        for batch in loader:
            found.append(batch)
    loader.close_async_loader()
    assert found == [0, 10, 20]


def test_a_loader_can_be_closed_in_the_middle_of_an_epoch():
    """Contract §2.16 close_async_loader drains the queue"""
    loader = loader_of(batches=1000, queue_size=2)
    iterator = iter(loader)
    assert [next(iterator), next(iterator)] == [0, 10]
    loader.close_async_loader()
    loader.close_async_loader()
    assert not any(thread.is_alive() for thread in loader.threads)


def test_an_epoch_without_batches_ends():
    """Contract §2.16: None marks the end"""
    loader = loader_of(batches=0)
    assert list(loader) == []
    loader.close_async_loader()


def test_both_names_are_where_they_were():
    """Contract §2.16 data loaders"""
    from horovod.data import AsyncDataLoaderMixin, BaseDataLoader, data_loader_base
    assert data_loader_base.BaseDataLoader is BaseDataLoader
    assert data_loader_base.AsyncDataLoaderMixin is AsyncDataLoaderMixin
    parameters = inspect.signature(AsyncDataLoaderMixin.__init__).parameters
    assert parameters["async_loader_queue_size"].default == 64 and parameters["debug_data_loader"].default is False
