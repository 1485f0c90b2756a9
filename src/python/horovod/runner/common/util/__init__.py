"""Small functions that programs around Horovod import from here."""
