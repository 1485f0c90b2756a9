"""The exceptions of Horovod."""


class HorovodInternalError(RuntimeError):
    """A collective failed: the ranks disagree about it, a peer was lost, or Horovod has been shut down.

    id: the error's id in docs/errors.md, such as "HVD2101"; None if it has none.
    """

    id: "str | None" = None


class HostsUpdatedInterrupt(RuntimeError):
    """The hosts of an elastic job changed.

    skip_sync: hosts were only removed. Therefore the state of the remaining ranks need not be synchronised.
    """

    def __init__(self, skip_sync=False):
        super().__init__(skip_sync)
        self.skip_sync = skip_sync


def get_version_mismatch_message(name, version, installed_version):
    return (f"Horovod was built for {name} {version} but {installed_version} is installed. "
            f"Install {name} {version}, or build Horovod again.")


class HorovodVersionMismatchError(ImportError):
    """Horovod was built for another version of a framework than the one that is installed."""

    def __init__(self, name, version, installed_version):
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version
