"""A base class for loaders of batches, and a mixin that prepares batches ahead in a thread."""
import queue
import threading


class BaseDataLoader:
    """A derived class defines _iterate(), which makes the batches, and __len__(), their number."""

    def __len__(self):
        """The number of batches in an epoch."""
        raise NotImplementedError()

    def _iterate(self):
        """Returns an iterator over the batches of one epoch."""
        raise NotImplementedError()

    def _process_batch(self, batch):
        """Turns a batch into the object that the program gets. Runs in the program's thread."""
        return batch

    def __iter__(self):
        for batch in self._iterate():
            yield self._process_batch(batch)


class _Failure:
    """An exception of the thread, to be raised where the batches are used."""

    def __init__(self, error):
        self.error = error


class AsyncDataLoaderMixin:
    """A mixin, named before a loader's class. It makes batches in a thread while the program uses earlier ones:

        class AsyncLoader(AsyncDataLoaderMixin, Loader): ...

    The thread begins with the first iteration and makes one epoch after another. It may be epochs ahead of the program.
    async_loader_queue_size: how many finished batches may wait; 0 means no thread.
    debug_data_loader: print what happens to standard output.
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
                return  # the loader was closed, or has failed before
            if isinstance(batch, _Failure):
                self._say("failed")
                raise batch.error
            if batch is None:  # the end of an epoch
                self._say("epoch done")
                return
            yield self._process_batch(batch)

    def close_async_loader(self):
        """Ends the thread. Batches that nobody has used are dropped."""
        self._say("closing")
        if self.async_loader_queue_size <= 0 or not self.started:
            return
        self.finished_event.set()
        while self.thread.is_alive():
            self._drop_what_is_there()  # the thread may be waiting for room in the queue
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
        except Exception as error:  # an exception of any kind is passed to the program
            self.queue.put(_Failure(error))

    def _say(self, what):
        if self.debug_data_loader:
            print(f"{type(self).__name__}: {what}", flush=True)
