"""Train a small GPT on batches of uneven size; every rank writes its losses and weights to FOLDER/rank_of_size.npz."""
import pathlib
import sys

import numpy as np

import minitorch_attn as mt
import minitorch_attn.distributed as dist
from minitorch_attn import optim
from minitorch_attn.data import DataLoader, TensorDataset
from minitorch_attn.models.gpt import GPT, GPTConfig
from minitorch_attn.nn import functional as F

OPTIMIZERS = {
    "SGD": lambda parameters: optim.SGD(parameters, lr=0.3, momentum=0.9),
    "AdamW": lambda parameters: optim.AdamW(parameters, lr=3e-3),
}
PADDING = -100


def sentences():
    """17 sequences of different length: tokens (17, 7) and what comes next, padded."""
    generator = mt.Generator().manual_seed(3)
    tokens = mt.randint(0, 11, (17, 8), generator=generator)
    targets = tokens[:, 1:].clone()
    for row, length in enumerate(mt.randint(1, 8, (17,), generator=generator).tolist()):
        targets[row, length:] = PADDING
    return tokens[:, :-1].clone(), targets


def train(optimizer, dtype, epochs=2):
    """The loss of each whole batch, and the weights at the end."""
    mt.manual_seed(5 + dist.get_rank())  # the ranks begin with different weights, and get those of rank 0
    model = dist.DistributedDataParallel(GPT(GPTConfig(11, 8, n_layer=1, n_head=2, n_embd=6)).to(dtype))
    optimizer, losses = OPTIMIZERS[optimizer](model.parameters()), []
    order = mt.Generator().manual_seed(7)
    for _ in range(epochs):
        # batches of 8, 8 and 1: of the last, all ranks but one have nothing
        for x, y in DataLoader(TensorDataset(*sentences()), batch_size=8, shuffle=True, generator=order):
            x, y = dist.shard((x, y))
            logits, _ = model(x)
            loss = F.cross_entropy(logits.reshape(-1, 11), y.reshape(-1), ignore_index=PADDING)
            model.count = (y != PADDING).sum().item()
            losses.append(dist.average(loss.item(), model.count))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return np.array(losses), np.concatenate([w.detach().numpy().ravel() for w in model.parameters()])


if __name__ == "__main__":
    dist.init_process_group()
    results = {}
    for name in OPTIMIZERS:
        for dtype in (mt.float32, mt.float64):
            results[f"{name} {dtype} losses"], results[f"{name} {dtype} weights"] = train(name, dtype)
    np.savez(pathlib.Path(sys.argv[1]) / f"{dist.get_rank()}_of_{dist.get_world_size()}.npz", **results)
    dist.destroy_process_group()
