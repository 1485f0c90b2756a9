"""hvd.elastic of Keras, for every backend: the state of a training, and callbacks that commit and update it."""
import functools

import numpy as np

from horovod import _core
from horovod._keras import arrays
from horovod._keras.callbacks import write_back_variables, shared_variables
from horovod._keras.models import build_optimizer, variables_of
from horovod.common import objects
from horovod.common.elastic import ObjectState, begin_again, check_members, run_fn


def from_rank_0(obj):
    """Returns rank 0's object on all ranks. Before hvd.init() it returns `obj`, so that a state can be committed."""
    return objects.broadcast_object(obj, 0, "elastic.state") if _core.has_place() else obj


def rank():
    return _core.world()[0]


def check_is_not_live(state, values):
    """Refuses the option of TorchState, which would be an attribute here."""
    if values.get("live") is True:
        raise ValueError(f"{type(state).__name__}: live=True: expected hvd.elastic.TorchState, which sees the steps of "
                         "torch's optimizers; leave it out, so that each commit makes a copy")


def make_run(basics, failure_of, forget_failures=lambda: None):
    """Returns the decorator `run`.

    failure_of: returns the HorovodInternalError for which a framework has raised this exception, or None.
    forget_failures: is called before each training, so that failure_of does not return an earlier failure.
    """
    def run(func):
        """Decorates a function of a state that trains. After a HorovodInternalError the ranks begin again, all with
        rank 0's last commit, and call the function anew."""
        @functools.wraps(func)
        def raising_failures(*args, **kwargs):
            forget_failures()
            try:
                return func(*args, **kwargs)
            except Exception as error:
                failure = failure_of(error)
                if failure is None or failure is error:
                    raise
                raise failure from error

        elastic = run_fn(raising_failures, functools.partial(begin_again, basics))

        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            check_members(basics)
            return elastic(*args, **kwargs)

        return wrapper

    return run


class ModelState(ObjectState):
    """The state of a training: a model of Keras, its optimizer, and anything else by its name.

    The values of variables are saved as copies, other values as ObjectState does. Attributes that are not named here
    are not part of the state.
    """

    def __init__(self, model, optimizer=None, backend=None, **kwargs):
        check_is_not_live(self, kwargs)
        if not model.built or not model.weights:
            raise ValueError("an elastic state needs a model that has its weights; build it first, as by calling it "
                             "once or by model.build(input_shape)")
        self.model = model
        self.optimizer = optimizer or getattr(model, "optimizer", None)
        if self.optimizer is not None:
            build_optimizer(self.optimizer, model)
        self._size = _core.world()[1] if _core.has_place() else None
        super().__init__(bcast_object=from_rank_0, get_rank=rank, **kwargs)

    def _everything(self):
        """Returns all variables of the model and the optimizer, also those that differ between ranks, such as seeds:
        on JAX a program that fails may leave these without values."""
        own = list(getattr(self.model, "variables", self.model.weights))
        known = {id(each) for each in own}
        more = [] if self.optimizer is None else variables_of(self.optimizer)
        return [each for each in own + more if id(each) not in known or known.discard(id(each)) is None]

    @property
    def _aggregation(self):
        return getattr(getattr(self.optimizer, "_hvd", None), "aggregation", None)

    def _passes_done(self):
        aggregation = self._aggregation
        if aggregation is None:
            return super()._passes_done()
        return aggregation.passes_done(), aggregation.backward_passes_per_step

    def _copies(self):
        write_back_variables(self.model)
        return [(each, np.array(each.numpy())) for each in self._everything()]

    def restore(self):
        write_back_variables(self.model)
        for variable, value in self._kept.copies:
            variable.assign(value)
        if self._aggregation is not None:
            self._aggregation.forget()
        super().restore()

    def sync(self):
        """Takes over the state of rank 0, which a restore goes back to from now on."""
        write_back_variables(self.model)
        shared = shared_variables(self.model, self.optimizer)
        if _core.has_place():
            arrays.assign_all(shared, 0, "elastic.variables")
        if self._aggregation is not None:
            # A process that has joined has done no passes. All ranks must reduce after the same pass.
            self._aggregation.forget()
        super().sync()

    def reset(self):
        """Drops the compiled training function if the number of ranks has changed, so that Keras compiles it anew."""
        size = _core.world()[1]
        if size != self._size:
            self._size = size
            self.model.train_function = None


def make_elastic_callbacks(keras, module):
    """Returns CommitStateCallback, UpdateBatchStateCallback and UpdateEpochStateCallback, classes of this module."""
    Callback = keras.callbacks.Callback

    class CommitStateCallback(Callback):
        """Commits the state after every `batches_per_commit` batches, and at the end of each epoch. It comes after the
        callbacks that change the state."""

        def __init__(self, state, batches_per_commit=1):
            super().__init__()
            self.state = state
            self.batches_per_commit = batches_per_commit
            self.batches_remaining = batches_per_commit

        def on_train_begin(self, logs=None):
            self.batches_remaining = self.batches_per_commit

        def on_train_batch_end(self, batch, logs=None):
            self.batches_remaining -= 1
            if self.batches_remaining == 0:
                self._commit()

        def on_epoch_end(self, epoch, logs=None):
            self._commit()

        def _commit(self):
            self.batches_remaining = self.batches_per_commit
            self.state.commit()

    class UpdateBatchStateCallback(Callback):
        """Keeps in state.batch how many batches of the epoch are done. After a restore, the first epoch has that many
        batches fewer; the program leaves them out of the data that it gives to fit()."""

        def __init__(self, state):
            super().__init__()
            self.state = state
            self._steps = None
            self._before = 0

        def on_epoch_begin(self, epoch, logs=None):
            self._before = self.state.batch
            if self.params.get("steps"):
                self._steps = self._steps or self.params["steps"]
                self.params["steps"] = self._steps - self._before

        def on_train_batch_end(self, batch, logs=None):
            self.state.batch = self._before + batch + 1

        def on_epoch_end(self, epoch, logs=None):
            self.state.batch = 0

    class UpdateEpochStateCallback(Callback):
        """Keeps in state.epoch how many epochs are done, those of earlier calls of fit() too."""

        def __init__(self, state):
            super().__init__()
            self.state = state
            self.initial_epoch = 0
            self._first = None

        def on_train_begin(self, logs=None):
            self.initial_epoch, self._first = self.state.epoch, None

        def on_epoch_begin(self, epoch, logs=None):
            if self._first is None:  # not 0 if the program gave fit() an initial_epoch
                self._first = epoch

        def on_epoch_end(self, epoch, logs=None):
            self.state.epoch = self.initial_epoch + epoch - (self._first or 0) + 1

    classes = (CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback)
    for cls in classes:
        cls.__module__, cls.__qualname__ = module, cls.__name__
    return classes
