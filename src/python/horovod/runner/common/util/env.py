"""Reads the environment variables that a launcher sets for a process."""
import os

_LAUNCHERS = (("HOROVOD_RANK", "HOROVOD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
              ("PMI_RANK", "PMI_SIZE"))


def get_env_rank_and_size():
    """Returns (rank, size) as the launcher set them, or (0, 1) without a launcher. RuntimeError if only one of them
    is set."""
    for names in _LAUNCHERS:
        found = [name for name in names if name in os.environ]
        if len(found) == 2:
            return tuple(int(os.environ[name]) for name in names)
        if found:
            missing = names[1 - names.index(found[0])]
            raise RuntimeError(f"the environment has {found[0]} but not {missing}; a launcher sets both")
    return 0, 1
