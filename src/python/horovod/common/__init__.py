"""What all frameworks share; the module paths are those that Horovod's users know."""
