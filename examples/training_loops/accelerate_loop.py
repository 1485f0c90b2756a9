"""A loop over Hugging Face's Accelerate on several ranks: accumulation, clipping, a schedule, mixed precision,
checkpoints.

    horovodrun -np 2 python examples/training_loops/accelerate_loop.py

One process is the same training: `python examples/training_loops/accelerate_loop.py`.
"""
import argparse
import os
import pathlib

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import horovod.torch as hvd

hvd.init()
# Without this, Accelerate would recognise these launchers and make torch.distributed's processes of the ranks.
for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "WORLD_SIZE", "LOCAL_RANK"):
    os.environ.pop(name, None)

from accelerate import Accelerator, PartialState  # noqa: E402
from accelerate.utils import set_seed  # noqa: E402

# Accelerate takes the GPU that is current. It believes that each rank is alone. Therefore rank 0 does what only the
# main process prints and saves.
on_gpu = hvd.local_device() is not None and torch.cuda.is_available()
if on_gpu:
    torch.cuda.set_device(hvd.local_device())
state = PartialState(cpu=not on_gpu)
state.process_index, state.local_process_index = hvd.rank(), hvd.local_rank()


def make_data(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 16, generator=generator)
    return TensorDataset(x, (x[:, :4].sum(1) * 2).long() % 4)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="accelerate_output", help="folder of checkpoints")
    parser.add_argument("--batch-size", type=int, default=8, help="rows per backward pass, of all ranks together")
    parser.add_argument("--accumulate", type=int, default=1, help="backward passes per step")
    parser.add_argument("--precision", default="no", choices=["no", "bf16"])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--resume", help="a checkpoint to go on from, made at the end of an epoch")
    parser.add_argument("--parameters", help="file for the parameters of each rank; %%d stands for its number")
    options = parser.parse_args()

    accelerator = Accelerator(cpu=not on_gpu, gradient_accumulation_steps=options.accumulate,
                              mixed_precision=options.precision)
    set_seed(42)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
    model.to(accelerator.device)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-2), model.named_parameters(),
                                         backward_passes_per_step=options.accumulate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    data, test = make_data(88, 1), make_data(32, 2)
    sampler = DistributedSampler(data, hvd.size(), hvd.rank(), seed=42)
    loader = DataLoader(data, options.batch_size // hvd.size(), sampler=sampler)
    test_loader = DataLoader(test, 8, sampler=DistributedSampler(test, hvd.size(), hvd.rank(), shuffle=False))
    model, prepared, loader, test_loader, schedule = accelerator.prepare(model, optimizer, loader, test_loader,
                                                                         schedule)
    first_epoch = 0
    if options.resume:
        accelerator.load_state(options.resume)
        first_epoch = int(pathlib.Path(options.resume).name.split("_")[1])

    for epoch in range(first_epoch, options.epochs):
        loader.set_epoch(epoch)
        model.train()
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    optimizer.synchronize()  # a step is also made at the end of an epoch that has too few passes for it
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                with optimizer.skip_synchronize():
                    prepared.step()
                schedule.step()
                prepared.zero_grad()
        model.eval()
        with torch.no_grad():
            correct = sum((model(x).argmax(1) == y).sum() for x, y in test_loader)
        correct = hvd.allreduce(correct, op=hvd.Sum, name="correct")
        loss = hvd.allreduce(loss.detach(), name="loss")
        accelerator.print(f"epoch {epoch + 1}: loss {loss:.4f}, {correct} of {len(test)} right")
        folder = pathlib.Path(options.output) / f"epoch_{epoch + 1}"
        folder.mkdir(parents=True, exist_ok=True)
        accelerator.save_state(folder)
        hvd.barrier()
    if options.parameters:
        torch.save(model.state_dict(), options.parameters.replace("%d", str(hvd.rank())))


if __name__ == "__main__":
    main()
