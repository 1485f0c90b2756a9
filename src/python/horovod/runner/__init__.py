"""Starting Horovod jobs. The launcher is the program `horovodrun`."""
