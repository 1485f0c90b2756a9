"""python -m horovod.tensorflow.build. There is no GPU here: the library is compiled against this TensorFlow's headers,
and the kernels that GPUs have run on the CPU."""
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from horovod.common import built_streams
from horovod.tensorflow import _streams, build

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture(autouse=True)
def only_once(size):
    if size > 1:
        pytest.skip("starts jobs of its own")


def run_job(*arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    command = [os.environ.get("HOROVODRUN", "horovodrun"), "-np", "2", "--oversubscribe", sys.executable,
               os.path.join(HERE, "on_streams.py"), *arguments]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0 and found.stdout.count("all are right") == 2, found.stdout + found.stderr
    return found.stdout + found.stderr


def test_operations_find_their_stream_by_the_library_for_this_tensorflow(tmp_path, monkeypatch):
    path = str(tmp_path / "made" / "streams.so")
    umask = os.umask(0o002)
    build.compile_to(path)
    os.umask(umask)
    assert os.listdir(tmp_path / "made") == ["streams.so"]
    run_job(path)
    os.chmod(path, 0o775)
    with pytest.raises(OSError, match=f"{path} may be written by other users"):
        _streams.load(path)
    os.chmod(path, 0o755)
    monkeypatch.setattr(_streams, "identity", lambda: "another")
    with pytest.raises(OSError, match=f"was built for TensorFlow {tf.version.VERSION}.* this is another"):
        _streams.load(path)


def test_a_library_of_another_source_of_the_same_version_is_not_taken(tmp_path, monkeypatch):
    identity, path = _streams.identity(), _streams.library_path()
    with open(_streams.SOURCE, encoding="utf-8") as source:
        (tmp_path / "streams.cc").write_text(source.read() + "// changed\n")
    monkeypatch.setattr(_streams, "SOURCE", str(tmp_path / "streams.cc"))
    assert identity != _streams.identity() and path != _streams.library_path()
    assert os.path.dirname(path) == os.path.dirname(_streams.library_path())


def test_without_the_library_one_notice_of_a_node_says_how_to_get_it():
    assert run_job().count("are copied through the host's memory, which is slow: the test wants it") == 1


def test_the_command_builds_for_gpus_alone_and_says_what_it_lacks(tmp_path, monkeypatch, capsys):
    cache, never = tmp_path / "cache", str(tmp_path / "never.so")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    assert build.main([]) == 0
    for_gpus = _streams.kind_of_gpus() is not None
    expected = f"built for TensorFlow {tf.version.VERSION}: {cache}/" if for_gpus else "CPUs: nothing needs to be built"
    assert expected in capsys.readouterr().out and cache.exists() == for_gpus
    assert build.main(["--remove"]) == 0 and built_streams.versions() == []
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(SystemExit, match=r"no C\+\+ compiler was found: expected \$CXX, which is no-such-compiler"):
        build.compile_to(never)
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(SystemExit, match=r"failed \(exit code 1\): the headers of TensorFlow"):
        build.compile_to(never)
    with pytest.raises(SystemExit, match="lacks headers that are needed: tensorflow/core/framework/op_kernel.h"):
        build._check_headers(str(tmp_path))
    (tmp_path / "file").touch()
    monkeypatch.setenv("CXX", "true")
    with pytest.raises(SystemExit, match="file"):
        build.compile_to(str(tmp_path / "file" / "streams.so"))
    assert not os.path.exists(never)
