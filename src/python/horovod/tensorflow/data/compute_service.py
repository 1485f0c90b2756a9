"""The tf.data service in a job of its own, which prepares the data of a training.

    horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker service.json   # the job that prepares

    config = TfDataServiceConfig.read("service.json", wait_for_file_creation=True)   # in each rank of the training
    with tf_data_service(config, hvd.rank()):
        for batch in dataset.send_to_data_service(config, hvd.rank(), hvd.size()):
            …

The ranks find each other at a meeting place, which rank 0 of the job that prepares keeps. Its address and the key that
admits to it are in the file, which only the user can read.
"""
import contextlib
import dataclasses
import json
import os
import time
from typing import Any, List

import tensorflow as tf

from horovod import _core, _ops
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.common.operations import ranks_may_change
from horovod.tensorflow.data.meeting_place import Client, own_host
from horovod.tensorflow.elastic import failure_of

_SIDES = ("compute", "training")


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """What ranks of both jobs know of the service.

    dispatchers: how many dispatchers share the work; workers_per_dispatcher: how many workers each of them has.
    dispatcher_side: "compute" or "training", the job whose ranks run the dispatchers. addresses: pairs (host, port) of
    the meeting place. key: bytes that admit to it. timeout: seconds for which ranks wait for each other.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: List[Any]
    key: bytes = dataclasses.field(repr=False)
    timeout: int = 60

    def compute_client(self, verbose=1):
        """Returns a connection to the meeting place. verbose: 2 and more tells what is asked."""
        return Client(self.addresses, self.key, self.timeout, verbose)

    def to_dict(self):
        return {**dataclasses.asdict(self), "key": self.key.hex()}

    @staticmethod
    def from_dict(config):
        return TfDataServiceConfig(**{**config, "key": bytes.fromhex(config["key"])})

    def write(self, filename):
        """Writes the file, which others see when it is whole."""
        whole = f"{filename}.{os.getpid()}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(whole)  # of a process that was killed
        to_new_file = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(whole, to_new_file, 0o600), "w", encoding="utf-8") as file:
            json.dump(self.to_dict(), file)
        os.replace(whole, filename)

    @staticmethod
    def read(filename, wait_for_file_creation=False):
        """Reads the file. wait_for_file_creation: waits until it is there."""
        while wait_for_file_creation and not os.path.exists(filename):
            time.sleep(0.1)
        with open(filename, encoding="utf-8") as file:
            return TfDataServiceConfig.from_dict(json.load(file))


def _check(config):
    if config.dispatcher_side not in _SIDES:
        raise ValueError(f"dispatcher_side is one of {', '.join(_SIDES)}, not {config.dispatcher_side!r}")


def _start_dispatcher(client, number):
    server = tf.data.experimental.service.DispatchServer(
        tf.data.experimental.service.DispatcherConfig(port=0, protocol="grpc"))
    client.register_dispatcher(number, f"{own_host()}:{server.target.rsplit(':', 1)[1]}")
    return server


@contextlib.contextmanager
def tf_data_service(config, rank):
    """In each rank of the training: starts its dispatcher, if the training has them, and waits for the workers. Gives
    the address of this rank's dispatcher. At the end the ranks meet, and rank 0 ends the job that prepares. A rank that
    leaves by an exception ends it at once."""
    _check(config)
    client = config.compute_client()
    try:
        server = _start_dispatcher(client, rank) if config.dispatcher_side == "training" and rank < config.dispatchers \
            else None
        address = client.wait_for_dispatcher_registration(rank % config.dispatchers)
        client.wait_for_workers(rank % config.dispatchers, config.workers_per_dispatcher)
        yield address
        if _core.has_place():
            _ops.barrier()  # others may still read
    except BaseException as error:
        if not _goes_on_after(error):
            with contextlib.suppress(OSError, ValueError):  # the first error is the one to tell
                client.shutdown()
        raise
    if rank == 0:
        client.shutdown()
    del server


def _goes_on_after(error):
    """Whether an elastic training begins again, and needs the service again."""
    return ranks_may_change() and (isinstance(error, HostsUpdatedInterrupt) or failure_of(error) is not None)


def send_to_data_service(dataset, config, rank, size=None, processing_mode="distributed_epoch", reuse_dataset=False,
                         round_robin=False):
    """Returns the data set as the service prepares it.

    reuse_dataset: the ranks of a dispatcher take from one preparation; else each has one of its own. round_robin: each
    of them gets the same number of elements, in turn; the data set must not end, and size is the number of ranks.
    """
    _check(config)
    if round_robin and (size is None or not reuse_dataset):
        raise ValueError("round_robin=True needs size= and reuse_dataset=True")
    number = rank % config.dispatchers
    client = config.compute_client()
    address = client.wait_for_dispatcher_registration(number)
    client.wait_for_workers(number, config.workers_per_dispatcher)
    more = {}
    if round_robin:
        more = {"consumer_index": rank // config.dispatchers,
                "num_consumers": len(range(number, size, config.dispatchers))}
    return dataset.apply(tf.data.experimental.service.distribute(
        processing_mode=processing_mode, service=f"grpc://{address}",
        job_name=f"horovod-{number}" if reuse_dataset else None, **more))


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(config):
    """In each rank of the job that prepares: a worker, with the dispatcher of its group if it is the first of it.
    Returns when the training has ended the service."""
    _check(config)
    rank = _core.world()[0]
    number, place = divmod(rank, config.workers_per_dispatcher)
    client = config.compute_client()
    server = _start_dispatcher(client, number) if config.dispatcher_side == "compute" and place == 0 else None
    address = client.wait_for_dispatcher_registration(number)
    service = tf.data.experimental.service
    worker = service.WorkerServer(service.WorkerConfig(
        dispatcher_address=address, worker_address=f"{own_host()}:%port%", port=0, protocol="grpc"))
    client.register_worker(number, rank)
    client.wait_for_shutdown()
    del worker, server
