"""An elastic training that knows its result: the sum of its steps, with any ranks. Processes end where FAULTS says.

FAULTS: "PHASE RANK STEP CAUSE", several separated by semicolons. The first process that gets there ends so, once in the
job. Phases: start (before hvd.init), call (in it), meeting (in it, after the ranks were assigned), again (in a later
hvd.init, likewise), step (in an operation), commit, reset, end (after the training). RANK counts modulo the size, STEP
is the least step; both matter only in a step or commit. CAUSE: a signal, exit or exception. A process that is stopped
(SIGSTOP) ends when horovodrun has waited for it. LIVE: 1 for a live state.
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


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def end_in_meeting(cause, number):
    """A rank opens its sockets when it knows its place, so their number tells that the ranks meet."""
    while not hvd.is_initialized() and descriptors() < number:
        pass
    end_by(cause)


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
        if not is_mine(number, phase, step):
            continue
        # A rank that trains alone may be stopped for as long as it likes: no other rank waits for it.
        is_alone = phase in ("step", "commit", "reset") and hvd.size() == 1
        cause = "SIGKILL" if is_alone and fault[3] == "SIGSTOP" else fault[3]
        if phase in ("meeting", "again"):
            # One more is open when this process waits for its rank: the connection to horovodrun, which it keeps.
            more = int(fault[1]) + (2 if phase == "meeting" else 1)
            threading.Thread(target=end_in_meeting, args=(cause, descriptors() + more), daemon=True).start()
        elif phase in ("call", "step") and cause != "exception":
            threading.Timer(0.002, end_by, [cause]).start()  # a moment later, in the middle of what comes now
        else:
            end_by(cause)


class State(hvd.elastic.TorchState):
    def restore(self):
        super().restore()
        if hvd.is_initialized():
            threading.Thread(target=self.end_in_next_meeting, daemon=True).start()

    @staticmethod
    def end_in_next_meeting():
        while hvd.is_initialized():  # until hvd.shutdown() of the reset
            time.sleep(0.0001)
        end_in("again")


end_in("start")
end_in("call")
end_in("meeting")
hvd.init()


def weight():
    model = torch.nn.Linear(1, 1, bias=False).double()
    torch.nn.init.zeros_(model.weight)
    return model


def stepping(model, name, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, **options)
    return hvd.DistributedOptimizer(optimizer, named_parameters=[(name, model.weight)])


@hvd.elastic.run
def train(state):
    while state.step < STEPS:
        end_in("step", state.step)
        gradient = -torch.tensor([[state.step + 1.0]], dtype=torch.float64)
        for model, optimizer in ((state.plain, state.first), (state.rolling, state.second)):
            optimizer.zero_grad()
            model(gradient).sum().backward()
            optimizer.step()
        state.total += hvd.allreduce(torch.tensor([state.step + 1.0]), op=hvd.Average, name="step").item()
        state.step += 1
        time.sleep(0.005)
        if state.step % COMMIT == 0:
            end_in("commit", state.step)
            state.commit()


plain, rolling = weight(), weight()
state = State(plain=plain, rolling=rolling, first=stepping(plain, "plain"),
              second=stepping(rolling, "rolling", momentum=0.5), step=0, total=0.0,
              live=os.environ.get("LIVE") == "1", commits_per_copy=2)
state.register_reset_callbacks([lambda: end_in("reset")])
train(state)
print(f"done {state.step} {state.total} {plain.weight.item()!r} {rolling.weight.item()!r}", flush=True)
end_in("end")
sys.exit(0)
