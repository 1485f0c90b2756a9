"""The parts that the launcher and its jobs share. The module paths are those that Horovod's users know."""
