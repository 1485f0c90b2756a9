"""Lightning's Trainer on several ranks: a module as Lightning's users write it, and a strategy that makes the ranks one
job.

    horovodrun -np 2 python examples/training_loops/lightning_module.py

One process is the same training: `python examples/training_loops/lightning_module.py`.
"""
import argparse

import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import ParallelStrategy
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch as hvd


class HorovodStrategy(ParallelStrategy):
    """A strategy of Lightning with one rank per device. Gradients, logged values and checkpoints are those of all
    ranks."""

    is_distributed = True  # so Lightning divides the data among the ranks, and averages what is logged with sync_dist

    def __init__(self):
        # otherwise Lightning would ask MPI, and thereby start it
        super().__init__(cluster_environment=LightningEnvironment())
        self.cluster_environment.set_global_rank(hvd.rank())
        self.cluster_environment.set_world_size(hvd.size())

    @property
    def root_device(self):
        return self.parallel_devices[0]

    @property
    def distributed_sampler_kwargs(self):
        return {"num_replicas": hvd.size(), "rank": hvd.rank()}

    def model_to_device(self):
        self.model.to(self.root_device)
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)

    def setup_optimizers(self, trainer):
        super().setup_optimizers(trainer)
        for optimizer in self.optimizers:
            hvd.DistributedOptimizer(optimizer, self.model.named_parameters())

    def on_train_batch_start(self, batch, batch_idx):
        # a callback may change the gradient accumulation
        passes = self.lightning_module.trainer.accumulate_grad_batches
        if batch_idx % passes == 0:
            for optimizer in self.optimizers:
                optimizer.set_backward_passes_per_step(passes)

    def optimizer_step(self, optimizer, closure, *args, **kwargs):
        # The closure runs the last backward pass of the step, then it clips. The last step of an epoch has fewer passes
        # before.
        optimizer.set_backward_passes_per_step(1)
        return super().optimizer_step(optimizer, closure, *args, **kwargs)

    def reduce(self, tensor, group=None, reduce_op="mean"):
        if not isinstance(tensor, torch.Tensor):
            return tensor
        ops = {"mean": hvd.Average, "avg": hvd.Average, "sum": hvd.Sum, "min": hvd.Min, "max": hvd.Max}
        return hvd.allreduce(tensor, op=ops[getattr(reduce_op, "name", reduce_op).lower()])

    def all_gather(self, tensor, group=None, sync_grads=False):
        return hvd.allgather(tensor.unsqueeze(0))

    def broadcast(self, obj, src=0):
        return hvd.broadcast_object(obj, src)

    def barrier(self, name=None):
        hvd.barrier()


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))

    def training_step(self, batch, _):
        x, y = batch
        loss = F.cross_entropy(self.network(x), y)
        self.log("loss", loss, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        found = self.network(x)
        self.log("test_loss", F.cross_entropy(found, y), sync_dist=True)
        self.log("accuracy", (found.argmax(1) == y).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def make_loader(count, seed, batch_size, shuffle=False):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 16, generator=generator)
    return DataLoader(TensorDataset(x, (x[:, :4].sum(1) * 2).long() % 4), batch_size, shuffle)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="lightning_output", help="folder of checkpoints")
    parser.add_argument("--batch-size", type=int, default=8, help="rows per backward pass, of all ranks together")
    parser.add_argument("--accumulate", type=int, default=1, help="backward passes per step")
    parser.add_argument("--precision", default="32-true", choices=["32-true", "bf16-mixed"])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--resume", help="a checkpoint to go on from")
    parser.add_argument("--parameters", help="file for the parameters of each rank; %%d stands for its number")
    options = parser.parse_args()

    hvd.init()
    seed_everything(42)
    module = Module()
    gpu = hvd.local_device() if torch.cuda.is_available() else None
    trainer = Trainer(strategy=HorovodStrategy(), accelerator="cpu" if gpu is None else "gpu",
                      devices=1 if gpu is None else [gpu], max_epochs=options.epochs, gradient_clip_val=1.0,
                      accumulate_grad_batches=options.accumulate, precision=options.precision,
                      default_root_dir=options.output, logger=False, log_every_n_steps=1,
                      callbacks=[ModelCheckpoint(options.output, "epoch_{epoch}", auto_insert_metric_name=False,
                                                 monitor="test_loss", save_top_k=-1)])
    batch_size = options.batch_size // hvd.size()
    trainer.fit(module, make_loader(88, 1, batch_size, True), make_loader(32, 2, batch_size), ckpt_path=options.resume)
    if hvd.rank() == 0:
        print({name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()})
    if options.parameters:
        torch.save(module.state_dict(), options.parameters.replace("%d", str(hvd.rank())))


if __name__ == "__main__":
    main()
