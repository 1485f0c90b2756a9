"""Real jobs save a checkpoint in shards, and jobs with another number of ranks restore it. The nodes are made up: each
pair of ranks has a host name of its own. alone/test_shards_on_other_ranks.py tests many more numbers of ranks, and
errors."""
import os
import subprocess
import sys
import textwrap

HOROVODRUN = os.environ.get("HOROVODRUN", "horovodrun")

# A model of six layers of which every rank has some, with a layer that all ranks have, and a table of 12 rows of which
# every rank has a slice. The values of a tensor show whether it is the right part of the right layer.
MODEL = """
    import os, sys
    import torch
    import horovod.torch as hvd
    from horovod.checkpoint import sharded

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    sharded.socket.gethostname = lambda: f"node-{rank // 2}"
    layers = [layer for layer in range(6) if layer * size // 6 == rank]
    rows = range(12 * rank // size, 12 * (rank + 1) // size)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleDict({str(layer): torch.nn.Linear(3, layer + 1) for layer in layers})
            self.shared = torch.nn.Linear(5, 4)
            self.table = torch.nn.Parameter(torch.zeros(len(rows), 7))
            self.register_buffer("scale", torch.tensor(0.0))

    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.25)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)

    def value_of(name):
        if name == "table":
            return torch.tensor([[100.0 * row + column for column in range(7)] for row in rows])
        layer = int(name.split(".")[1]) if name.startswith("layers") else 9
        return torch.full(dict(model.named_parameters())[name].shape, layer + (0.5 if "bias" in name else 0.25))

    def save(**options):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(value_of(name))
                parameter.grad = torch.zeros_like(parameter)
            model.scale.fill_(3)
        optimizer.step()
        for name, parameter in model.named_parameters():
            optimizer.state[parameter]["exp_avg"].copy_(value_of(name) + 1000)
        scheduler.step()
        scheduler.step()
        hvd.checkpoint.save("run.h5", model, optimizer, step=8, scheduler=scheduler, extra={"loss": float(rank)},
                            **options)

    def check(rest):
        assert rest == {"step": 8, "loss": 0.0}, rest
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, value_of(name)), (name, parameter)
            moment = optimizer.state[parameter]["exp_avg"]
            assert torch.equal(moment, value_of(name) + 1000), (name, moment)
            assert optimizer.state[parameter]["step"] == 1
        assert model.scale == 3 and scheduler.last_epoch == 2
        assert optimizer.param_groups[0]["betas"] == (0.9, 0.999)
"""


def run(folder, ranks, text):
    program = folder / "program.py"
    program.write_text(textwrap.dedent(MODEL) + textwrap.dedent(text))
    ran = subprocess.run([HOROVODRUN, "-np", str(ranks), sys.executable, str(program)], cwd=folder, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200)
    assert ran.returncode == 0, ran.stdout


RESTORE = 'check(hvd.checkpoint.restore("run.h5", model, optimizer, scheduler=scheduler))'


def test_any_number_of_ranks_goes_on_from_the_shards_of_four(tmp_path):
    run(tmp_path, 4, 'save(sharded={"table": 0}, compression="gzip:1")')
    assert len(os.listdir(tmp_path / "run.h5.shards")) == 2
    for ranks in (2, 3, 1):
        run(tmp_path, ranks, RESTORE)
