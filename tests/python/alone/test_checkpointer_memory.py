"""An asynchronous Checkpointer needs memory for one copy of the state, and reports the size of the copy."""
import torch

import horovod.torch as hvd

MEGABYTE = 1 << 20
BESIDES = 24 * MEGABYTE  # memory that HDF5, buffers and a thread need besides


def memory_of_process(what):
    """Returns VmRSS, or VmHWM, which is the greatest VmRSS since begin_peak(). In bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(what))


def begin_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def test_it_is_one_copy_however_often_it_saves(tmp_path):
    hvd.init()
    model = torch.nn.Linear(4096, 4096)
    optimizer = torch.optim.Adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    size = 3 * sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    begin_peak()
    before = memory_of_process("VmRSS")
    with hvd.checkpoint.Checkpointer(tmp_path / "run", model, optimizer, keep=1) as checkpointer:
        for step in range(1, 5):
            checkpointer.save(step)
            assert size <= checkpointer.snapshot_bytes <= size + MEGABYTE
        checkpointer.wait()
        assert memory_of_process("VmHWM") - before <= checkpointer.snapshot_bytes + BESIDES
    assert memory_of_process("VmRSS") - before <= BESIDES, "close() gives the memory back"
