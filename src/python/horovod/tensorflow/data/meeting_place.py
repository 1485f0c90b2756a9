"""Where the ranks of two jobs find each other: a small server of facts. It admits those that know the key."""
import json
import multiprocessing.connection
import socket
import sys
import threading
import time


def own_host():
    """The name under which other hosts reach this one."""
    name = socket.getfqdn()
    try:
        socket.getaddrinfo(name, None)
        return name
    except OSError:
        return "localhost"


class MeetingPlace:
    """Keeps facts under names. Connections are answered by threads that end with the process."""

    def __init__(self, key):
        self._facts = {}
        self._changed = threading.Condition()
        self._listener = multiprocessing.connection.Listener(("", 0), backlog=256, authkey=key)
        self.addresses = [[own_host(), self._listener.address[1]]]
        threading.Thread(target=self._accept, name="hvd-meeting", daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection = self._listener.accept()
            except (OSError, EOFError, multiprocessing.AuthenticationError):
                if self._listener is None:
                    return
                continue
            threading.Thread(target=self._answer, args=(connection,), name="hvd-meeting", daemon=True).start()

    def _answer(self, connection):
        try:
            while True:
                name, value, count, seconds = json.loads(connection.recv_bytes())
                connection.send_bytes(json.dumps(self._do(name, value, count, seconds)).encode())
        except (OSError, EOFError, ValueError):
            connection.close()

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
            connection.send_bytes(json.dumps([name, value, count, seconds]).encode())
            return connection.recv_bytes()

    def _connected(self):
        problem, end = None, time.monotonic() + self._timeout
        while True:
            for host, port in self._addresses:
                try:
                    return multiprocessing.connection.Client((host, port), authkey=self._key)
                except multiprocessing.AuthenticationError:
                    raise ValueError(f"the data service at {host}:{port} does not admit this job: the key is another "
                                     "one; read the file of its last run") from None
                except (OSError, EOFError) as error:
                    problem = error
            if time.monotonic() > end:
                raise TimeoutError(f"the data service is not at {self._addresses} ({problem}); does the job of "
                                   "horovod.tensorflow.data.compute_worker run, and is the file of this run?")
            time.sleep(0.1)

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
