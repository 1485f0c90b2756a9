"""In the training loops of examples/training_loops, two ranks train as one process does, with each loop's defaults."""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch

FOLDER = pathlib.Path(__file__).parents[3] / "examples" / "training_loops"
# Loop -> the package that it imports, and the checkpoint in the middle of the training.
LOOPS = {"huggingface_trainer": ("transformers", "checkpoint-10"), "accelerate_loop": ("accelerate", "epoch_1"),
         "lightning_module": ("lightning", "epoch_0.ckpt")}
MIXED_PRECISION = {"huggingface_trainer": ["--bf16"], "accelerate_loop": ["--precision", "bf16"],
                   "lightning_module": ["--precision", "bf16-mixed"]}
# An epoch has 11 batches, so that its last step has two passes instead of three.
ACCUMULATION = ["--accumulate", "3"]


class Trained:
    def __init__(self, output, folder, ranks):
        self.output = output
        self.folder = folder / "checkpoints"
        self.parameters = [torch.load(folder / str(rank), "cpu", weights_only=True) for rank in range(ranks)]


@pytest.fixture(params=LOOPS)
def loop(request):
    package, _ = LOOPS[request.param]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed (tests/run --label loops installs it)")
    return request.param


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A function that trains with a loop on some number of ranks. A training that was done before is not repeated."""
    known = {}

    def train(loop, ranks, *options, variables=()):
        key = (loop, ranks, options, variables)
        if key not in known:
            folder = tmp_path_factory.mktemp(loop)
            command = [sys.executable, str(FOLDER / f"{loop}.py"), "--output", str(folder / "checkpoints"),
                       "--parameters", str(folder / "%d"), *options]
            if ranks > 1:
                launcher = os.environ.get("HOROVODRUN", "horovodrun")
                command = [launcher, "-np", str(ranks), "env", *variables, *command]
            ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
                                   cwd=folder, env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"})
            assert ended.returncode == 0, ended.stdout
            known[key] = Trained(ended.stdout, folder, ranks)
        return known[key]

    return train


def assert_equal_on_all_ranks(job):
    first, *others = job.parameters
    for other in others:
        assert first.keys() == other.keys() and all(torch.equal(first[name], other[name]) for name in first)


def assert_close(job, alone, **tolerance):
    for name, expected in alone.parameters[0].items():
        torch.testing.assert_close(job.parameters[0][name], expected, **tolerance)


@pytest.mark.parametrize("options", [[], ACCUMULATION], ids=["defaults", "accumulation"])
def test_two_ranks_train_as_one_process(loop, trained, options):
    job, alone = trained(loop, 2, *options), trained(loop, 1, *options)
    assert_equal_on_all_ranks(job)
    assert_close(job, alone, rtol=1e-4, atol=1e-5)


def test_mixed_precision(loop, trained):
    """In bfloat16 the sum of two halves differs from the sum of the whole in the third digit. The test allows for
    that."""
    options = MIXED_PRECISION[loop]
    job, alone = trained(loop, 2, *options), trained(loop, 1, *options)
    assert_equal_on_all_ranks(job)
    assert_close(job, alone, rtol=0, atol=2e-2)


def test_resumed_training_equals_training_at_one_go(loop, trained):
    whole = trained(loop, 2)
    _, checkpoint = LOOPS[loop]
    resumed = trained(loop, 2, "--resume", str(whole.folder / checkpoint))
    assert_equal_on_all_ranks(resumed)
    assert_close(resumed, whole, rtol=0, atol=0)


def losses(output):
    """All losses and all numbers of right answers in the output."""
    found = re.findall(r"loss(?:_step|_epoch)?'?:? '?([0-9.]+)|([0-9]+) of 32 right|'accuracy': ([0-9.]+)", output)
    assert found
    return found


def test_losses_and_metrics_are_those_of_all_ranks_and_rank_0_tells_them(loop, trained):
    output = trained(loop, 2).output
    assert "[0]<stdout>" in output and "[1]<stdout>" not in output
    assert losses(output) == losses(trained(loop, 1).output)


def test_we_have_nothing_to_complain_of(loop, trained):
    for options in [[], ACCUMULATION, MIXED_PRECISION[loop]]:
        output = trained(loop, 2, *options).output
        assert "horovod/" not in output and "HOROVOD_" not in output, output


def test_variables_of_other_launchers(loop, trained):
    variables = ("OMPI_COMM_WORLD_SIZE=2", "PMI_SIZE=2", "WORLD_SIZE=2", "RANK=0", "LOCAL_RANK=0", "SLURM_NTASKS=2",
                 "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NODEID=0", "SLURM_JOB_ID=1", "SLURM_JOB_NAME=job")
    job = trained(loop, 2, variables=variables)
    assert_equal_on_all_ranks(job)
    assert_close(job, trained(loop, 2), rtol=0, atol=0)
