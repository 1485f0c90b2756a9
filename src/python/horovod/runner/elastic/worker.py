"""How the states of a rank learn that the hosts of an elastic job have changed."""
import enum
import threading

from horovod import _core


class HostUpdateResult(enum.IntFlag):
    """What has happened to the hosts."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class WorkerNotificationManager:
    """Passes news about hosts on to the states that train. There is one for each process.

    horovodrun --min-np sends such news to rank 0. A program that has some of its own calls handle_hosts_updated()
    there.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._listeners = []

    def init(self, rendezvous_addr=None, rendezvous_port=None, nic=None, hostname=None, local_rank=None):
        """Does nothing: news come over the connection by which the rank has joined."""

    def look(self):
        """Passes on what horovodrun has told this process since the last call. Never blocks."""
        news = _core.take_hosts_updated()
        if news is not None:
            self.handle_hosts_updated(news[0], HostUpdateResult(news[1]))

    def register_listener(self, listener):
        with self._lock:
            self._listeners.append(listener)

    def remove_listener(self, listener):
        with self._lock:
            self._listeners = [each for each in self._listeners if each is not listener]

    def handle_hosts_updated(self, timestamp, update_res):
        """timestamp: when the hosts changed. update_res: a HostUpdateResult."""
        with self._lock:
            listeners = list(self._listeners)
        for each in listeners:
            each.on_hosts_updated(timestamp, update_res)
