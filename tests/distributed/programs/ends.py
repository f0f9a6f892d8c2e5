"""Train for ever and write a checkpoint after each step, until one rank ends in the way that HOW says.

    ends.py FOLDER HOW RANK
"""
import os
import pathlib
import sys
from datetime import timedelta

import minitorch_attn as mt
import minitorch_attn.distributed as dist
from minitorch_attn import nn, optim

folder, how, who = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
dist.init_process_group(timeout=timedelta(seconds=1))
if how == "different model" and dist.get_rank() == who:
    model = nn.Linear(5, 7)
else:
    model = nn.Linear(5, 3)
model = dist.DistributedDataParallel(model)
optimizer = optim.AdamW(model.parameters())
(folder / f"pid_{dist.get_rank()}").write_text(str(os.getpid()))
step = 0
while True:
    x = mt.randn(8, 5)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    step += 1
    dist.save(folder / "state.npz", model, optimizer=optimizer, step=step)
    if step == 5 and dist.get_rank() == who:
        if how == "raise":
            raise ValueError("the data of this rank is broken")
        if how == "exit":
            sys.exit(3)
