"""Where the ranks of two jobs find each other: a small server of facts. It admits those that know the key."""
import contextlib
import json
import multiprocessing
import os
import socket
import struct
import sys
import threading
import time
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge

_LEAST_PATIENCE = 10  # seconds in which a live process answers


def own_host():
    """The name under which other hosts reach this one."""
    name = socket.getfqdn()
    try:
        socket.getaddrinfo(name, None)
        return name
    except OSError:
        return "localhost"


def _wait_at_most(connection, seconds):
    """From now on a read or write that takes longer fails with an OSError. None: it may take any time, as long as the
    other host is there."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        limit = struct.pack("@ll", 0 if seconds is None else max(1, round(seconds)), 0)
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        same.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class MeetingPlace:
    """Keeps facts under names. Connections are answered by threads that end with the process."""

    def __init__(self, key, patience=60):
        """patience: seconds after which a connection that says nothing is closed."""
        self._key, self._patience = key, patience
        self._facts = {}
        self._changed = threading.Condition()
        self._listener = Listener(("", 0), backlog=256)
        self.addresses = [[own_host(), self._listener.address[1]]]
        threading.Thread(target=self._accept, name="hvd-meeting", daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), name="hvd-meeting", daemon=True).start()
            except Exception:  # too few descriptors or threads, as it may be: others go on asking
                time.sleep(0.1)

    def _answer(self, connection):
        """In a thread for each connection, because the other end may say nothing."""
        with contextlib.suppress(OSError, EOFError, ValueError, multiprocessing.AuthenticationError), connection:
            _wait_at_most(connection, self._patience)
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            while True:
                name, value, count, seconds = json.loads(connection.recv_bytes())
                connection.send_bytes(json.dumps(self._do(name, value, count, seconds)).encode())

    def _do(self, name, value, count, seconds):
        """Adds a value to the fact, unless it is None. Returns the fact's values when there are `count`, or None after
        so many seconds."""
        with self._changed:
            found = self._facts.setdefault(name, [])
            if value is not None and value not in found:
                found.append(value)
                self._changed.notify_all()
            return found if self._changed.wait_for(lambda: len(found) >= count, seconds) else None


class Client:
    """Knows where the meeting place is, and asks it."""

    def __init__(self, addresses, key, timeout=60, verbose=1):
        self._addresses, self._key = addresses, key
        self._timeout, self._verbose = timeout, verbose

    def _ask(self, name, value=None, count=0, seconds=None):
        if self._verbose >= 2:
            print(f"Horovod's data service: {name} {value or ''}", file=sys.stderr, flush=True)
        with self._connected() as connection:
            waits = count > 0 and seconds is None
            _wait_at_most(connection, None if waits else (seconds or 0) + max(self._timeout, _LEAST_PATIENCE))
            connection.send_bytes(json.dumps([name, value, count, seconds]).encode())
            try:
                return connection.recv_bytes()
            except BlockingIOError:
                raise TimeoutError(f"the data service at {self._addresses} does not answer") from None

    def _connected(self):
        problem, end = None, time.monotonic() + self._timeout
        while True:
            for host, port in self._addresses:
                try:
                    return self._admitted_by(host, port)
                except multiprocessing.AuthenticationError:
                    raise ValueError(f"the data service at {host}:{port} does not admit this job: the key is another "
                                     "one; read the file of its last run") from None
                except (OSError, EOFError) as error:
                    problem = error
            if time.monotonic() > end:
                raise TimeoutError(f"the data service is not at {self._addresses} ({problem}); does the job of "
                                   "horovod.tensorflow.data.compute_worker run, and is the file of this run?")
            time.sleep(0.1)

    def _admitted_by(self, host, port):
        connection = Connection(socket.create_connection((host, port), _LEAST_PATIENCE).detach())
        try:
            os.set_blocking(connection.fileno(), True)
            _wait_at_most(connection, _LEAST_PATIENCE)
            answer_challenge(connection, self._key)
            deliver_challenge(connection, self._key)
        except BaseException:
            connection.close()
            raise
        return connection

    def _wait(self, name, count, what):
        found = json.loads(self._ask(name, None, count, self._timeout))
        if found is None:
            raise TimeoutError(f"{what} after {self._timeout} s; look at the output of the other job")
        return found

    def register_dispatcher(self, number, address):
        self._ask(f"dispatcher {number}", address)

    def wait_for_dispatcher_registration(self, number):
        """Returns the dispatcher's address. TimeoutError if it does not come."""
        return self._wait(f"dispatcher {number}", 1, f"dispatcher {number} of the data service has not started")[0]

    def register_worker(self, number, worker):
        self._ask(f"workers {number}", worker)

    def wait_for_workers(self, number, count):
        self._wait(f"workers {number}", count, f"dispatcher {number} of the data service has under {count} workers")

    def shutdown(self):
        """Ends the job that prepares."""
        self._ask("shutdown", True)

    def wait_for_shutdown(self):
        try:
            self._ask("shutdown", None, 1, None)
        except (OSError, EOFError):
            pass  # the process that keeps the meeting place has ended
