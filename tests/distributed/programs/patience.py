"""Rank 0 goes on alone after the common work, longer than the others wait for those who do not say goodbye."""
import sys
import time
from datetime import timedelta

import minitorch_attn.distributed as dist

dist.init_process_group(timeout=timedelta(seconds=0.2))
rank = dist.get_rank()
dist.destroy_process_group()
assert dist.get_world_size() == 1 and not dist.is_initialized()
if rank == 0:
    time.sleep(1)
    if sys.argv[1:] == ["raise"]:
        raise ValueError("a mistake at the end")
    print("done")
