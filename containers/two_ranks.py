"""The test of an image: ranks find each other and average by PyTorch. Each rank prints where it ran, and over which
links."""
import socket

import torch

import horovod.torch as hvd

hvd.init()
ranks = torch.arange(1000, dtype=torch.float32) + hvd.rank()
average = hvd.allreduce(ranks, name="ranks")
expected = torch.arange(1000, dtype=torch.float32) + (hvd.size() - 1) / 2
if not torch.equal(average, expected):
    raise SystemExit(f"rank {hvd.rank()}: the average is {average[:4]}…, expected {expected[:4]}…")
print(f"rank {hvd.rank()} of {hvd.size()} on {socket.gethostname()}: average is right", flush=True)
hvd.shutdown()
