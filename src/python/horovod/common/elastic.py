"""Elastic training: a state that is committed, and a loop that goes on from it after a failure.

In an elastic job (horovodrun --min-np) the loop begins again with the ranks that horovodrun assigns next: the ranks
that are left, and new ones. In other jobs it begins again with the ranks that the job was started with.
"""
import collections
import copy
import functools
import queue
import sys
import typing
import warnings

from horovod import _core, _ops
from horovod.common import process_sets as _process_sets
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.runner.elastic.constants import RESET_LIMIT_EXCEEDED_MESSAGE
from horovod.runner.elastic.worker import HostUpdateResult, WorkerNotificationManager

# After so many failures in a row, without a commit between, the loop gives up. The texts of the failures are not
# compared, because they tell which rank was first.
MOST_FAILURES_WITHOUT_COMMIT = 3

notification_manager = WorkerNotificationManager()


# ---- states -----------------------------------------------------------------------------------------------------


class State:
    """What a training goes on from. Subclasses say what save(), restore() and sync() do.

    bcast_object: a function that returns rank 0's object on all ranks. get_rank: a function that returns this rank.
    """

    _has_warned = False  # in this process, of a commit within a step

    def __init__(self, bcast_object, get_rank):
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages = queue.Queue()
        self._last_updated_timestamp = 0
        self._reset_callbacks = []
        self._saves = 0

    def register_reset_callbacks(self, callbacks):
        """These functions are called after each reset, in this order: to adapt the learning rate, for example."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self):
        """The loop calls this when the ranks have begun again."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp, update_res):
        """Reports a change of the hosts. May be called from any thread. A change that is reported on rank 0
        interrupts all ranks at their next commit() or check_host_updates()."""
        self._host_messages.put((timestamp, update_res))

    def commit(self):
        """Saves the state for a later restore, and checks for changes of the hosts. All ranks call it at the same
        step."""
        self.save()
        self._saves += 1
        self.check_host_updates()

    def check_host_updates(self):
        """Raises HostsUpdatedInterrupt on all ranks if rank 0 has got a report of a change. All ranks call it at the
        same step."""
        self._warn_if_within_step()
        notification_manager.look()
        last, changes = self._last_updated_timestamp, HostUpdateResult.no_update
        while True:
            try:
                timestamp, change = self._host_messages.get_nowait()
            except queue.Empty:
                break
            if timestamp > last:
                last = timestamp
                changes |= change
        before, last, changes = self._bcast_object((self._last_updated_timestamp, last, changes))
        self._last_updated_timestamp = last
        if last > before:
            raise HostsUpdatedInterrupt(skip_sync=changes == HostUpdateResult.removed)

    def _warn_if_within_step(self):
        done, passes = self._passes_done()
        if done > 0 and not State._has_warned:
            State._has_warned = True
            warnings.warn(f"hvd.elastic: commit between two steps of the optimizer: found {done} of {passes} backward "
                          "passes done (backward_passes_per_step). The state does not have their gradients: after a "
                          "failure, and when a process joins, the next step is made without them. Commit after the "
                          "last pass and the step", stacklevel=4)

    def _passes_done(self):
        """How many backward passes are done for a step that is not made yet, and of how many."""
        return 0, 1

    def save(self):
        """Keeps a copy of the state in this process."""
        raise NotImplementedError

    def restore(self):
        """Goes back to the copy."""
        raise NotImplementedError

    def sync(self):
        """Gives all ranks the state of rank 0."""
        raise NotImplementedError

    def reset(self):
        """Subclasses adapt to the new ranks here. The callbacks run afterwards."""

    def _progress(self):
        """How far the training has come: horovodrun compares failures by it, and lets a rank that is ahead keep."""
        return getattr(self, "_saves", 0)

    def is_keeper(self):
        """True if keep() can write a checkpoint of the last commit."""
        return False

    def keep(self):
        """Called when the job ends because it has too few ranks. Writes a checkpoint of the last commit without the
        other ranks, and ends the process so that the job is put back into its queue."""
        raise NotImplementedError


