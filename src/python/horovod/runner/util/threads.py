"""Runs one call in a thread, a call when an event is set, or many calls in several threads."""
import threading
from concurrent.futures import ThreadPoolExecutor


def _check_arguments(args):
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args)}, for a single argument use (arg,)")


def _quietly(function, silent):
    def call(*args):
        try:
            function(*args)
        except Exception:
            if not silent:
                raise
    return call


def in_thread(target, args=(), name=None, daemon=True, silent=False):
    """Starts target(*args) in a thread and returns the thread. silent: an exception ends the thread without a
    message."""
    _check_arguments(args)
    thread = threading.Thread(target=_quietly(target, silent), args=args, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(event, func, args=(), stop=None, check_stop_interval_s=1.0, daemon=True, silent=False):
    """Starts a thread that calls func(*args) when the event is set, unless the event `stop` is set before."""
    if event is None:
        raise ValueError("Event must not be None")
    _check_arguments(args)
    if stop is None and not daemon:
        raise ValueError("Stop event must be given for non-daemon event thread")

    def wait():
        while not event.wait(None if stop is None else check_stop_interval_s):
            if stop.is_set():
                return
        func(*args)

    return in_thread(wait, daemon=daemon, silent=silent)


def execute_function_multithreaded(fn, args_list, block_until_all_done=True, max_concurrent_executions=1000):
    """Calls fn(*args) for each args of the list, in threads. Returns the results by the index of args in the list.

    block_until_all_done: if false, only starts the calls and returns None.
    """
    if not args_list:
        return {} if block_until_all_done else None
    pool = ThreadPoolExecutor(min(max_concurrent_executions, len(args_list)))
    calls = [pool.submit(fn, *args) for args in args_list]
    pool.shutdown(wait=False)
    if not block_until_all_done:
        return None
    try:
        return {place: call.result() for place, call in enumerate(calls)}
    except Exception as error:
        raise RuntimeError("Some threads for func {} did not complete successfully: {}".format(
            getattr(fn, "__name__", fn), error)) from error
