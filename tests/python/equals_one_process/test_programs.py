"""Training programs of several kinds, written as users write them."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from training import CLASSES, FEATURES, loss


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def learn(optimizer, value, clip=None):
    optimizer.zero_grad()
    value.backward()
    if clip is not None:
        clip_grad_norm_(clip.parameters(), 0.3)
    optimizer.step()


# ---- networks ---------------------------------------------------------------------------------------------------


class PackedSequences(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(20, 5)
        self.lstm = torch.nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True)
        self.head = torch.nn.Linear(12, CLASSES)

    def forward(self, x):
        lengths = (x[:, 0].abs() * 3).long() % FEATURES + 1
        packed = torch.nn.utils.rnn.pack_padded_sequence(self.embedding((x.abs() * 10).long() % 20), lengths,
                                                         batch_first=True, enforce_sorted=False)
        _, (hidden, _) = self.lstm(packed)
        return self.head(torch.cat([hidden[-1], hidden[-2]], 1))


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(1, 8)
        self.encoder = torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.encoder(self.inner(x.unsqueeze(-1))).mean(1))


class Images(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Conv2d(1, 4, 2), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(8, CLASSES))
        self.to(memory_format=torch.channels_last)

    def forward(self, x):
        return super().forward(x.view(-1, 1, 2, 3).contiguous(memory_format=torch.channels_last))


@pytest.mark.parametrize("kind", [PackedSequences, Transformer, Images])
def test_network(equals_one_process, kind):
    """Trains with a warm-up, with weight decay for matrices only, and with clipping."""
    def train(world):
        model = world.network(kind)
        parameters = list(model.parameters())
        optimizer = torch.optim.AdamW([{"params": [each for each in parameters if each.dim() > 1]},
                                       {"params": [each for each in parameters if each.dim() < 2], "weight_decay": 0}])
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 5))
        optimizer = world.wrap(optimizer, model, groups=3)
        for x, y in world.batches():
            learn(optimizer, loss(model(x), y), clip=model)
            schedule.step()
        return model, optimizer

    equals_one_process(train)


def test_truncated_backpropagation_through_time(equals_one_process):
    def train(world):
        model = world.network(lambda: torch.nn.ModuleList([torch.nn.GRUCell(FEATURES, 5),
                                                           torch.nn.Linear(5, CLASSES)]))
        optimizer = world.wrap(adam(model), model)
        hidden = None
        for x, y in world.batches():
            hidden = torch.zeros(len(x), 5) if hidden is None else hidden.detach()
            value = 0
            for step in range(3):
                hidden = model[0](x * (step + 1), hidden)
                value = value + loss(model[1](hidden), y)
            learn(optimizer, value, clip=model)
        return model, optimizer

    equals_one_process(train)


# ---- gradients of gradients, and torch.func ---------------------------------------------------------------------


@pytest.mark.parametrize("clip_weights", [False, True])
def test_gradient_penalty(equals_one_process, clip_weights):
    def train(world):
        generator = world.network()
        critic = world.network(lambda: torch.nn.Sequential(torch.nn.Linear(CLASSES, 5), torch.nn.Tanh(),
                                                           torch.nn.Linear(5, 1)))
        optimizers = [world.wrap(torch.optim.RMSprop(model.parameters(), lr=0.01), model)
                      for model in (generator, critic)]
        for step, (x, _) in enumerate(world.batches()):
            real, fake = x[:, :CLASSES], generator(x).detach()
            between = (0.3 * real + 0.7 * fake).requires_grad_()
            slope, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
            penalty = 10 * (slope.norm(dim=1) - 1).square().mean()
            learn(optimizers[1], critic(fake).mean() - critic(real).mean() + penalty)
            if clip_weights:
                for parameter in critic.parameters():
                    parameter.data.clamp_(-0.1, 0.1)
            if step % 3 == 2:
                critic.requires_grad_(False)
                learn(optimizers[0], -critic(generator(x)).mean())
                critic.requires_grad_(True)
        return generator, critic, optimizers

    equals_one_process(train)


def test_learning_to_learn(equals_one_process):
    """Meta-learning with one task for each rank. The gradient goes through two inner steps."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        for batch in world.batches():
            values = []
            for _, x, y in world.parts(*batch):
                parameters = dict(model.named_parameters())
                for _ in range(2):
                    slopes = torch.autograd.grad(loss(functional_call(model, parameters, (x,)), y),
                                                 list(parameters.values()), create_graph=True)
                    parameters = {name: value - 0.1 * slope
                                  for (name, value), slope in zip(parameters.items(), slopes)}
                values.append(loss(functional_call(model, parameters, (x + 0.1,)), y))
            learn(optimizer, sum(values) / len(values))
        return model, optimizer

    equals_one_process(train)


