"""Trains a small language model on real text, data-parallel, with DDP: one process of several.

The gradients are summed by gloo as DDP does it (--how gloo), by the ring of NICs (--how nic), or, to compare with, in the
ring's order by the processes themselves (--how ordered: they gather all gradients over gloo, and add). Otherwise the runs are
the same: text, parameters and batches come from seeds, and each process computes on one thread.
"""

import argparse
import hashlib
import json
import os
import sys
import time

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 128


class Model(nn.Module):
    """Predicts the next character: an embedding, a gated recurrent unit, a linear layer."""

    def __init__(self, embed, hidden):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, embed)
        self.gru = nn.GRU(embed, hidden)
        self.out = nn.Linear(hidden, VOCABULARY)

    def forward(self, x):
        h, _ = self.gru(self.embed(x))
        return self.out(h)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--how", choices=["gloo", "nic", "ordered"], required=True)
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--world", type=int, required=True)
    p.add_argument("--rendezvous", required=True, help="such as tcp://10.61.0.1:29500 or file:///tmp/x")
    p.add_argument("--socket", help="of the NIC")
    p.add_argument("--codec", default="bfp16")
    p.add_argument("--text", required=True, help="file to learn from")
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--warm", type=int, default=3, help="steps that are not timed")
    p.add_argument("--embed", type=int, default=32)
    p.add_argument("--hidden", type=int, default=96)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--length", type=int, default=32, help="characters of a sequence")
    p.add_argument("--rate", type=float, default=3e-3)
    p.add_argument("--bucket-mb", type=float, default=1.0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--out", required=True, help="JSON file")
    return p.parse_args()


def ordered_hook(world, bucket):
    from gradnic.ddp import ring_sum

    t = bucket.buffer()
    t.div_(world)
    parts = [torch.empty_like(t) for _ in range(world)]
    dist.all_gather(parts, t)
    t.copy_(ring_sum(parts))
    f = torch.futures.Future()
    f.set_result(t)
    return f


def main():
    o = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=o.rendezvous, rank=o.rank, world_size=o.world)
    torch.manual_seed(o.seed)
    model = DistributedDataParallel(Model(o.embed, o.hidden), bucket_cap_mb=o.bucket_mb)
    nic = ring = None
    if o.how == "nic":
        import gradnic
        from gradnic import ddp

        nic = gradnic.Nic(o.socket)
        if nic.status().phase == "failed":  # since a training before this one
            nic.reform(range(o.world))
        ring = ddp.Ring(nic, codec=o.codec)
        model.register_comm_hook(ring, ddp.all_reduce_hook)
    elif o.how == "ordered":
        model.register_comm_hook(o.world, ordered_hook)
    text = numpy.frombuffer(open(o.text, "rb").read(), numpy.uint8).astype(numpy.int64) % VOCABULARY
    shard = len(text) // o.world
    text = text[o.rank * shard : (o.rank + 1) * shard]
    draw = numpy.random.RandomState(o.seed * 1000 + o.rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.rate)
    criterion = nn.CrossEntropyLoss()
    losses, begin = [], 0.0
    for step in range(o.steps):
        if step == o.warm:
            dist.barrier()
            begin = time.monotonic()
        at = draw.randint(0, len(text) - o.length - 1, o.batch)
        rows = numpy.stack([text[a : a + o.length + 1] for a in at], 1)
        x, y = torch.from_numpy(rows[:-1]), torch.from_numpy(rows[1:])
        loss = criterion(model(x).reshape(-1, VOCABULARY), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    dist.barrier()
    seconds = (time.monotonic() - begin) / max(o.steps - o.warm, 1)
    digest = hashlib.sha256()
    for p in model.parameters():
        digest.update(p.detach().numpy().tobytes())
    result = {
        "losses": [x.hex() for x in losses],
        "step_s": seconds,
        "parameters": sum(p.numel() for p in model.parameters()),
        "digest": digest.hexdigest(),
    }
    if ring:
        ring.close()
        result["buckets"] = ring.buckets
        result["elements"] = ring.elements
        result["nic_busy_s"] = ring.busy
        nic.close()
    with open(o.out, "w") as f:
        json.dump(result, f)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    main()
