"""The callbacks, for the Keras module that they are made for."""
import numpy as np

from horovod import _core
from horovod._keras import arrays
from horovod._keras.models import variables_of


def write_back_variables(model):
    """On JAX the program that trains the model has the values of its variables. This writes the values back into the
    variables, where they can be read and set. The next batch begins with the variables' values."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


def shared_variables(model, optimizer):
    """What all ranks must have alike: not the seeds of random numbers, nor the sums of metrics."""
    return list(model.weights) + ([] if optimizer is None else variables_of(optimizer))


def make_callbacks(keras):
    """Returns the classes by their names."""
    Callback = keras.callbacks.Callback

    def is_variable(x):
        return hasattr(x, "assign") and hasattr(x, "shape")

    class BroadcastGlobalVariablesCallback(Callback):
        """After the first batch gives all variables of the model and its optimizer the root's values.

        local_variables: a variable or a list of them that stay this rank's own.
        """

        def __init__(self, root_rank, device="", local_variables=None):
            super().__init__()
            self.root_rank = root_rank
            self.broadcast_done = False
            local = [] if local_variables is None else \
                list(local_variables) if isinstance(local_variables, (list, tuple)) else [local_variables]
            if not all(is_variable(each) for each in local):
                raise ValueError("local_variables is a variable or a list of variables")
            self._local = {id(each) for each in local}

        def on_train_batch_end(self, batch, logs=None):
            if self.broadcast_done:
                return
            write_back_variables(self.model)
            variables = [each for each in shared_variables(self.model, self.model.optimizer)
                         if id(each) not in self._local]
            arrays.assign_all(variables, self.root_rank, "BroadcastGlobalVariablesCallback")
            self.broadcast_done = True

    class MetricAverageCallback(Callback):
        """At the end of each epoch replaces every number in `logs` by its average over the ranks. Callbacks that use
        the averages come after this one."""

        def __init__(self, device=""):
            super().__init__()

        def on_epoch_end(self, epoch, logs=None):
            if not logs:
                return
            names = sorted(name for name, value in logs.items() if np.ndim(value) == 0)
            numbers = [np.asarray(float(logs[name]), np.float64) for name in names]
            averages = arrays.allreduce_all(numbers, [f"MetricAverageCallback.{name}" for name in names],
                                            _core.AVERAGE)
            logs.update((name, float(average)) for name, average in zip(names, averages))

    class LearningRateScheduleCallback(Callback):
        """Sets the learning rate to initial_lr * multiplier(epoch) in the epochs from start_epoch to before end_epoch.

        multiplier: a function of the epoch, or a number m, for m ** (epoch - start_epoch).
        staircase: at the beginning of each epoch; else before each batch, with a fractional epoch.
        momentum_correction: where the learning rate changes, the momentum is scaled alike for one batch. It has an
        effect where Keras reads the momentum in each batch (torch, run_eagerly=True).
        """

        def __init__(self, initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True,
                     momentum_correction=True, steps_per_epoch=None):
            super().__init__()
            if initial_lr is None:
                raise ValueError("initial_lr is the learning rate that the multiplier multiplies, not None")
            self.initial_lr = initial_lr
            self.start_epoch, self.end_epoch = start_epoch, end_epoch
            self.staircase = staircase
            self.momentum_correction = momentum_correction
            self.steps_per_epoch = steps_per_epoch
            self.current_epoch = None
            self._momentum = None
            self.multiplier = multiplier if callable(multiplier) else \
                (lambda epoch: multiplier ** (epoch - start_epoch))

        def on_train_begin(self, logs=None):
            if not self.staircase and not self.steps_per_epoch:
                self.steps_per_epoch = self._found_steps()

        def _found_steps(self):
            steps = (self.params or {}).get("steps")
            if not steps:
                raise ValueError(f"{type(self).__name__}: the number of batches of an epoch is not known; give "
                                 "steps_per_epoch=")
            return steps

        def on_epoch_begin(self, epoch, logs=None):
            self.current_epoch = epoch

        def _is_due(self):
            return self.current_epoch >= self.start_epoch and \
                (self.end_epoch is None or self.current_epoch < self.end_epoch)

        def on_train_batch_begin(self, batch, logs=None):
            if not self._is_due():
                return
            if not self.staircase:
                self._adjust(self.current_epoch + batch / self.steps_per_epoch)
            elif batch == 0:
                self._adjust(self.current_epoch)

        def _adjust(self, epoch):
            optimizer = self.model.optimizer
            old = self._learning_rate()
            new = self.initial_lr * self.multiplier(epoch)
            optimizer.learning_rate = new
            momentum = getattr(optimizer, "momentum", None)
            if self.momentum_correction and isinstance(momentum, float) and momentum and old:
                self._momentum = momentum
                optimizer.momentum = momentum * new / old

        def _learning_rate(self):
            write_back_variables(self.model)
            rate = self.model.optimizer.learning_rate
            if callable(rate) and not hasattr(rate, "numpy"):
                raise ValueError(f"{type(self).__name__}: the optimizer has a schedule of its own "
                                 f"({type(rate).__name__}); give it a number")
            return float(rate.numpy() if hasattr(rate, "numpy") else rate)

        def on_train_batch_end(self, batch, logs=None):
            if self._momentum is not None:
                self.model.optimizer.momentum = self._momentum
                self._momentum = None

        def on_epoch_end(self, epoch, logs=None):
            if logs is not None:
                logs["lr"] = self._learning_rate()

    class LearningRateWarmupCallback(LearningRateScheduleCallback):
        """Raises the learning rate from initial_lr / size to initial_lr in the first epochs.

        initial_lr: the learning rate for all ranks, such as 0.001 * hvd.size().
        """

        def __init__(self, initial_lr, warmup_epochs=5, momentum_correction=True, steps_per_epoch=None, verbose=0):
            def multiplier(epoch):
                size = _core.world()[1]
                epoch += 1.0 / self.steps_per_epoch
                return 1.0 / size * (epoch * (size - 1) / warmup_epochs + 1)

            super().__init__(initial_lr, multiplier, start_epoch=0, end_epoch=warmup_epochs, staircase=False,
                             momentum_correction=momentum_correction, steps_per_epoch=steps_per_epoch)
            self.verbose = verbose

        def on_epoch_end(self, epoch, logs=None):
            super().on_epoch_end(epoch, logs)
            if self.end_epoch is not None and epoch == self.end_epoch - 1 and self.verbose > 0 \
                    and _core.world()[0] == 0:
                print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {self._learning_rate():g}.")

    class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
        """ModelCheckpoint of the best model alone. The user sets `filepath`."""

        def __init__(self, monitor="val_loss", verbose=0, save_weights_only=False, mode="auto", save_freq="epoch"):
            super().__init__(filepath="best.weights.h5" if save_weights_only else "best.keras", monitor=monitor,
                             verbose=verbose, save_best_only=True, save_weights_only=save_weights_only, mode=mode,
                             save_freq=save_freq)
            self.filepath = None

        def _save_model(self, *args, **kwargs):
            if self.filepath is None:
                raise ValueError("BestModelCheckpoint: set its attribute `filepath` before training")
            return super()._save_model(*args, **kwargs)

    classes = (BroadcastGlobalVariablesCallback, MetricAverageCallback, LearningRateScheduleCallback,
               LearningRateWarmupCallback, BestModelCheckpoint)
    for cls in classes:
        cls.__qualname__ = cls.__name__
    return {cls.__name__: cls for cls in classes}
