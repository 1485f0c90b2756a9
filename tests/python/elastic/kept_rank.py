"""An elastic training of 12 steps with a Checkpointer. LOSES: in step 8 rank 1 ends, and its replacements end at once,
so that the job has too few ranks."""
import os
import signal
import sys

LOSES = "LOSES" in os.environ
if LOSES and os.path.exists("is.lost"):
    sys.exit(3)

import horovod.torch as hvd
import torch

hvd.init()
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(model.weight)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5),
                                     named_parameters=model.named_parameters())
checkpointer = hvd.checkpoint.Checkpointer("run", model, optimizer, every_steps=5)


@hvd.elastic.run
def train(state):
    if state.step is None:
        found = checkpointer.restore()
        state.step, state.seen = found["step"] or 0, found.get("seen", "")
        print(f"begins with step {state.step}", flush=True)
    while state.step < 12:
        state.optimizer.zero_grad()
        state.model(torch.ones(1, 1)).sum().backward()
        if LOSES and state.step == 7 and hvd.rank() == 1:
            open("is.lost", "x", encoding="utf-8").close()
            os.kill(os.getpid(), signal.SIGKILL)
        state.optimizer.step()
        state.step += 1
        state.seen += str(state.step % 10)
        checkpointer.step(state.step, extra={"seen": state.seen})
        if state.step % 3 == 0:
            state.commit()
    checkpointer.close()


kept = {} if "WITHOUT" in os.environ else {"checkpointer": checkpointer}
state = hvd.elastic.TorchState(model, optimizer, step=None, seen="", **kept)
train(state)
print("done", state.step, state.seen, model.weight.item(), flush=True)