class Kept(typing.NamedTuple):
    """What a restore goes back to. One assignment replaces all of it, so that a commit that is interrupted leaves the
    one before."""
    values: dict  # attribute -> its value
    contents: dict  # attribute -> its value again, and a copy of what is in it
    copies: object  # what a subclass keeps besides


class ObjectState(State):
    """A state of plain attributes. What is in a list, a dict, a set or an array is kept, as `+=` and append() change
    it in place; other values are kept by reference: to change one, assign another value.

    kwargs: the attributes and their first values.
    """

    def __init__(self, bcast_object, get_rank, **kwargs):
        for name, value in kwargs.items():
            setattr(self, name, value)
        super().__init__(bcast_object=bcast_object, get_rank=get_rank)
        self._keep(kwargs)

    def save(self):
        self._keep({name: getattr(self, name) for name in self._kept.values})
        self._saves += 1

    def _keep(self, values):
        """Makes a commit of these values of the attributes, and of what else the state has."""
        kept = Kept(values, self._contents_of(values), self._copies())
        _ops.check_results_on_devices()
        self._kept = kept

    def _copies(self):
        """Returns copies of what a subclass has besides the attributes."""
        return None

    def _contents_of(self, values):
        """Returns attribute -> its value again, and a copy of what is in it."""
        contents = ((name, value, self._content_of(value)) for name, value in values.items())
        return {name: (value, content) for name, value, content in contents if content is not None}

    def restore(self):
        values, contents, _ = self._kept
        for name, (value, content) in contents.items():
            if not self._put_back(value, content):
                values[name] = self._content_of(content)
        for name, value in values.items():
            setattr(self, name, value)

    def sync(self):
        """Takes over what rank 0 has saved."""
        values = self._kept.values
        self._keep(self._bcast_object(values) if values else values)
        ObjectState.restore(self)

    def _content_of(self, value):
        """Returns a copy of what may change in the value while it stays the same object. None: nothing is known of
        it."""
        if type(value) in _CHANGE_IN_PLACE:
            return copy.copy(value)
        numpy = sys.modules.get("numpy")
        return value.copy() if numpy and type(value) is numpy.ndarray and value.flags.writeable else None

    def _put_back(self, value, content):
        """Returns False if the value cannot take its content again, since it has another form now."""
        if type(value) is bytearray and len(value) != len(content):
            return False  # it may have views, which keep its length
        if type(value) in (list, bytearray):
            value[:] = content
        elif type(value) in _CHANGE_IN_PLACE:
            value.clear()
            add = value.update if hasattr(value, "update") else value.extend
            add(content)
        elif value.shape == content.shape and value.dtype == content.dtype and value.flags.writeable:
            value[...] = content
        else:
            return False
        return True


_CHANGE_IN_PLACE = (list, dict, set, bytearray, collections.deque, collections.Counter, collections.OrderedDict,
                    collections.defaultdict)


# ---- the loop ---------------------------------------------------------------------------------------------------


def run_fn(func, reset):
    """Returns func(state, ...) made elastic. reset() lets the ranks begin again.

    The first round, and a round after an update of hosts, begin with rank 0's state as it is. A round after a failure
    begins with rank 0's last commit.
    """
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        state, args = _state_and_others(func, args, kwargs)
        notification_manager.init()
        notification_manager.register_listener(state)
        try:
            return _rounds(func, reset, state, args, kwargs)
        finally:
            notification_manager.remove_listener(state)

    return wrapper


def _is_state(value):
    return all(hasattr(value, name) for name in ("save", "restore", "sync"))


