"""Interrupts a call in the main thread, as Ctrl-C does."""
import os
import signal
import threading


class Interrupted(Exception):
    pass


def interrupted(call):
    """Runs call() and interrupts it by a signal. False if call() returns before the signal."""
    def interrupt(*_):
        raise Interrupted

    def insist():
        while not stop.wait(0.01):
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    stop = threading.Event()
    thread = threading.Thread(target=insist)
    was_interrupted = False
    try:
        thread.start()
        call()
    except Interrupted:
        was_interrupted = True
    while True:  # repeats this until it is done, because the last signals may interrupt it
        try:
            stop.set()
            thread.join()
            signal.signal(signal.SIGUSR1, before)
            return was_interrupted
        except Interrupted:
            was_interrupted = True
