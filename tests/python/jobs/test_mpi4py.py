"""Programs that use mpi4py themselves, under the launchers of MPICH and Open MPI."""
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("mpi4py", reason="mpi4py is not installed")

OPEN_MPI = ["--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
LAUNCHERS = {"mpich": (("mpiexec.mpich", "mpiexec.hydra"), []), "openmpi": (("mpiexec.openmpi", "orterun"), OPEN_MPI)}


@pytest.fixture(params=LAUNCHERS)
def mpiexec(request, tmp_path):
    """A function that runs a program in `ranks` processes of one MPI, and returns the output."""
    names, options = LAUNCHERS[request.param]
    launcher = next(filter(None, map(shutil.which, names)), None)
    if launcher is None:
        pytest.skip(f"{' and '.join(names)} are not installed")
    environment = dict(os.environ, MPI4PY_MPIABI=request.param, OMP_NUM_THREADS="1")
    if request.param == "mpich":
        # mpi4py looks for the library under MPICH's own name for it. Debian has renamed the library.
        debian = pathlib.Path("/usr/lib/x86_64-linux-gnu/libmpich.so.12")
        if debian.exists():
            (tmp_path / "libmpi.so.12").symlink_to(debian)
            environment["LD_LIBRARY_PATH"] = f"{tmp_path}:{environment.get('LD_LIBRARY_PATH', '')}"

    def run(ranks, program):
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(program))
        command = [launcher, *options, "-n", str(ranks), sys.executable, str(path)]
        ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               timeout=240)
        assert ended.returncode == 0, ended.stdout
        return ended.stdout

    return run


def test_its_own_alltoall_between_the_steps(mpiexec):
    output = mpiexec(2, """
        from mpi4py import MPI
        import torch
        import horovod.torch as hvd

        world = MPI.COMM_WORLD
        hvd.init(comm=world)
        assert (hvd.rank(), hvd.size()) == (world.rank, world.size)
        assert hvd.mpi_enabled() and hvd.mpi_threads_supported()
        assert hvd.global_process_set.mpi_comm is world
        torch.manual_seed(world.rank)
        model = torch.nn.Linear(4, 1)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                             named_parameters=model.named_parameters())
        for step in range(5):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).sum().backward()
            assert world.alltoall([(world.rank, to) for to in range(world.size)]) == [
                (sender, world.rank) for sender in range(world.size)]
            optimizer.step()
        assert len(set(world.allgather(tuple(model.weight.flatten().tolist())))) == 1
        hvd.shutdown()
        hvd.init()  # without a communicator: the world that is there
        assert hvd.size() == world.size and hvd.mpi_enabled()
        print("done", flush=True)
        """)
    assert output.count("done") == 2


def test_two_halves_train_different_models(mpiexec):
    output = mpiexec(4, """
        from mpi4py import MPI
        import torch
        import horovod.torch as hvd

        world = MPI.COMM_WORLD
        color = world.rank // 2
        half = world.Split(color)
        hvd.init(comm=half)
        half.Free()
        assert hvd.size() == 2 and hvd.rank() == world.rank % 2
        torch.manual_seed(world.rank)
        model = torch.nn.Linear(3 + color, 1)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                             named_parameters=model.named_parameters())
        for step in range(3 + 4 * color):
            optimizer.zero_grad()
            model(torch.randn(8, 3 + color)).sum().backward()
            optimizer.step()
        weights = world.allgather(tuple(model.weight.flatten().tolist()))
        assert weights[0] == weights[1] and weights[2] == weights[3]
        hvd.shutdown()
        if world.rank in (0, 3):
            hvd.init(comm=[3, 0])
            assert hvd.rank() == (1 if world.rank == 0 else 0)
            assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [2.0, 2.0]
            hvd.shutdown()
        else:
            try:
                hvd.init(comm=[3, 0])
            except ValueError as error:
                assert "not in the list" in str(error)
            else:
                raise AssertionError("init by one who is not in the list")
        print("done", flush=True)
        """)
    assert output.count("done") == 4
