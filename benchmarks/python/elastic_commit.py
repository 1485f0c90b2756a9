"""What a commit costs, on the ranks of an elastic job: prints its parts beside one copy of the same memory."""
import statistics
import time

import torch

import horovod.torch as hvd

MEGABYTES, TIMES = 100, 40


def median_of(do):
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        do()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


hvd.init()
elements = MEGABYTES * 1_000_000 // 4
model = torch.nn.ParameterDict({"all": torch.nn.Parameter(torch.ones(elements))})
state = hvd.elastic.TorchState(model, step=0)
source, target = torch.ones(elements), torch.zeros(elements)
state.commit()
copying = median_of(lambda: target.copy_(source))
saving = median_of(state.save)
hvd.barrier()
asking = median_of(state.check_host_updates)
committing = median_of(state.commit)
if hvd.rank() == 0:
    print(f"| {hvd.size()} | {1e3 * copying:.1f} ms | {1e3 * saving:.1f} ms | {1e3 * asking:.2f} ms | "
          f"{1e3 * committing:.1f} ms | {committing / copying:.2f} |", flush=True)
