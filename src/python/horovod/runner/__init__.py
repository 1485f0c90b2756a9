"""Starts Horovod jobs. The launcher itself is the program `horovodrun`."""
from horovod.common.missing import text_about


def run(func, args=(), kwargs=None, num_proc=1, min_num_proc=None, max_num_proc=None, slots=None, reset_limit=None,
        cooldown_range=None, hosts=None, hostfile=None, host_discovery_script=None, start_timeout=None, ssh_port=None,
        ssh_identity_file=None, disable_cache=None, output_filename=None, verbose=None, use_gloo=None, use_mpi=None,
        mpi_args=None, network_interface=None, network_interfaces=None, executable=None, np=None, min_np=None,
        max_np=None):
    """Not available yet. Will call func(*args, **kwargs) in num_proc processes of a job and return their results by
    rank."""
    raise NotImplementedError(text_about("horovod.run"))
