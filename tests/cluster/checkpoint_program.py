"""A rank of a training that will be killed: checkpoint_program.py FOLDER NOTES until-killed|once HOW

Goes on from the newest checkpoint in FOLDER and saves step after step, while it trains; with `once` it only goes on.
HOW: asynchronous (rank 0 writes what all ranks have) or sharded (each rank has tensors of its own). Each rank appends a
line to the file NOTES: "from STEP" when it has restored, "saved STEP" when that checkpoint has to be safe.
"""
import os
import sys

import torch

import horovod.torch as hvd

folder, notes_path, mode, how = sys.argv[1:]
hvd.init()
notes = os.open(notes_path, os.O_WRONLY | os.O_APPEND)
model = torch.nn.Linear(1000, 1000)


def note(what, step):
    os.write(notes, f"{what} {step}\n".encode())


def value_of(step):
    return float(8 * step + (hvd.rank() if how == "sharded" else 0))


checkpointer = hvd.checkpoint.Checkpointer(folder, model, keep=2, sharded=how == "sharded")
step = checkpointer.restore()["step"] or 0
if step:
    for name, tensor in model.state_dict().items():
        assert bool((tensor == value_of(step)).all()), f"{name} is not that of step {step}: {tensor}"
note("from", step)
while mode != "once":
    step += 1
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value_of(step))
    hvd.allreduce(torch.ones(1000), name="gradients")
    checkpointer.save(step)  # returns when the previous checkpoint is safe and the state of this one was copied
    if step - 1 > (checkpointer.restored_step or 0):
        note("saved", step - 1)
checkpointer.close()
