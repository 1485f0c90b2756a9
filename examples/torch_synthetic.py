"""How fast a network trains on made-up data, on 1 rank and on many.

    horovodrun -np 4 python examples/torch_synthetic.py --layers 8 --width 1024
    horovodrun -np 4 python examples/torch_synthetic.py --zero-in-place --gradient-views
"""
import argparse
import time

import torch

import horovod.torch as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--width", type=int, default=512)
parser.add_argument("--batch-size", type=int, default=32, help="rows per rank and step")
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--warmup-steps", type=int, default=5)
parser.add_argument("--fp16-allreduce", action="store_true", help="communicate gradients as float16")
parser.add_argument("--gradient-views", action="store_true",
                    help="keep gradients in memory that the node's ranks share")
parser.add_argument("--zero-in-place", action="store_true", help="zero_grad(set_to_none=False): gradients keep their "
                                                                 "memory")
arguments = parser.parse_args()

hvd.init()
torch.manual_seed(hvd.rank())
layers = []
for _ in range(arguments.layers):
    layers += [torch.nn.Linear(arguments.width, arguments.width), torch.nn.ReLU()]
model = torch.nn.Sequential(*layers, torch.nn.Linear(arguments.width, 10))
rows = torch.randn(arguments.batch_size, arguments.width)
labels = torch.randint(0, 10, (arguments.batch_size,))

optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), gradient_views=arguments.gradient_views,
    compression=hvd.Compression.fp16 if arguments.fp16_allreduce else hvd.Compression.none)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)


def step():
    optimizer.zero_grad(set_to_none=not arguments.zero_in_place)
    torch.nn.functional.cross_entropy(model(rows), labels).backward()
    optimizer.step()


for _ in range(arguments.warmup_steps):
    step()
hvd.barrier()
start = time.perf_counter()
for _ in range(arguments.steps):
    step()
rate = torch.tensor([arguments.batch_size * arguments.steps / (time.perf_counter() - start)])
total = hvd.allreduce(rate, op=hvd.Sum, name="rate")
if hvd.rank() == 0:
    bytes_reduced = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    print(f"{hvd.size()} ranks, {bytes_reduced / 1e6:.1f} MB of gradients: {total.item():,.0f} rows/s in all, "
          f"{total.item() / hvd.size():,.0f} rows/s per rank")
