import pathlib

import pytest

from horovod.common import nccl_version


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch):
    monkeypatch.delenv("HOROVOD_NCCL", raising=False)
    monkeypatch.delenv("HOROVOD_NCCL_LIBRARY", raising=False)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(nccl_version, "_SYSTEM", ())
    monkeypatch.setattr(nccl_version, "_of_pypi", lambda: 0)


def installed(folder: pathlib.Path, version: str) -> str:
    (folder / f"libnccl.so.{version}").touch()
    (folder / "libnccl.so.2").symlink_to(f"libnccl.so.{version}")
    return str(folder / "libnccl.so.2")


def test_without_nccl_the_version_is_0():
    assert nccl_version.nccl_version() == 0


def test_a_library_of_the_system_tells_its_version_by_its_name(tmp_path, monkeypatch):
    installed(tmp_path, "2.21.5")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path}")
    assert nccl_version.nccl_version() == 22105
    monkeypatch.setenv("HOROVOD_NCCL", "0")
    assert nccl_version.nccl_version() == 0


def test_the_library_that_the_variable_names_comes_first(tmp_path, monkeypatch):
    for name, version in (("one", "2.21.5"), ("other", "2.28.9")):
        (tmp_path / name).mkdir()
        installed(tmp_path / name, version)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "one"))
    monkeypatch.setenv("HOROVOD_NCCL_LIBRARY", str(tmp_path / "other/libnccl.so.2"))
    assert nccl_version.nccl_version() == 22809


def test_a_version_that_is_too_old_for_us_counts_as_none(tmp_path, monkeypatch):
    installed(tmp_path, "2.16.2")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert nccl_version.nccl_version() == 0
