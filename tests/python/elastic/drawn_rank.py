"""An elastic training that knows its result: the sum of its steps, whoever trains. Processes end where FAULTS says.

FAULTS: "PHASE RANK STEP CAUSE", several separated by semicolons. The first process that gets there ends so, once in the
job. Phases: start (before hvd.init), meeting (in it), step (in an operation), commit, reset, end (after the training).
RANK counts modulo the size, STEP is the least step; both matter only in a step or commit.
"""
import os
import signal
import sys
import threading
import time

import horovod.torch as hvd
import torch

STEPS, COMMIT = 30, 3
FAULTS = [each.split() for each in os.environ["FAULTS"].split(";") if each]


def end_by(cause):
    if cause == "exception":
        raise ArithmeticError("an error of the program")
    if cause == "exit":
        os._exit(7)
    os.kill(os.getpid(), getattr(signal, cause))
    time.sleep(60)


def is_mine(number, phase, step):
    wanted, rank, least, _ = FAULTS[number]
    if wanted != phase:
        return False
    if phase in ("step", "commit") and (step < int(least) or hvd.rank() != int(rank) % hvd.size()):
        return False
    try:
        open(f"fault.{number}", "x", encoding="utf-8").close()
    except FileExistsError:
        return False
    return True


def end_in(phase, step=0):
    for number, fault in enumerate(FAULTS):
        if is_mine(number, phase, step):
            if phase not in ("meeting", "step") or fault[3] == "exception":
                end_by(fault[3])
            # a moment later, in the middle of what comes now
            threading.Timer(0.002, end_by, [fault[3]]).start()


end_in("start")
end_in("meeting")
hvd.init()


@hvd.elastic.run
def train(state):
    while state.step < STEPS:
        end_in("step", state.step)
        state.total += hvd.allreduce(torch.tensor([state.step + 1.0]), op=hvd.Average, name="step").item()
        state.step += 1
        time.sleep(0.005)
        if state.step % COMMIT == 0:
            end_in("commit", state.step)
            state.commit()


state = hvd.elastic.TorchState(step=0, total=0.0)
state.register_reset_callbacks([lambda: end_in("reset")])
train(state)
print(f"done {state.step} {state.total}", flush=True)
end_in("end")
sys.exit(0)