def _state_and_others(func, args, kwargs):
    """Returns the first argument, which may be given by its name, and the others without a name. Raises TypeError if it
    is no state; in a method it is self."""
    if not args:
        args = tuple(kwargs.pop(name) for name in [name for name in kwargs if _is_state(kwargs[name])][:1])
    if args and _is_state(args[0]):
        return args[0], args[1:]
    name = getattr(func, "__name__", type(func).__name__)
    is_method = args and (args[1:] or kwargs or hasattr(type(args[0]), name))
    of_method = (f". If {name} is a method, leave the decorator out and call hvd.elastic.run(self.{name})(state), "
                 "which passes the state after self" if is_method else "")
    raise TypeError(f"hvd.elastic.run: expected a state, such as hvd.elastic.TorchState, as the first argument of "
                    f"{name}, found {type(args[0]).__name__ if args else 'none'}{of_method}")


def _check_function(func, state):
    """Raises ValueError in a process that has joined while the others are in another function of the script: it would
    train with them by other code."""
    here = f"{getattr(func, '__module__', '')}.{getattr(func, '__qualname__', type(func).__name__)}"
    there = state._bcast_object(here)
    if there != here:
        raise ValueError(f"hvd.elastic.run: expected a process that joins a training to run the function of the other "
                         f"ranks, {there}, found {here}: put the trainings of the script into one function, with what "
                         "tells them apart in the state, or start a job for each")


def _rounds(func, reset, state, args, kwargs):
    resets = _Resets(state)
    skip_sync, has_state = False, False
    state.save()  # what the program has set since the state was made
    while True:
        cause = _FAILED
        try:
            try:
                if resets.number > 0:
                    state.on_reset()
                if _newcomers() > 0:
                    _check_function(func, state)
                if not skip_sync or _newcomers() > 0:
                    state.sync()
                if _core.elastic_facts() is not None:
                    state._saves = state._bcast_object(getattr(state, "_saves", 0))
                has_state = True
                return func(state, *args, **kwargs)
            except HostsUpdatedInterrupt as update:
                # The attributes as they are, like the rest of the state. It may fail, since a rank may be lost besides.
                state.save()
                resets.count(update, "the hosts have changed")
                skip_sync, cause = update.skip_sync, _HOSTS_UPDATED
        except HorovodInternalError as error:
            resets.count_failure(error)
            state.restore()
            skip_sync = False
        if _core.elastic_facts() is not None:
            steps = 1 + state._progress() if has_state else 0
            _ops.next_progress = (cause, steps, has_state and state.is_keeper())
        try:
            reset()
        except HorovodInternalError as error:
            if _is_to_keep():
                state.keep()
            raise HorovodInternalError(f"{error}\nThe ranks were to begin again because: {resets.why}") from error
        resets.look_at_ranks()


# The values of hvd_elastic_cause.
_FAILED, _HOSTS_UPDATED = 1, 2


def _is_to_keep():
    """True if this process got no rank and horovodrun has told it to write a checkpoint."""
    news = _core.take_hosts_updated()
    return news is not None and news[1] & _KEEP != 0


_KEEP = 4  # see hvd_take_hosts_updated()


def _newcomers():
    """How many of the ranks have no state of the training; 0 in a job whose ranks stay."""
    facts = _core.elastic_facts()
    return 0 if facts is None else facts[1]


