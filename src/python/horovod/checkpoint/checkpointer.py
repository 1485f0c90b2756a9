"""Checkpointer: writes checkpoints of a training into a folder while the training goes on."""
import os
import sys
import threading
import time

import torch

from horovod import _core, _ops
from horovod.checkpoint import collective, restoring, tree
from horovod.checkpoint import sharded as sharded_files
from horovod.common.stops import end_undisturbed, how_to_end, should_stop, stop_reason
from horovod.torch._devices import has_gpu
from horovod.torch._job import rank


class Checkpointer:
    """Saves a training into a folder at regular steps or times, and restores it from there.

        checkpointer = hvd.checkpoint.Checkpointer("run", model, optimizer, every_steps=500, scheduler=scheduler)
        start = checkpointer.restore()["step"] or 0
        for step in range(start + 1, steps + 1):
            …
            checkpointer.step(step)
        checkpointer.close()

    When all ranks are to stop (hvd.should_stop), step() saves, and `stopped` is true on all of them:

            if checkpointer.stopped:
                break

    In a with block the process then ends by itself, with `exit_code`: 75 if it would go on in another run of the
    job, so that horovodrun (--max-requeues) or the job script puts the job back into the queue.

    All methods but stall_seconds are collective. The files are folder/step-000000000500.h5; the `keep` newest are kept.

    every_steps, every_minutes: how often step() saves. Given both, it saves when the first of them is reached.
    asynchronous: step() copies the state on rank 0 into memory (snapshot_bytes, used again for each copy) and returns;
    a thread writes the copy. There is one write at a time: a save waits until the write before has ended. The next
    save(), wait() or close() raises the error of a write, on all ranks.
    objects, compression, random_numbers, sharded: as for save(). Of shards, the lowest rank of each node has the copies
    of its node's ranks until they are written.
    """

    def __init__(self, folder, model=None, optimizer=None, *, every_steps=None, every_minutes=None, keep=3,
                 asynchronous=True, compression=None, random_numbers=True, sharded=False, **objects):
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least the newest checkpoint has to stay")
        for name, value in (("every_steps", every_steps), ("every_minutes", every_minutes)):
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}; expected a positive number, or None")
        self.stall_seconds = 0.0  # seconds that the training of this rank has stood still for checkpoints
        self.snapshot_bytes = 0  # bytes of this rank's copy of the state
        self._model, self._optimizer, self._objects = model, optimizer, objects
        self._every_steps, self._every_minutes, self._keep = every_steps, every_minutes, keep
        self._asynchronous, self._sharded = asynchronous, False if sharded is None else sharded
        self._compression, self._random_numbers = compression, random_numbers
        self._memory = None
        self._writing = None
        self._first_step = None
        self._saved_step = None
        self.told = None  # the step and the extra items of the last step() or save()
        self.restored_step = None  # the step from which the training goes on
        self.stopped = False  # all ranks were to stop: the program must leave its loop
        self.exit_code = 0  # the exit code with which the program should end then
        self._clock = _Clock(every_minutes) if every_minutes is not None else None
        should_stop()  # from now on a signal that announces the end does not end the process
        self._is_alone = _core.elastic_facts() is not None  # a process that comes later makes its own alone
        # rank 0's folder, on all ranks; it stays the same if the program goes to another folder
        self.folder = _from_root(collective.path_text(folder))
        if not self._is_alone:
            self.folder = collective.on_rank_0(lambda: _made(self.folder))

    # ---- saving ---------------------------------------------------------------------------------------------------

    def step(self, step, extra=None):
        """Call this after each step of the training. Saves if a checkpoint is due; returns True if it has saved.

        It also saves when all ranks are to stop. It then returns when the checkpoint is safe on the disk, and `stopped`
        is true.
        """
        self.told = (step, tree.without_graphs(extra))
        stops = should_stop() and not self.stopped
        is_due = self._is_due(step)
        if stops or is_due:
            self.save(step, extra)
        if stops:
            self.wait()
            self.stopped = True
            self.exit_code, text = how_to_end(step, self.restored_step)
            if rank() == 0:
                print(f"horovod: stopped at step {step}, since {stop_reason()}; {text}", file=sys.stderr, flush=True)
        return stops or is_due

    def _is_due(self, step):
        if self._first_step is None:
            self._first_step = step - 1
        since = step - (self._first_step if self._saved_step is None else self._saved_step)
        if since < 0:  # the program has begun to count its steps anew
            self._saved_step, since = step, 0
        if self._every_steps is not None and since >= self._every_steps:
            return True
        return self._clock is not None and self._clock.is_due()

    def save(self, step, extra=None):
        """Saves now. If asynchronous, a thread does the writing after save() has returned."""
        began = time.monotonic()
        self.told = (step, tree.without_graphs(extra))
        self._make_folder()
        self.wait()
        if self._sharded is not False:
            self._save_sharded(step, extra)
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

    def _save_sharded(self, step, extra):
        write, self.snapshot_bytes = collective.gather_shards(
            self._path(step), self._model, self._optimizer, step, extra, self._objects, self._compression, True,
            self._random_numbers, self._sharded, self.folder, self._keep)
        if self._asynchronous:
            self._writing = _Writing(write, f"the checkpoint {self._path(step)}", is_collective=True)
        else:
            write()

    def _start(self, state, step):
        needed = state.room_needed()
        if self._memory is None or self._memory.numel() < needed:
            self._memory = torch.empty(needed, dtype=torch.uint8, pin_memory=has_gpu())
            self.snapshot_bytes = needed
        entries, kept = state.copied_into(self._memory)
        self._writing = _Writing(lambda: self._write(entries, kept, step), f"the checkpoint {self._path(step)}")

    def _path(self, step):
        return f"{self.folder}/step-{step:012d}.h5"

    def _write(self, entries, kept, step):
        collective.write(self._path(step), entries, kept, step, self._compression, True, lease=self.folder,
                         keep=self._keep)

    def _make_folder(self):
        if self._is_alone:
            collective.on_rank_0(lambda: _made(self.folder))

    def wait(self):
        """Returns when the checkpoint that was begun is safe on the disk. Raises the error of its write, on all
        ranks."""
        if not self._asynchronous:
            return
        if self._sharded is not False:
            sharded_files.agree(self._finish)
        else:
            collective.on_rank_0(self._finish)

    def _finish(self):
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.finish()

    def close(self):
        """Waits, then gives up the right to write to the folder, so that other jobs may. The checkpointer may be
        used again afterwards."""
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
            if self.stopped:
                end_undisturbed(self.exit_code)
        elif self._writing is not None:
            # Other ranks may not come here, so this only ends the write of this rank. The exception of the `with` block
            # is the one to raise.
            self._finish_or_print("the checkpoint that was being written failed, too")

    def _finish_or_print(self, what):
        try:
            self._finish()
        except Exception as error:  # of any kind; there is something more important to do
            print(f"{what}: {error}", file=sys.stderr)

    # ---- in elastic jobs --------------------------------------------------------------------------------------------

    @staticmethod
    def elastic_handler():
        """How a TorchState treats a Checkpointer."""
        from horovod.checkpoint.in_elastic_jobs import CheckpointerHandler
        return CheckpointerHandler

    def progress(self):
        """What all ranks must know alike, so that they save at the same steps."""
        clock = None if self._clock is None else self._clock.progress()
        return (self.folder, self._first_step, self._saved_step, self.restored_step, self.stopped, self.exit_code,
                self.told, clock)

    def go_on_from(self, progress):
        (self.folder, self._first_step, self._saved_step, self.restored_step, self.stopped, self.exit_code,
         self.told, clock) = progress
        if self._clock is not None:
            self._clock.go_on_from(clock)

    def can_save_alone(self, step, ranks):
        """Whether save_alone() is of use: one rank has the whole state, and another run would go on from that step."""
        is_whole = self._sharded is False and not collective.states_of_their_own(self._optimizer, self._objects, ranks)
        return is_whole and (self.restored_step is None or step > self.restored_step)

    def save_alone(self, step, extra, ranks):
        """Saves without the other ranks, after hvd.shutdown(). ranks: how many there were. The checkpoint has no random
        numbers."""
        self._finish_or_print("the checkpoint before the last commit failed")
        state = collective.flatten_alone(self._model, self._optimizer, step, extra, self._objects, ranks)
        _made(self.folder)
        try:
            self._write(*state.on_host(), step)
        finally:
            _core.checkpoint_release(self.folder)

    # ---- restoring ------------------------------------------------------------------------------------------------

    def restore(self, **options):
        """Loads the newest whole checkpoint. Returns the dict of hvd.checkpoint.restore(), or {"step": None} if
        there is none."""
        self._make_folder()
        self.wait()
        rest = restoring.restore_or_none(self.folder, self._model, self._optimizer,
                                         **{"random_numbers": self._random_numbers, **options}, **self._objects)
        if rest is None:
            return {"step": None}
        self._saved_step = self.restored_step = rest["step"]
        return rest

    def latest(self):
        """The path of the newest whole checkpoint, or None."""
        self.wait()
        return restoring.latest(self.folder)


