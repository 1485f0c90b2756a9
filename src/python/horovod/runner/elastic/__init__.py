"""What the ranks of an elastic job know of its launcher. The module paths are those that Horovod's users know."""
