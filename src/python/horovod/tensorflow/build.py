"""Builds what lets operations take tensors of GPUs where they are, for the TensorFlow that is installed.

    python -m horovod.tensorflow.build            once for each build of TensorFlow and of Horovod
    python -m horovod.tensorflow.build --remove   tensors of GPUs go through the host's memory again

Without it operations copy such tensors through the host's memory. It needs a C++ compiler ($CXX, or the first of c++,
g++ and clang++ along PATH) and no toolkit of CUDA or ROCm. The library is kept in $XDG_CACHE_HOME/horovod, by default
~/.cache/horovod. All nodes of a job need it, or none: share that folder, or build on each node.
"""
import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

import tensorflow as tf

from horovod.tensorflow import _streams

_HEADERS = ("tensorflow/core/framework/op_kernel.h", "xla/stream_executor/stream.h")


def _compiler():
    named = os.environ.get("CXX")
    for command in [shlex.split(named)] if named else [["c++"], ["g++"], ["clang++"]]:
        if command and shutil.which(command[0]):
            return command
    expected = f"$CXX, which is {named}" if named else "c++, g++ or clang++ along PATH"
    raise SystemExit(f"error: no C++ compiler was found: expected {expected}. Install one, or name one by CXX")


def _check_headers(folder):
    missing = [header for header in _HEADERS if not os.path.exists(os.path.join(folder, header))]
    if missing:
        raise SystemExit(f"error: TensorFlow {tf.version.VERSION} lacks headers that are needed: {', '.join(missing)} "
                         f"in {folder}. The wheels of TensorFlow 2.15 and later have them. Until then tensors of GPUs "
                         "go through the host's memory")


def compile_to(path):
    """Compiles the library and puts it to this path. SystemExit: why that is not possible."""
    _check_headers(tf.sysconfig.get_include())
    command = [*_compiler(), "-w", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", *tf.sysconfig.get_compile_flags(),
               f'-DHOROVOD_BUILT_FOR="{_streams.identity()}"', _streams.SOURCE]
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.chmod(os.path.dirname(path), 0o755)  # _streams.load() wants that, and the umask may allow more
        with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as folder:
            made = os.path.join(folder, "streams.so")
            command += ["-o", made, *tf.sysconfig.get_link_flags(), "-Wl,-z,defs"]
            built = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if built.returncode != 0:
                last = "\n".join(built.stdout.splitlines()[-20:])
                raise SystemExit(f"{last}\nerror: {shlex.join(command)} failed (exit code {built.returncode}): the "
                                 f"headers of TensorFlow {tf.version.VERSION} do not fit this source, or the compiler "
                                 "is too old for them (C++17)")
            os.chmod(made, 0o755)
            _streams.load(made)
            os.replace(made, path)
    except OSError as error:
        raise SystemExit(f"error: {error}") from None


def main(arguments=None):
    parser = argparse.ArgumentParser(prog=_streams.COMMAND, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remove", action="store_true", help="removes what was built for this version of TensorFlow")
    wanted = parser.parse_args(arguments)
    path = _streams.library_path()
    if wanted.remove:
        shutil.rmtree(os.path.dirname(path), ignore_errors=True)
        print(f"removed: {os.path.dirname(path)}")
    elif _streams.kind_of_gpus() is None:
        print(f"TensorFlow {tf.version.VERSION} is built for CPUs: nothing needs to be built")
    else:
        compile_to(path)
        print(f"built for TensorFlow {tf.version.VERSION}: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
