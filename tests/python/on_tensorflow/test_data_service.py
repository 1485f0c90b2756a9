"""The tf.data service in a job of its own."""
import os
import socket
import subprocess
import sys
import tempfile

import pytest
import tensorflow as tf

from horovod.tensorflow.data.compute_service import TfDataServiceConfig, send_to_data_service, tf_data_service
from horovod.tensorflow.data.meeting_place import MeetingPlace


def config_of(**more):
    return TfDataServiceConfig(**{"dispatchers": 1, "workers_per_dispatcher": 2, "dispatcher_side": "compute",
                                  "addresses": [["localhost", 1]], "key": b"\x01\xff", "timeout": 0, **more})


def start_preparing(folder, *options):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    command = [os.environ.get("HOROVODRUN", "horovodrun"), "-np", "2", "--oversubscribe", sys.executable, "-m",
               "horovod.tensorflow.data.compute_worker", os.path.join(folder, "service.json"), "--timeout", "300",
               *options]
    with open(os.path.join(folder, "output"), "w", encoding="utf-8") as output:
        return subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)


@pytest.mark.parametrize("options", [[], ["--dispatcher-side", "training", "--dispatchers", "1"]], ids=str)
def test_a_job_of_its_own_prepares_the_data(hvd, rank, size, options):
    with tempfile.TemporaryDirectory() as here:
        folder = hvd.broadcast_object(here)
        job = start_preparing(folder, *options) if rank == 0 else None
        config = TfDataServiceConfig.read(os.path.join(folder, "service.json"), wait_for_file_creation=True)
        dataset = tf.data.Dataset.range(40).map(lambda number: number * 2)
        with tf_data_service(config, rank):
            own = dataset.send_to_data_service(config, rank, size)
            assert sorted(int(number) for number in own) == list(range(0, 80, 2))
            part = [int(number) for number in dataset.send_to_data_service(config, rank, size, reuse_dataset=True)]
            assert sorted(sum(hvd.allgather_object(part), [])) == list(range(0, 80, 2))
        if job is not None:
            assert job.wait(timeout=300) == 0, open(os.path.join(folder, "output"), encoding="utf-8").read()
        hvd.barrier()


def test_a_configuration_travels_as_a_file(tmp_path):
    config, path = config_of(timeout=7), str(tmp_path / "service.json")
    assert config.to_dict()["key"] == "01ff" and set(config.to_dict()) == set(config.__dataclass_fields__)
    config.write(path)
    assert TfDataServiceConfig.read(path) == config and os.stat(path).st_mode & 0o77 == 0
    with pytest.raises(FileNotFoundError):
        TfDataServiceConfig.read(path + ".none")


def test_the_key_is_in_no_text_and_in_no_file_that_was_there(tmp_path):
    config, path = config_of(), tmp_path / "service.json"
    assert "xff" not in repr(config)
    other = tmp_path / "other"
    other.write_text("kept")
    os.symlink(other, f"{path}.{os.getpid()}.new")
    config.write(str(path))
    assert other.read_text() == "kept" and TfDataServiceConfig.read(str(path)) == config


def test_connections_that_say_nothing_keep_nobody_out():
    place = MeetingPlace(b"key", patience=1)
    port = place.addresses[0][1]
    silent = [socket.create_connection(("localhost", port)) for _ in range(3)]
    config = config_of(addresses=[["localhost", port]], key=b"key", timeout=5)
    config.compute_client().register_dispatcher(0, "localhost:1")
    assert config.compute_client().wait_for_dispatcher_registration(0) == "localhost:1"
    for each in silent:
        each.settimeout(60)
        while each.recv(4096):  # its challenge, then the end
            pass
        each.close()


def test_an_exception_in_the_training_ends_the_service(rank):
    place = MeetingPlace(b"key")
    config = config_of(addresses=place.addresses, key=b"key", timeout=5, workers_per_dispatcher=1)
    client = config.compute_client()
    client.register_dispatcher(0, "localhost:1")
    client.register_worker(0, 0)
    with pytest.raises(ZeroDivisionError), tf_data_service(config, 0):
        1 / 0
    client.wait_for_shutdown()


def test_what_is_wrong_or_missing_is_named():
    dataset = tf.data.Dataset.range(4)
    with pytest.raises(ValueError, match="dispatcher_side"):
        send_to_data_service(dataset, config_of(dispatcher_side="both"), 0)
    with pytest.raises(ValueError, match="round_robin"):
        send_to_data_service(dataset, config_of(), 0, round_robin=True)
    with pytest.raises(TimeoutError, match="is not at .*compute_worker"):
        send_to_data_service(dataset, config_of(), 0)
    place = MeetingPlace(b"key")
    with pytest.raises(TimeoutError, match="dispatcher 0 of the data service has not started"):
        send_to_data_service(dataset, config_of(addresses=place.addresses, key=b"key"), 0)
    config_of(addresses=place.addresses, key=b"key").compute_client().register_dispatcher(0, "localhost:1")
    with pytest.raises(TimeoutError, match="under 2 workers"):
        send_to_data_service(dataset, config_of(addresses=place.addresses, key=b"key"), 0)
    with pytest.raises(ValueError, match="does not admit"):
        send_to_data_service(dataset, config_of(addresses=place.addresses, key=b"other"), 0)
