"""The discovery classes that programs around elastic jobs subclass."""
import pytest

from horovod.runner.elastic import discovery as module
from horovod.runner.elastic.discovery import FixedHosts, HostDiscovery, HostDiscoveryScript, HostManager, HostState
from horovod.runner.elastic.settings import ElasticSettings
from horovod.runner.elastic.worker import HostUpdateResult


class Clock:
    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(module.random, "uniform", lambda low, high: 0.5)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


# ---- where hosts come from


def test_a_discovery_without_a_method_is_named():
    with pytest.raises(NotImplementedError):
        HostDiscovery().find_available_hosts_and_slots()


def test_a_script_prints_hosts_with_and_without_slots(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("a:2\n\nb\na:2\n[fd00::1]:3\n")
    script = HostDiscoveryScript(f"cat {hosts} | cat", 4)
    assert script.find_available_hosts_and_slots() == {"a": 2, "b": 4, "[fd00::1]": 3}


@pytest.mark.parametrize("printed", ["a:2", ["a:2", ""]])
def test_a_subclass_may_take_the_text_from_elsewhere(printed):
    class Own(HostDiscoveryScript):
        def _execute_discovery_script(self):
            return printed

    assert Own("not run", None).find_available_hosts_and_slots() == {"a": 2}


def test_a_script_that_fails_is_named_with_its_code():
    with pytest.raises(RuntimeError, match="exited with code 3: no cluster"):
        HostDiscoveryScript("echo no cluster >&2; exit 3", 1).find_available_hosts_and_slots()


@pytest.mark.parametrize("line", ["a:x", "a b:2", "a:-1", "<html>", "a"])
def test_a_script_that_prints_rubbish_is_named_with_the_line(line):
    with pytest.raises(ValueError, match="the discovery script printed"):
        HostDiscoveryScript(f"echo '{line}'", None).find_available_hosts_and_slots()


# ---- what has changed


def manager_of(hosts, cooldown_range=None):
    discovery = FixedHosts(hosts)
    return discovery, HostManager(discovery, cooldown_range)


def test_the_manager_tells_what_has_changed():
    discovery, manager = manager_of({"a": 2})
    assert manager.update_available_hosts() == HostUpdateResult.added
    for hosts, change in [({"a": 2}, HostUpdateResult.no_update), ({"a": 2, "b": 1}, HostUpdateResult.added),
                          ({"a": 4, "b": 1}, HostUpdateResult.added), ({"a": 1, "b": 1}, HostUpdateResult.removed),
                          ({"b": 1, "c": 1}, HostUpdateResult.mixed), ({"b": 2}, HostUpdateResult.mixed),
                          ({}, HostUpdateResult.removed)]:
        discovery.set(hosts)
        assert manager.update_available_hosts() == change, hosts
        assert manager.current_hosts.available_hosts == set(hosts)
        assert manager.current_hosts.count_available_slots() == sum(hosts.values())


def test_hosts_keep_their_order_and_new_ones_come_last():
    discovery, manager = manager_of({"c": 1, "a": 1})
    manager.update_available_hosts()
    before = manager.current_hosts.host_assignment_order
    discovery.set({"b": 1, "a": 1, "c": 1})
    manager.update_available_hosts()
    assert manager.current_hosts.host_assignment_order == before + ["b"]
    assert HostManager.order_available_hosts({"a", "c", "d"}, ["c", "b", "a"]) == ["c", "a", "d"]


def test_a_blacklisted_host_has_no_place_and_its_event_is_set():
    _, manager = manager_of({"a": 2, "b": 2})
    manager.update_available_hosts()
    event = manager.get_host_event("a")
    assert not event.is_set()
    manager.blacklist("a")
    assert event.is_set() and manager.is_blacklisted("a") and not manager.is_blacklisted("b")
    assert manager.current_hosts.host_assignment_order == ["b"]
    assert manager.current_hosts.count_available_slots() == 2
    assert manager.update_available_hosts() == HostUpdateResult.no_update


def test_a_blacklisted_host_stays_out_without_a_cooldown(clock):
    state = HostState()
    state.blacklist()
    clock.now += 1e9
    assert state.is_blacklisted() and not state.is_resurrected()


def test_a_blacklisted_host_is_added_again_after_a_cooldown_that_doubles(clock):
    _, manager = manager_of({"a": 1}, (10, 35))
    manager.update_available_hosts()
    for cooldown in (15, 25, 35, 35):
        manager.blacklist("a")
        manager.blacklist("a")  # a second failure on a host that is out counts no more
        clock.now += cooldown - 0.1
        assert manager.update_available_hosts() == HostUpdateResult.no_update
        assert manager.current_hosts.available_hosts == set()
        clock.now += 0.2
        assert manager.update_available_hosts() == HostUpdateResult.added
        assert manager.update_available_hosts() == HostUpdateResult.no_update
        assert manager.current_hosts.available_hosts == {"a"}
        assert not manager.get_host_event("a").is_set()


@pytest.mark.parametrize("cooldown_range", [(0, 10), (1, 3601), (20, 10)])
def test_a_cooldown_range_that_makes_no_sense_is_refused_when_a_host_is_found(cooldown_range):
    _, manager = manager_of({"a": 1}, cooldown_range)
    with pytest.raises(ValueError, match="cooldown range"):
        manager.update_available_hosts()


# ---- settings


def test_settings_of_an_elastic_job_are_checked():
    settings = ElasticSettings(discovery=FixedHosts({"a": 2}), min_num_proc=2, max_num_proc=4)
    assert (settings.num_proc, settings.elastic_timeout, settings.reset_limit) == (2, 600, None)
    with pytest.raises(ValueError, match="min_num_proc <= num_proc <= max_num_proc, found 4, 4, 2"):
        ElasticSettings(discovery=FixedHosts({}), min_num_proc=4, max_num_proc=2)