def _from_root(folder):
    """Returns the folder's path from the root on."""
    here = os.environ.get("PWD", "")  # as the user calls it; other hosts may have it at another place
    if not os.path.isabs(here) or not os.path.exists(here) or not os.path.samefile(here, "."):
        here = os.getcwd()
    folder = os.path.join(here, folder)
    return folder.rstrip("/") or "/"


def _made(folder):
    """Makes the folder and returns its path."""
    os.makedirs(folder, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"the folder {folder} does not allow new files; give the checkpoints another one")
    return folder


class _Writing:
    """A write on its own thread. The interpreter does not end before this thread has ended."""

    def __init__(self, write, what, is_collective=False):
        self.what = what
        self.is_collective = is_collective  # the thread has operations with the other ranks
        self._error = None
        _ops.writing.add(self)  # until its outcome was told
        self._thread = threading.Thread(target=self._run, args=(write,), name="hvd-checkpoint", daemon=False)
        self._thread.start()

    def _run(self, write):
        try:
            write()
            _ops.writing.discard(self)
        except Exception as error:  # finish() raises this exception
            self._error = error

    def wait(self):
        """Returns when the write has ended. Its outcome is told later."""
        if self._thread is not threading.current_thread():
            self._thread.join()

    def finish(self):
        """Returns when the write has ended. Raises its error, once."""
        self._thread.join()
        _ops.writing.discard(self)
        error, self._error = self._error, None
        if error is not None:
            raise error


class _Clock:
    """Tells all ranks when `minutes` have passed by rank 0's clock, without asking rank 0 in each step.

    Whenever the ranks ask rank 0, it also tells them the step at which to ask again: the step when half of the time
    that is left will have passed, at the speed so far.
    """

    def __init__(self, minutes):
        self._seconds = minutes * 60
        self.begin_anew()

    def begin_anew(self):
        self._began = time.monotonic()
        self._steps, self._ask_at = 0, 1

    def progress(self):
        return self._steps, self._ask_at

    def go_on_from(self, progress):
        self._steps, self._ask_at = progress

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