def test_every_sample_is_clipped(equals_one_process):
    """Clips the gradient of every sample, as differential privacy needs. The script assigns the gradients."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)

        def of_one(parameters, x, y):
            return loss(functional_call(model, parameters, (x[None],)), y[None])

        for x, y in world.batches():
            parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
            slopes = vmap(grad(of_one), (None, 0, 0))(parameters, x, y)
            norms = sum(slope.flatten(1).square().sum(1) for slope in slopes.values()).sqrt()
            for name, parameter in model.named_parameters():
                parameter.grad = torch.einsum("b,b...->...", (0.5 / norms).clamp(max=1), slopes[name]) / len(x)
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


def test_an_ensemble_in_one(equals_one_process):
    def train(world):
        members = [world.network() for _ in range(3)]
        parameters, buffers = stack_module_state(members)
        shape = copy.deepcopy(members[0]).to("meta")
        all_of_them = torch.nn.ParameterList(parameters.values())
        parameters = dict(zip(parameters, all_of_them))
        optimizer = world.wrap(adam(all_of_them), all_of_them)
        for x, y in world.batches():
            outputs = vmap(lambda values, others: functional_call(shape, (values, others), (x,)))(parameters, buffers)
            learn(optimizer, sum(loss(output, y) for output in outputs))
        return all_of_them, optimizer

    equals_one_process(train)


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight):
        return torch.round(weight * 8) / 8

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def test_quantised_weights(equals_one_process):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        for x, y in world.batches():
            weights = {name: Rounded.apply(parameter) for name, parameter in model.named_parameters()}
            learn(optimizer, loss(functional_call(model, weights, (x,)), y))
        return model, optimizer

    equals_one_process(train)


# ---- losses over all ranks --------------------------------------------------------------------------------------


def test_contrastive_loss_over_all_ranks(equals_one_process, hvd):
    """Every rank compares the samples of all ranks."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        for x, _ in world.batches():
            one, other = F.normalize(model(x), dim=1), F.normalize(model(x + 0.1), dim=1)
            if world.distributed:
                one, other = (hvd.allgather(each, name, world.process_set)
                              for each, name in ((one, "one"), (other, "other")))
            # The gradient of an allgather is averaged, as in Horovod.
            learn(optimizer, loss(one @ other.T / 0.5, torch.arange(len(one))) * world.size)
        return model, optimizer

    equals_one_process(train)


