"""An elastic training whose ranks end where the test wants it.

ENDS: "PHASE RANK SIZE", several separated by semicolons: once in the job, that rank (or "all") of a job of that size
ends in the phase: start, reduced, step, commit, reset or end. HOW: by SIGKILL if not set, "interrupt", or an exit code.
UNTIL_SIZE: it trains until the job has this size again. COMMIT: after how many steps it commits.
"""
import os
import signal
import sys

import horovod.torch as hvd
import torch

ENDS = [tuple(each.split()) for each in os.environ.get("ENDS", "").split(";") if each]
STEPS, COMMIT = 40, int(os.environ.get("COMMIT", "5"))


def end_in(phase):
    if (phase, "all", str(hvd.size())) in ENDS:
        sys.exit(7)
    if (phase, str(hvd.rank()), str(hvd.size())) not in ENDS:
        return
    try:
        open(f"has.ended.{phase}.{hvd.rank()}.{hvd.size()}", "x").close()
    except FileExistsError:
        return
    how = os.environ.get("HOW", "kill")
    if how == "interrupt":
        raise KeyboardInterrupt
    if how != "kill":
        sys.exit(int(how))
    os.kill(os.getpid(), signal.SIGKILL)


if os.environ.get("TRY_COMM"):
    try:
        hvd.init(comm=[0])
    except (ValueError, RuntimeError) as refusal:
        print("refused:", refusal, flush=True)
hvd.init()
device = hvd.local_device()  # a process chooses its GPU once
end_in("start")
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
                                     named_parameters=model.named_parameters())
furthest = 0


def is_done(state):
    return state.step >= STEPS and hvd.size() >= int(os.environ.get("UNTIL_SIZE", "1"))


@hvd.elastic.run
def train(state):
    global furthest
    if furthest > state.step:
        print(f"went back to the last commit, step {state.step} of {furthest}", flush=True)
    while not is_done(state):
        state.optimizer.zero_grad()
        state.model(torch.ones(2, 4)).square().mean().backward()
        state.optimizer.step()
        if state.step == 8:
            end_in("step")
        state.step += 1
        furthest = max(furthest, state.step)
        if state.step % COMMIT == 0:
            if state.step == 2 * COMMIT:
                end_in("commit")
            state.commit()
    end_in("end")


state = hvd.elastic.TorchState(model, optimizer, step=0)
# The gradients of this step are reduced; those on a GPU may still be under way.
optimizer.register_step_pre_hook(lambda *_: end_in("reduced") if state.step == 8 else None)
state.register_reset_callbacks([lambda: end_in("reset")])
train(state)
print("done", hvd.rank(), hvd.size(), state.step, [p.tolist() for p in model.parameters()], flush=True)
print("device", hvd.rank(), hvd.local_rank(), device, hvd.local_device(), flush=True)
