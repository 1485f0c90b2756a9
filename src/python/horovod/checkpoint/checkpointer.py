"""Checkpointer writes a folder of checkpoints while the training goes on."""
import os
import sys
import threading
import time

import torch

from horovod import _core
from horovod.checkpoint import collective
from horovod.torch._job import rank


class Checkpointer:
    """Saves a training into a folder at regular times, and restores it from there.

        checkpointer = hvd.checkpoint.Checkpointer("run", model, optimizer, every_steps=500, scheduler=scheduler)
        start = checkpointer.restore()["step"] or 0
        for step in range(start + 1, steps + 1):
            …
            checkpointer.step(step)
        checkpointer.close()

    All methods but stall_seconds are collective. The files are folder/step-000000000500.h5; the `keep` newest are
    kept.

    every_steps, every_minutes: give one of them, or both; then the one that comes first counts.
    asynchronous: step() copies the state on rank 0 (snapshot_bytes of memory, used again each time) and returns; a
    thread writes the copy. There is one write at a time: a save waits for the write before it. An error of a
    write is raised by the next save(), wait() or close(), on all ranks.
    objects, compression, random_numbers, sharded: as for save(). Shards are never written asynchronously.
    """

    def __init__(self, folder, model=None, optimizer=None, *, every_steps=None, every_minutes=None, keep=3,
                 asynchronous=True, compression=None, random_numbers=True, sharded=False, **objects):
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least the newest checkpoint has to stay")
        for name, value in (("every_steps", every_steps), ("every_minutes", every_minutes)):
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}; expected a positive number, or None")
        self.folder = collective.path_text(folder)
        self.stall_seconds = 0.0  # seconds that the training of this rank stood still for checkpoints
        self.snapshot_bytes = 0  # bytes that the copy takes, on rank 0
        self._model, self._optimizer, self._objects = model, optimizer, objects
        self._every_steps, self._every_minutes, self._keep = every_steps, every_minutes, keep
        self._asynchronous, self._sharded = asynchronous and not sharded, sharded
        self._compression, self._random_numbers = compression, random_numbers
        self._memory = None
        self._writing = None
        self._first_step = None
        self._saved_step = None
        self._clock = _Clock(every_minutes) if every_minutes is not None else None
        collective.on_rank_0(self._prepare_folder)

    def _prepare_folder(self):
        os.makedirs(self.folder, exist_ok=True)
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise PermissionError(
                f"the folder {self.folder} does not allow new files; give the checkpoints another one")

    # ---- saving ---------------------------------------------------------------------------------------------------

    def step(self, step, extra=None):
        """Call it after each step of the training. Saves if it is time to, and returns whether it saved."""
        if not self._is_due(step):
            return False
        self.save(step, extra)
        return True

    def _is_due(self, step):
        if self._first_step is None:
            self._first_step = step - 1
        since = step - (self._first_step if self._saved_step is None else self._saved_step)
        if since < 0:  # the steps began again
            self._saved_step, since = step, 0
        if self._every_steps is not None and since >= self._every_steps:
            return True
        return self._clock is not None and self._clock.is_due()

    def save(self, step, extra=None):
        """Saves now. An asynchronous save writes while the training goes on."""
        began = time.monotonic()
        self.wait()
        if self._sharded:
            collective.save_sharded(self._path(step), self._model, self._optimizer, step, extra, self._objects,
                                    self._compression, True, self._random_numbers, self.folder, self._keep)
        else:
            self._save_whole(step, extra)
        self._saved_step = step
        if self._clock is not None:
            self._clock.begin_anew()
        self.stall_seconds += time.monotonic() - began

    def _save_whole(self, step, extra):
        state = collective.collect(self._model, self._optimizer, step, extra, self._objects, self._random_numbers)
        if self._asynchronous:
            collective.on_rank_0(lambda: self._start(state, step))
        else:
            collective.on_rank_0(lambda: self._write(*state.on_host(), step))

    def _start(self, state, step):
        needed = state.room_needed()
        if self._memory is None or self._memory.numel() < needed:
            self._memory = torch.empty(needed, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
            self.snapshot_bytes = needed
        entries, kept = state.copied_into(self._memory)
        self._writing = _Writing(lambda: self._write(entries, kept, step))

    def _path(self, step):
        return f"{self.folder}/step-{step:012d}.h5"

    def _write(self, entries, kept, step):
        collective.write(self._path(step), entries, kept, step, self._compression, True, lease=self.folder,
                         keep=self._keep)

    def wait(self):
        """Returns when the save that was begun is safe on the disk. Raises the error of this save, on all ranks."""
        if not self._asynchronous:
            return
        collective.on_rank_0(self._finish)

    def _finish(self):
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.finish()

    def close(self):
        """Waits for the save, then lets other jobs use the folder. The checkpointer may be used again afterwards."""
        try:
            self.wait()
        finally:
            self._memory = None
            if rank() == 0:
                _core.checkpoint_release(self.folder)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()
        elif rank() == 0 and self._writing is not None:
            try:  # other ranks may not come here, so only the save that was begun is finished
                self._finish()
            except Exception as error:  # the first failure is shown
                print(f"the checkpoint that was being written failed, too: {error}", file=sys.stderr)

    # ---- restoring ------------------------------------------------------------------------------------------------

    def restore(self, **options):
        """Loads the newest whole checkpoint. Returns what restore() returns, or {"step": None} if there is no
        checkpoint."""
        self.wait()
        if collective.on_rank_0(self._is_empty):
            return {"step": None}
        rest = collective.restore(self.folder, self._model, self._optimizer, random_numbers=self._random_numbers,
                                  **options, **self._objects)
        self._saved_step = rest["step"]
        return rest

    def _is_empty(self):
        return not any(
            name.endswith((".h5", ".h5.previous")) and not name.startswith(".") for name in os.listdir(self.folder))

    def latest(self):
        """The path of the newest whole checkpoint, or None."""
        self.wait()
        return collective.latest(self.folder)


class _Writing:
    """A write in a thread of its own. The interpreter waits for the thread before it ends."""

    def __init__(self, write):
        self._error = None
        self._thread = threading.Thread(target=self._run, args=(write,), name="hvd-checkpoint", daemon=False)
        self._thread.start()

    def _run(self, write):
        try:
            write()
        except Exception as error:  # raised by finish()
            self._error = error

    def finish(self):
        self._thread.join()
        if self._error is not None:
            raise self._error


class _Clock:
    """Saves after a number of minutes by rank 0's clock, without asking rank 0 in each step.

    All ranks agree on the step at which they ask rank 0 next: the step at which half of the time that is left will have
    passed, at the pace so far.
    """

    def __init__(self, minutes):
        self._seconds = minutes * 60
        self.begin_anew()

    def begin_anew(self):
        self._began = time.monotonic()
        self._steps, self._ask_at = 0, 1

    def is_due(self):
        self._steps += 1
        if self._steps < self._ask_at:
            return False
        is_due, self._ask_at = collective.on_rank_0(self._look)
        return is_due

    def _look(self):
        passed = time.monotonic() - self._began
        left = self._seconds - passed
        return left <= 0, self._steps + max(1, int(left / 2 / max(passed / self._steps, 1e-6)))
