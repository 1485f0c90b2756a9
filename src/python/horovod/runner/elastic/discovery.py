"""Finds the hosts of an elastic job, for programs that do it themselves.

horovodrun runs the script of `--host-discovery-script` by itself and uses none of these classes.
"""
import random
import re
import subprocess
import threading
import time

from horovod.runner.elastic.worker import HostUpdateResult

_HOST = re.compile(r"[\w.-]+|\[[0-9a-fA-F:.]+\]")
_LONGEST_COOLDOWN = 3600


class HostDiscovery:
    """Finds hosts. Subclasses define find_available_hosts_and_slots()."""

    def find_available_hosts_and_slots(self):
        """Returns the hosts that exist now, as a dict from name to number of slots."""
        raise NotImplementedError


class HostDiscoveryScript(HostDiscovery):
    """Runs a script through the shell. The script prints a line `host:slots` or `host` for each host.

    slots: the slots of a host whose line has only `host`.
    """

    def __init__(self, discovery_script, slots):
        self._discovery_script = discovery_script
        self._default_slots = slots

    def find_available_hosts_and_slots(self):
        """Raises RuntimeError if the script fails, ValueError if it prints anything but a list of hosts."""
        hosts = {}
        lines = self._execute_discovery_script()
        for line in lines.splitlines() if isinstance(lines, str) else lines:
            if line.strip():
                name, slots = self._read(line.strip())
                hosts[name] = slots
        return hosts

    def _execute_discovery_script(self):
        """Returns what the script prints, as text or as lines. Subclasses may take it from elsewhere."""
        done = subprocess.run(self._discovery_script, shell=True, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the discovery script {self._discovery_script} exited with code {done.returncode}: "
                               f"{done.stderr.strip()[-500:]}")
        return done.stdout

    def _read(self, line):
        name, colon, slots = line.rpartition(":")
        if not colon or line.endswith("]"):
            name, slots = line, self._default_slots
            if slots is None:
                raise ValueError(f"the discovery script printed the host {line} without slots: expected host:slots, or "
                                 "a number of slots for each host (--slots-per-host)")
        if not _HOST.fullmatch(name) or not str(slots).isdecimal():
            raise ValueError(f"the discovery script printed the line '{line}': expected 'host' or 'host:slots'")
        return name, int(slots)


class FixedHosts(HostDiscovery):
    """Hosts that the program names, and changes by set()."""

    def __init__(self, available_hosts):
        self._available_hosts = available_hosts

    def find_available_hosts_and_slots(self):
        return self._available_hosts

    def set(self, available_hosts):
        self._available_hosts = available_hosts


class HostState:
    """Knows whether one host may have ranks. A blacklisted host may have ranks again when its cooldown is over.

    cooldown_range: the shortest and the longest cooldown in seconds. The cooldown doubles with each blacklisting.
    Without it, a blacklisted host never returns.
    """

    def __init__(self, cooldown_range=None):
        if cooldown_range is not None:
            lower, upper = cooldown_range
            if lower < 1 or upper > _LONGEST_COOLDOWN or lower > upper:
                raise ValueError(f"expected a cooldown range from 1 to {_LONGEST_COOLDOWN} seconds at most, the lower "
                                 f"number first, found {lower} to {upper}")
        self._range = cooldown_range
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._count = 0
        self._ends = None  # of the cooldown; None: the host is not blacklisted

    def get_event(self):
        """Returns an event that is set when the host is blacklisted. When the host returns, it has a new event."""
        with self._lock:
            if self._event.is_set() and not self._is_out():
                self._event = threading.Event()
            return self._event

    def blacklist(self):
        with self._lock:
            if self._is_out():
                return
            self._ends = float("inf")
            if self._range is not None:
                lower, upper = self._range
                delay = lower * 2**self._count + random.uniform(0, 1) * lower
                self._ends = time.monotonic() + min(max(delay, lower), upper)
            self._count += 1
            self._event.set()

    def is_blacklisted(self):
        with self._lock:
            return self._is_out()

    def is_resurrected(self):
        """True from the end of a cooldown until whiten() is called."""
        with self._lock:
            return self._ends is not None and not self._is_out()

    def whiten(self):
        """Forgets that the host was blacklisted. Its next cooldown is longer nevertheless."""
        with self._lock:
            self._ends = None

    def _is_out(self):
        return self._ends is not None and time.monotonic() < self._ends


class DiscoveredHosts:
    """The hosts that were found at one time, in the order in which they get ranks."""

    def __init__(self, host_slots, host_assignment_order):
        self._host_slots = dict(host_slots)
        self._host_assignment_order = list(host_assignment_order)

    @property
    def host_slots(self):
        return self._host_slots

    @property
    def available_hosts(self):
        return set(self._host_assignment_order)

    @property
    def host_assignment_order(self):
        return self._host_assignment_order

    def get_slots(self, host):
        return self._host_slots.get(host, 0)

    def count_available_slots(self):
        return sum(self.get_slots(host) for host in self._host_assignment_order)

    def without(self, is_out):
        """Returns these hosts without those for which is_out(host) is true."""
        return DiscoveredHosts(self._host_slots, [host for host in self._host_assignment_order if not is_out(host)])


class HostManager:
    """Follows a discovery. Knows what has changed, which hosts are blacklisted, and the order of the hosts.

    cooldown_range: see HostState.
    """

    def __init__(self, discovery, cooldown_range=None):
        self._discovery = discovery
        self._cooldown_range = cooldown_range
        self._lock = threading.Lock()
        self._states = {}
        self._hosts = DiscoveredHosts({}, [])

    def update_available_hosts(self):
        """Asks the discovery. Returns what has changed since the last time, as a HostUpdateResult."""
        found = dict(self._discovery.find_available_hosts_and_slots())
        change = HostUpdateResult.no_update
        with self._lock:
            before = self._hosts.host_slots
            for host, slots in found.items():
                state = self._state_of(host)
                if slots > before.get(host, 0) or state.is_resurrected():
                    change |= HostUpdateResult.added
                if slots < before.get(host, 0):
                    change |= HostUpdateResult.removed
                if state.is_resurrected():
                    state.whiten()
            if any(host not in found for host in before):
                change |= HostUpdateResult.removed
            usable = {host for host in found if not self._state_of(host).is_blacklisted()}
            order = self.order_available_hosts(usable, self._hosts.host_assignment_order)
            self._hosts = DiscoveredHosts(found, order)
        return change

    @property
    def current_hosts(self):
        """Returns the hosts that may have ranks, as a DiscoveredHosts."""
        with self._lock:
            return self._hosts.without(lambda host: self._state_of(host).is_blacklisted())

    def blacklist(self, host):
        with self._lock:
            self._state_of(host).blacklist()

    def is_blacklisted(self, host):
        with self._lock:
            return self._state_of(host).is_blacklisted()

    def get_host_event(self, host):
        with self._lock:
            return self._state_of(host).get_event()

    def _state_of(self, host):
        if host not in self._states:
            self._states[host] = HostState(self._cooldown_range)
        return self._states[host]

    @staticmethod
    def order_available_hosts(available_hosts, prev_host_assignment_order):
        """Returns the hosts in order: those that had ranks keep their order, and the others come after them."""
        order = [host for host in prev_host_assignment_order if host in available_hosts]
        return order + [host for host in available_hosts if host not in order]
