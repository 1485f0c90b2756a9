"""The job that prepares data: horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker service.json"""
import argparse
import contextlib
import os
import secrets

import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn
from horovod.tensorflow.data.meeting_place import MeetingPlace


def main(dispatchers, dispatcher_side, configfile, timeout):
    """Runs on each rank until the training ends the service."""
    _remove(configfile)  # of an earlier job; rank 0 writes the new one when all ranks are past hvd.init()
    hvd.init()
    if dispatchers < 1 or hvd.size() % dispatchers:
        raise ValueError(f"the number of processes, {hvd.size()}, is to be a multiple of that of dispatchers, "
                         f"{dispatchers}")
    place, config = None, None
    if hvd.rank() == 0:
        key = secrets.token_bytes(32)
        place = MeetingPlace(key)
        config = TfDataServiceConfig(dispatchers, hvd.size() // dispatchers, dispatcher_side, place.addresses, key,
                                     timeout)
        config.write(configfile)
    try:
        compute_worker_fn(hvd.broadcast_object(config))
        hvd.barrier()  # rank 0 keeps the meeting place until all ranks know of the end
    finally:
        if place is not None:
            _remove(configfile)
    del place


def _remove(configfile):
    """It has a key."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(configfile)


def _arguments():
    parser = argparse.ArgumentParser(prog="python -m horovod.tensorflow.data.compute_worker", description=__doc__)
    parser.add_argument("configfile", help="is written; the training reads it, and its hosts must see it")
    parser.add_argument("--dispatchers", type=int, default=1, help="number of dispatchers (default: 1)")
    parser.add_argument("--dispatcher-side", choices=("compute", "training"), default="compute",
                        help="the job that runs the dispatchers (default: compute)")
    parser.add_argument("--timeout", type=int, default=60, help="seconds to wait for other ranks (default: 60)")
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    main(given.dispatchers, given.dispatcher_side, given.configfile, given.timeout)