def test_ranks_with_different_numbers_of_rows(equals_one_process, hvd):
    """The loss is the sum of the rows' losses, divided by the number of rows on all ranks."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model, op=hvd.Sum)
        for step, batch in enumerate(world.batches()):
            parts = [(x[:1 + (step + rank) % len(x)], y[:1 + (step + rank) % len(x)])
                     for rank, x, y in world.parts(*batch)]
            rows = world.average(float(sum(len(x) for x, _ in parts))) * world.size
            learn(optimizer, sum(loss(model(x), y, reduction="sum") for x, y in parts) / rows)
        return model, optimizer

    equals_one_process(train)


# ---- reinforcement learning -------------------------------------------------------------------------------------


def test_episodes_of_different_lengths(equals_one_process):
    def train(world):
        policy = world.network()
        optimizer = world.wrap(adam(policy), policy)
        for step, batch in enumerate(world.batches()):
            values = []
            for rank, x, y in world.parts(*batch):
                length = 1 + (step * 3 + rank * 5) % 4
                chosen = policy(x[:length]).log_softmax(1).gather(1, y[:length, None])
                values.append(-chosen.sum() * (length - 2.5))
            learn(optimizer, sum(values) / len(values))
        return policy, optimizer

    equals_one_process(train)


def test_a_target_network(equals_one_process):
    def train(world):
        network, target = world.network(), world.network()
        optimizer = world.wrap(torch.optim.RMSprop(network.parameters(), lr=0.01), network)
        target.load_state_dict(network.state_dict())
        for step, (x, y) in enumerate(world.batches()):
            with torch.no_grad():
                wanted = target(x).max(1).values + 1
            optimizer.zero_grad()
            F.smooth_l1_loss(network(x).gather(1, y[:, None])[:, 0], wanted).backward()
            for parameter in network.parameters():
                parameter.grad.data.clamp_(-0.1, 0.1)
            optimizer.step()
            if step % 5 == 4:
                target.load_state_dict(network.state_dict())
        return network, target, optimizer

    equals_one_process(train)


def test_three_optimizers_and_a_temperature(equals_one_process):
    def train(world):
        actor, critic = world.network(), world.network(torch.nn.Linear, FEATURES + CLASSES, 1)
        temperature = torch.nn.ParameterList([torch.nn.Parameter(torch.tensor(-1.0 - world.rank))])
        models = actor, critic, temperature
        optimizers = [world.wrap(adam(model), model) for model in models]
        for x, _ in world.batches():
            learn(optimizers[1], (critic(torch.cat([x, actor(x).detach()], 1))[:, 0] - x[:, 0]).square().mean())
            critic.requires_grad_(False)
            action = actor(x)
            size = action.square().mean()
            learn(optimizers[0], temperature[0].detach().exp() * size - critic(torch.cat([x, action], 1)).mean())
            critic.requires_grad_(True)
            learn(optimizers[2], temperature[0] * (0.5 - size.detach()))
        return models, optimizers

    equals_one_process(train)


# ---- experts, phases, data --------------------------------------------------------------------------------------


def test_experts(equals_one_process):
    """Each row goes to one of four experts. A rank uses only the experts that its rows choose."""
    def train(world):
        gate = world.network(torch.nn.Linear, FEATURES, 4)
        experts = [world.network() for _ in range(4)]
        model = torch.nn.ModuleList([gate, *experts])
        optimizer = world.wrap(torch.optim.AdamW(model.parameters(), lr=0.01), model)
        for x, y in world.batches():
            weights = gate(x).softmax(1)
            output = torch.zeros(len(x), CLASSES)
            for index, expert in enumerate(experts):
                rows = (weights.argmax(1) == index).nonzero()[:, 0]
                if len(rows):
                    output = output.index_add(0, rows, expert(x[rows]) * weights[rows, index:index + 1])
            optimizer.zero_grad()
            loss(output, y).backward()
            world.synchronize(optimizer)
            clip_grad_norm_(model.parameters(), 0.2)
            with world.skip_synchronize(optimizer):
                optimizer.step()
        return model, optimizer

    equals_one_process(train)


def test_a_network_that_grows(equals_one_process):
    def train(world):
        model = world.network(lambda: torch.nn.Sequential(torch.nn.Linear(FEATURES, CLASSES)))
        for phase in range(3):
            optimizer = world.wrap(adam(model), model)
            for x, y in world.batches(6, first=6 * phase):
                learn(optimizer, loss(model(x), y))
            layer = world.network(torch.nn.Linear, FEATURES, FEATURES)
            world.begin(layer)
            model = torch.nn.Sequential(layer, *model)
        return model, optimizer

    equals_one_process(train)


def test_the_best_model_of_a_run_that_stops_early(equals_one_process):
    """All ranks decide by the loss averaged over all ranks."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        best, best_state, worse, history = torch.inf, None, 0, []
        for x, y in world.batches(40):
            value = loss(model(x), y)
            learn(optimizer, value)
            history.append(world.average(value))
            schedule.step(history[-1])
            worse += 1
            if history[-1] < best:
                best, best_state, worse = history[-1], copy.deepcopy(model.state_dict()), 0
            if worse == 6:
                break
        model.load_state_dict(best_state)
        return model, optimizer, history

    equals_one_process(train)


class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(FEATURES, generator=generator, dtype=torch.float64), index % CLASSES


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_and_samplers(equals_one_process, workers):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        sampler = DistributedSampler(Rows(), world.size, world.rank)
        loader = DataLoader(Rows(), batch_size=8 // world.size, sampler=sampler, num_workers=workers)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in loader:
                learn(optimizer, loss(model(x), y))
        return model, optimizer

    equals_one_process(train)