class _Resets:
    """Counts the resets of one run, and ends the run when another reset would not help."""

    def __init__(self, state):
        self.number, self.why, self._is_elastic = 0, "", False
        self._state = state
        self._saves, self._failures = None, 0  # the saves before the last failure, and the failures since
        self._size = _core.world()[1] if _core.has_place() else None
        limit = _ops.setting("HOROVOD_ELASTIC_RESET_LIMIT")
        self._limit = int(limit) if limit else None

    def look_at_ranks(self):
        """Called after a reset. If the ranks have changed, a rank had ended, and that failure does not count:
        horovodrun decides how many such failures a job may have."""
        size = _core.world()[1] if _core.has_place() else None
        if size != self._size or _newcomers() > 0:
            self._failures = 0
        self._size = size
        if self._is_elastic:
            self._tell()

    def count(self, cause, why):
        if self.number == self._limit:
            raise RuntimeError(RESET_LIMIT_EXCEEDED_MESSAGE.format(self._limit)) from cause
        self.number, self.why = self.number + 1, why
        self._is_elastic = _core.elastic_facts() is not None
        if not self._is_elastic:
            self._tell()

    def _tell(self):
        """Once for each reset, by rank 0: in an elastic job by that of the next world, because the last one may be gone
        or become another rank. There horovodrun tells earlier that the job goes on."""
        if not _core.has_place() or _core.world()[0] == 0:
            first_line = self.why.partition("\n")[0]
            print(f"Horovod: training begins again, reset {self.number}: {first_line}", file=sys.stderr, flush=True)

    def count_failure(self, error):
        saves = getattr(self._state, "_saves", 0)
        # A live state may go back behind a commit; commits that were undone do not count.
        has_come_further = self._saves is None or saves > self._saves
        self._failures = 1 if has_come_further else self._failures + 1
        self._saves = saves
        if self._failures == MOST_FAILURES_WITHOUT_COMMIT:
            raise HorovodInternalError(f"hvd.elastic.run: {self._failures} failures in a row, without a commit "
                                       f"between. The last one: {error}") from error
        self.count(error, str(error))


# ---- beginning again --------------------------------------------------------------------------------------------


def check_members(basics):
    """Raises ValueError in a job that this process cannot begin again by itself."""
    basics.rank()  # ValueError before init()
    if basics.members is not None:
        raise ValueError("hvd.elastic.run: expected ranks that can begin again by themselves, found a job of "
                         "hvd.init(comm=...): call hvd.init() without comm, or train without hvd.elastic.run and go on "
                         "from checkpoints")


def begin_again(basics):
    """Calls hvd.shutdown() and hvd.init() with the process sets that exist now. In an elastic job it uses the sets that
    hvd.init() got first, because new ranks have the same ones."""
    is_elastic = _core.elastic_facts() is not None
    sets = basics.listed_sets if is_elastic else _sets_of_this_job(basics)
    try:
        basics.shutdown()
    except Exception as error:  # of a checkpoint's write, of any kind
        if not is_elastic or _core.is_initialized():
            raise
        # This process must come back: it may be the one to write the last commit, and the next checkpoint may succeed.
        print(f"Horovod: a checkpoint could not be written: {error}", file=sys.stderr, flush=True)
    try:
        basics.init(process_sets=sets)
    except (ValueError, HorovodInternalError) as error:
        what_to_do = (_if_sets_do_not_fit(sets, error) if is_elastic else
                      "\nA rank that has failed is replaced only in a job of horovodrun --min-np; one that has ended "
                      "with exit code 0 is replaced in none, since all ranks must make the same number of steps. Start "
                      "the job again and let it go on from its last checkpoint (hvd.checkpoint.Checkpointer)")
        raise HorovodInternalError(f"hvd.elastic.run: the ranks could not begin again: {error}{what_to_do}") from error


_SET_OF_OTHER_RANKS = "HVD2111"  # docs/errors.md


def _if_sets_do_not_fit(sets, error):
    if not sets or getattr(error, "id", None) != _SET_OF_OTHER_RANKS:
        return ""
    needed = 1 + max(max(each.ranks) for each in sets if each.ranks)
    return f"\nThe process sets of hvd.init() need {needed} ranks: start the job with --min-np {needed}"


def _sets_of_this_job(basics):
    try:
        found = basics._get_process_set_ids_and_ranks()
    except (ValueError, RuntimeError):
        return None  # the program has called hvd.shutdown()
    known = {each.process_set_id: each for each in _process_sets._registered}
    return [known.get(number) or _process_sets.ProcessSet(ranks) for number, ranks in sorted(found.items()) if number]
