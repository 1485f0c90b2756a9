"""hvd.checkpoint of TensorFlow and Keras: variables, models and optimizers, in the files of docs/checkpoint-layout.md.

All functions are collective. Rank 0 opens the files; the others get what is in them by broadcasts.
"""
import datetime
import json
import os
import sys

import numpy as np

import horovod
from horovod import _core
from horovod._keras import arrays
from horovod._keras.callbacks import write_back_variables
from horovod._keras.models import build_optimizer, variables_of
from horovod.common import objects
from horovod.common.hdf5 import find_library
from horovod.common.stops import how_to_end, should_stop_after_barrier, stop_reason

_GROUP, _INTEGER, _TEXT, _TENSOR = 0, 3, 5, 6  # as in horovod.h


def _on_rank_0(do):
    """Runs do() on rank 0. Every rank returns its result, or raises its exception."""
    result, failure = None, None
    if _core.world()[0] == 0:
        try:
            result = do()
        except Exception as error:  # an exception of any kind: the other ranks wait for rank 0's answer
            failure = error
    described = None if failure is None else (type(failure), str(failure), getattr(failure, "id", None))
    told = objects.broadcast_object((result, described), 0, "checkpoint.told")
    if failure is not None:
        raise failure
    if told[1] is not None:
        kind, text, error_id = told[1]
        kinds = (OSError, PermissionError, FileNotFoundError, TypeError)
        failure = (kind if kind in kinds else ValueError)(text)
        failure.id = error_id
        raise failure
    return told[0]


def _parts(model, optimizer):
    """Returns {name of a part: its variables}."""
    is_model = hasattr(model, "weights")
    if is_model:
        write_back_variables(model)
        if not model.built or not model.weights:
            raise ValueError("a checkpoint needs a model that has its weights; build it first, by calling it once or "
                             "by model.build(input_shape)")
    parts = {} if model is None else {"model": list(model.weights if is_model else model)}
    if optimizer is not None:
        if is_model:
            build_optimizer(optimizer, model)
        parts["optimizer"] = variables_of(optimizer)
    return parts


def _name_of(variable, i):
    name = getattr(variable, "path", None) or getattr(variable, "name", "")
    return f"{i} {name}".replace("%", "%25").replace("/", "%2F")


