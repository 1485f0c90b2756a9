"""Hugging Face's Trainer on several ranks: a small language model, with the Trainer's defaults (gradients are clipped).

    horovodrun -np 2 python examples/training_loops/huggingface_trainer.py

One process is the same training: `python examples/training_loops/huggingface_trainer.py`.
"""
import argparse
import functools
import os
from unittest import mock

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import horovod.torch as hvd

hvd.init()
# The Trainer uses Accelerate. Without this, Accelerate would recognise these launchers and make torch.distributed's
# processes of the ranks.
for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "WORLD_SIZE", "LOCAL_RANK"):
    os.environ.pop(name, None)

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed  # noqa: E402
from torch.utils.data import DistributedSampler  # noqa: E402


class HorovodArguments(TrainingArguments):
    """Arguments of a Trainer that uses the GPU of its rank. By itself it takes the first GPU, and divides its batches
    among all GPUs that it sees."""

    @functools.cached_property
    def _setup_devices(self):
        with mock.patch("torch.cuda.set_device"):  # each rank would take memory of the first GPU
            device = super()._setup_devices
        if device.type == "cuda":
            self._n_gpu = 1
            device = torch.device("cuda", hvd.local_device())
            torch.cuda.set_device(device)
        return device


class HorovodTrainer(Trainer):
    """A Trainer whose ranks train together, although each rank's Trainer believes that it is alone."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)

    def create_optimizer(self, model=None):
        optimizer = super().create_optimizer(model)
        if not hasattr(self, "distributed"):
            self.distributed = hvd.DistributedOptimizer(optimizer, self.model.named_parameters())
        return optimizer

    # Gives each rank its share of the data. The shares are disjoint, and shuffled anew in every epoch.
    def _get_train_sampler(self, *args):
        return DistributedSampler(self.train_dataset, hvd.size(), hvd.rank(), seed=self.args.seed)

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        """Returns the batches of one step. The last step of an epoch may have fewer. The number of tokens is that of
        all ranks."""
        batches, tokens = super().get_batch_samples(epoch_iterator, num_batches, device)
        if batches:
            self.distributed.set_backward_passes_per_step(len(batches))
        if tokens is not None:
            tokens = hvd.allreduce(tokens.double(), name="tokens")
        return batches, tokens

    def log(self, logs, *args, **kwargs):
        """Logs the losses averaged over all ranks."""
        for key in logs.keys() & {"loss", "train_loss"}:
            logs[key] = hvd.allreduce(torch.tensor(logs[key], dtype=torch.float64), name=key).item()
        super().log(logs, *args, **kwargs)

    def _save_checkpoint(self, *args, **kwargs):
        if hvd.rank() == 0:
            super()._save_checkpoint(*args, **kwargs)
        # with this broadcast all ranks also wait until the checkpoint is there
        self.state.best_model_checkpoint = hvd.broadcast_object(self.state.best_model_checkpoint)


class Sentences(torch.utils.data.Dataset):
    """Makes sequences of numbers that count up; some are shorter than others."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.starts = torch.randint(0, 64, (count,), generator=generator)
        self.lengths = torch.randint(6, 17, (count,), generator=generator)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        words = (self.starts[i] + torch.arange(16)) % 64
        labels = torch.where(torch.arange(16) < self.lengths[i], words, -100)
        return {"input_ids": words, "labels": labels}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="huggingface_output", help="folder of checkpoints")
    parser.add_argument("--batch-size", type=int, default=8, help="sentences per backward pass, of all ranks together")
    parser.add_argument("--accumulate", type=int, default=1, help="backward passes per step")
    parser.add_argument("--bf16", action="store_true", help="mixed precision")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--resume", help="a checkpoint to go on from")
    parser.add_argument("--parameters", help="file for the parameters of each rank; %%d stands for its number")
    options = parser.parse_args()

    arguments = HorovodArguments(
        options.output, per_device_train_batch_size=options.batch_size // hvd.size(),
        gradient_accumulation_steps=options.accumulate, num_train_epochs=options.epochs, bf16=options.bf16,
        learning_rate=1e-3, warmup_steps=5, logging_steps=5, save_steps=10, eval_strategy="steps", eval_steps=10,
        load_best_model_at_end=True, report_to="none",
        use_cpu=hvd.local_device() is None or not torch.cuda.is_available())
    # Rank 0 prints and saves what only one process should print and save.
    arguments.distributed_state.process_index = hvd.rank()
    arguments.distributed_state.local_process_index = hvd.local_rank()

    set_seed(arguments.seed)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0,
                                       eos_token_id=0, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    trainer = HorovodTrainer(model, arguments, train_dataset=Sentences(88, 1), eval_dataset=Sentences(32, 2))
    trainer.train(resume_from_checkpoint=options.resume)
    if options.parameters:
        torch.save(model.state_dict(), options.parameters.replace("%d", str(hvd.rank())))


if __name__ == "__main__":
    main()
