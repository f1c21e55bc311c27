"""One rank of gloo's all-reduce: gloo.py RANK WORLD ADDRESS PORT INTERFACE ELEMENTS,... ROUNDS

Prints one JSON line a rank: for each size the seconds of each round, each after a barrier, and the wrong elements.
"""
import datetime
import json
import os
import sys
import time

rank, world, address, port, interface, elements, rounds = sys.argv[1:]
rank, world, rounds = int(rank), int(world), int(rounds)
os.environ["GLOO_SOCKET_IFNAME"] = interface

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"tcp://{address}:{port}", rank=rank, world_size=world,
                        timeout=datetime.timedelta(seconds=120))
result = []
for elements in map(int, elements.split(",")):
    sign = 1.0 - 2.0 * (torch.arange(elements) & 1).to(torch.float32)
    want = sign * (world * (world + 1) // 2)
    seconds, wrong = [], 0
    for _ in range(rounds):
        x = sign * (rank + 1)
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(x)
        seconds.append(time.perf_counter() - begin)
        wrong += int((x != want).sum())
    result.append({"seconds": seconds, "wrong": wrong})
print(json.dumps(result))
dist.destroy_process_group()