def _entries(parts, step, extra):
    """Returns (entries, the arrays to which their addresses point)."""
    entries = [("/", "dict", _GROUP, None), ("/horovod", "", _TEXT, horovod.__version__),
               ("/ranks", "", _INTEGER, _core.world()[1]),
               ("/saved_at", "", _TEXT, datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"))]
    if step is not None:
        entries.append(("/step", "", _INTEGER, int(step)))
    kept = []

    def put(path, kind, array):
        array = np.array(array, order="C")  # a copy: the training goes on while it is written
        kept.append(array)
        entries.append((path, kind, _TENSOR, (array.dtype.name, array.shape, array.ctypes.data if array.size else 0)))

    try:
        text = json.dumps(extra or {})
    except TypeError as error:
        raise TypeError(f"extra has numbers, texts, lists and dicts alone: {error}") from None
    put("/extra", "str", np.frombuffer(text.encode(), np.uint8))
    for part, variables in parts.items():
        entries.append((f"/{part}", "dict", _GROUP, None))
        for i, variable in enumerate(variables):
            if "string" not in str(variable.dtype):
                put(f"/{part}/{_name_of(variable, i)}", "", variable.numpy())
    return entries, kept


def save(path, model, optimizer=None, step=None, extra=None, *, compression=None, keep_previous=True):
    """Saves rank 0's state as one file. Collective. Returns when the file is safe on the disk.

    model: of Keras, or a list of variables. optimizer: of Keras. extra: a dict of numbers, texts, lists and dicts.
    compression, keep_previous: as those of horovod.torch's save().
    """
    _save(os.fspath(path), _parts(model, optimizer), step, extra, compression, keep_previous, None, 0)


def _save(path, parts, step, extra, compression, keep_previous, lease, keep):
    def write():
        find_library()
        entries, kept = _entries(parts, step, extra)
        _core.checkpoint_save(path, entries, -1 if step is None else int(step), compression, keep_previous,
                              lease or path, keep)
        del kept

    _on_rank_0(write)


def restore(path, model, optimizer=None):
    """Loads a checkpoint into the variables, on all ranks. Returns a dict of "step" and of what was given to save() as
    extra. Collective.

    path: a file, or a folder: then its newest whole checkpoint is loaded. ValueError if it is of other variables.
    """
    path, parts = os.fspath(path), _parts(model, optimizer)
    values = {}
    rest = _on_rank_0(lambda: _read(path, parts, values))
    for part, variables in parts.items():
        variables = [each for each in variables if "string" not in str(each.dtype)]
        names = [f"checkpoint.{part}.{i}" for i in range(len(variables))]
        own = values.get(part) or [each.numpy() for each in variables]
        for variable, value in zip(variables, arrays.broadcast_all(own, names, 0)):
            variable.assign(value)
    return rest


def _read(path, parts, values):
    """Reads the parts into `values`. Returns the rest."""
    find_library()
    capsule, entries, found, *_ = _core.checkpoint_open(path)
    tensors = {entry[0]: entry[3] for entry in entries if entry[2] == _TENSOR}
    for part, variables in parts.items():
        saved = sorted((name for name in tensors if name.startswith(f"/{part}/")), key=_number)
        variables = [each for each in variables if "string" not in str(each.dtype)]
        if len(saved) != len(variables):
            raise ValueError(f"{found} is of another {part} than this one: it has {len(saved)} variables, and this one "
                             f"has {len(variables)}")
        values[part] = []
        for name, variable in zip(saved, variables):
            own = variable.numpy()
            dtype, shape = tensors[name][:2]
            if tuple(shape) != own.shape or dtype != own.dtype.name:
                raise ValueError(f"{found} is of another {part} than this one: {name} is of {dtype}{list(shape)}, and "
                                 f"the variable here of {own.dtype.name}{list(own.shape)}")
            values[part].append(_tensor(capsule, name, np.empty(shape, own.dtype)))
    text = tensors.get("/extra")
    extra = {} if text is None else json.loads(_tensor(capsule, "/extra", np.empty(text[1], np.uint8)).tobytes())
    return {**extra, "step": next((entry[3] for entry in entries if entry[0] == "/step"), None)}


def _number(name):
    number = name.rsplit("/", 1)[-1].split(" ", 1)[0]
    if not number.isdecimal():
        raise ValueError(f"{name} was not saved by hvd.checkpoint of TensorFlow or Keras")
    return int(number)


def _tensor(capsule, path, array):
    if array.size:
        _core.checkpoint_read(capsule, path, array.ctypes.data, array.nbytes)
    return array


def latest(folder):
    """Returns the path of the newest whole checkpoint in a folder, on all ranks; None if there is none. Collective."""
    return _on_rank_0(lambda: _newest(os.fspath(folder)))


def _newest(folder):
    find_library()
    if not os.path.isdir(folder):
        return None
    os.listdir(folder)  # raises if it may not be read
    try:
        return _core.checkpoint_open(folder)[2]
    except (OSError, ValueError):
        return None


class Checkpointer:
    """Saves a training into folder/step-000000000500.h5 every so many steps, and restores it from there.

    When all ranks are to stop (hvd.should_stop), step() saves, `stopped` is true on all of them, and `exit_code` is
    the code with which the program should end. The `keep` newest files stay.
    """

    def __init__(self, folder, model, optimizer=None, *, every_steps=None, keep=3, compression=None):
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least the newest checkpoint has to stay")
        if every_steps is not None and every_steps <= 0:
            raise ValueError(f"every_steps is {every_steps}; expected a positive number, or None")
        self.stopped, self.exit_code = False, 0
        self.restored_step = None  # the step from which the training goes on
        self._model, self._optimizer = model, optimizer
        self._every_steps, self._keep, self._compression = every_steps, keep, compression
        self._first_step = self._saved_step = None
        should_stop_after_barrier()  # from now on a signal that announces the end does not end the process
        self.folder = _on_rank_0(lambda: os.path.abspath(folder))

    def step(self, step, extra=None):
        """Call this after each step of the training. Saves if a checkpoint is due, or all ranks are to stop; returns
        True if it has saved."""
        stops = not self.stopped and should_stop_after_barrier()
        if self._first_step is None:
            self._first_step = step - 1
        since = step - (self._first_step if self._saved_step is None else self._saved_step)
        is_due = self._every_steps is not None and since >= self._every_steps
        if stops or is_due:
            self.save(step, extra)
        if stops:
            self.stopped = True
            self.exit_code, text = how_to_end(step, self.restored_step)
            if _core.world()[0] == 0:
                print(f"horovod: stopped at step {step}, since {stop_reason()}; {text}", file=sys.stderr, flush=True)
        return stops or is_due

    def save(self, step, extra=None):
        """Saves now."""
        _on_rank_0(lambda: os.makedirs(self.folder, exist_ok=True))
        _save(f"{self.folder}/step-{step:012d}.h5", _parts(self._model, self._optimizer), step, extra,
              self._compression, True, self.folder, self._keep)
        self._saved_step = step

    def restore(self):
        """Loads the newest whole checkpoint. Returns the dict of restore(), or {"step": None} if there is none."""
        if latest(self.folder) is None:
            return {"step": None}
        rest = restore(self.folder, self._model, self._optimizer)
        self._saved_step = self.restored_step = rest["step"]
        return rest

    def close(self):
        """Gives up the right to write to the folder, so that other jobs may."""
        if _core.world()[0] == 0:
            _core.checkpoint_release(self.folder)


def make_stop_callbacks(keras):
    """Returns the classes by their names."""
    class StopCallback(keras.callbacks.Callback):
        """Ends the training after the batch at which all ranks are to stop: after a signal to any rank, when the
        scheduler ends the job soon, and after hvd.request_stop(). Afterwards `stopped` is true."""

        def __init__(self):
            super().__init__()
            self.stopped = False

        def on_train_batch_end(self, batch, logs=None):
            if not self.stopped and should_stop_after_barrier():
                self.stopped = self.model.stop_training = True

    class CheckpointCallback(keras.callbacks.Callback):
        """Saves as its checkpointer does, and ends the training when all ranks are to stop.

        Steps are counted over all epochs, from the step that the checkpointer restored. Afterwards look at
        checkpointer.stopped, and end with checkpointer.exit_code if it is true.
        """

        def __init__(self, checkpointer):
            super().__init__()
            self.checkpointer = checkpointer
            self.step = None

        def on_train_begin(self, logs=None):
            self.step = self.checkpointer.restored_step or 0

        def on_train_batch_end(self, batch, logs=None):
            self.step += 1
            self.checkpointer.step(self.step)
            if self.checkpointer.stopped:
                self.model.stop_training = True

        def on_train_end(self, logs=None):
            self.checkpointer.close()

    classes = (StopCallback, CheckpointCallback)
    for cls in classes:
        cls.__qualname__ = cls.__name__
    return {cls.__name__: cls for cls in classes}
