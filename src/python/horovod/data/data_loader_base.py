"""A base class of loaders of batches, and a mixin that prepares batches ahead in a thread."""
import queue
import threading


class BaseDataLoader:
    """Derived classes define _iterate(), which yields the batches, and __len__(), the number of batches."""

    def __len__(self):
        """The number of batches of an epoch."""
        raise NotImplementedError()

    def _iterate(self):
        """An iterator over the batches of one epoch."""
        raise NotImplementedError()

    def _process_batch(self, batch):
        """Returns what the program gets in place of a batch. It runs in the program's thread."""
        return batch

    def __iter__(self):
        for batch in self._iterate():
            yield self._process_batch(batch)


class _Failure:
    """An exception from the thread. It is raised where the program uses batches."""

    def __init__(self, error):
        self.error = error


class AsyncDataLoaderMixin:
    """Makes batches in a thread while the program uses earlier ones. Write it before the loader's class:

        class AsyncLoader(AsyncDataLoaderMixin, Loader): ...

    The thread begins with the first iteration and makes one epoch after the other, also ahead of the program.
    async_loader_queue_size: how many batches may wait; 0: no thread.
    debug_data_loader: say on standard output what happens.
    """

    def __init__(self, async_loader_queue_size=64, debug_data_loader=False, *args, **kwargs):
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        super().__init__(*args, **kwargs)
        self.started = False
        if async_loader_queue_size > 0:
            self.finished_event = threading.Event()
            self.queue = queue.Queue(async_loader_queue_size)
            self.thread = threading.Thread(target=self._async_worker, daemon=True)

    def __iter__(self):
        if self.async_loader_queue_size <= 0:
            yield from super().__iter__()
            return
        if not self.started:
            self.started = True
            self.thread.start()
        while True:
            try:
                batch = self.queue.get(timeout=1)
            except queue.Empty:
                if self.thread.is_alive() or not self.queue.empty():
                    continue
                return  # it was closed, or failed before
            if isinstance(batch, _Failure):
                self._say("failed")
                raise batch.error
            if batch is None:  # the epoch has ended
                self._say("epoch done")
                return
            yield self._process_batch(batch)

    def close_async_loader(self):
        """Ends the thread. Batches that it has made and nobody has used are dropped."""
        self._say("closing")
        if self.async_loader_queue_size <= 0 or not self.started:
            return
        self.finished_event.set()
        while self.thread.is_alive():
            self._drop_what_is_there()  # the thread may be waiting for room
            self.thread.join(0.05)
        self._drop_what_is_there()

    def _drop_what_is_there(self):
        try:
            while True:
                self.queue.get_nowait()
        except queue.Empty:
            pass

    def _async_worker(self):
        try:
            while not self.finished_event.is_set():
                for batch in self._iterate():
                    if self.finished_event.is_set():
                        return
                    self.queue.put(batch)
                self.queue.put(None)
        except Exception as error:  # the program has to get any kind of exception
            self.queue.put(_Failure(error))

    def _say(self, what):
        if self.debug_data_loader:
            print(f"{type(self).__name__}: {what}", flush=True)
