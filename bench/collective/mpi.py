"""One rank of MPI's all-reduce, by mpi4py: mpi.py ELEMENTS,... ROUNDS

Rank 0 prints one JSON line: for each size the seconds of each round's slowest rank and the wrong elements, out of place
and in place.
"""
import json
import sys
import time

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, world = comm.Get_rank(), comm.Get_size()
rounds = int(sys.argv[2])
result = []
for elements in map(int, sys.argv[1].split(",")):
    sign = (1.0 - 2.0 * (np.arange(elements) & 1)).astype(np.float32)
    want = sign * np.float32(world * (world + 1) // 2)
    entry = {"elements": elements}
    for way in ("out", "in"):
        seconds, wrong = [], 0
        for k in range(rounds + 1):
            x = sign * np.float32(rank + 1)
            y = np.zeros_like(x)
            comm.Barrier()
            begin = time.perf_counter()
            if way == "out":
                comm.Allreduce(x, y, op=MPI.SUM)
            else:
                comm.Allreduce(MPI.IN_PLACE, x, op=MPI.SUM)
                y = x
            took = comm.allreduce(time.perf_counter() - begin, op=MPI.MAX)
            if k > 0:  # the first one opens connections
                seconds.append(took)
            wrong += comm.allreduce(int((y != want).sum()), op=MPI.SUM)
        entry[way] = {"seconds": seconds, "wrong": wrong}
    result.append(entry)
if rank == 0:
    print(json.dumps(result))
