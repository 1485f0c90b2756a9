"""The parts that all frameworks share. The module paths are those that Horovod's users know."""
