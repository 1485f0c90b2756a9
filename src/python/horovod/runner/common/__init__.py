"""What the launcher and its jobs share; the module paths are those that Horovod's users know."""
