"""A communication hook for torch.nn.parallel.DistributedDataParallel: gradients are summed by the ring of NICs.

    nic = gradnic.Nic("/run/gradnic/eth1.sock")
    model = DistributedDataParallel(model)           # over gloo, which still carries everything else
    hook = gradnic.ddp.Ring(nic, codec="bfp16")
    model.register_comm_hook(hook, gradnic.ddp.all_reduce_hook)

Each bucket is given to the NIC as soon as backward has filled it, and backward goes on. DDP starts buckets in the same order
in all processes, as the NICs want it. As DDP's own all-reduce does, the hook divides by the number of processes first.
Buckets of float16 or bfloat16 are summed as float32 and rounded once, in the end.
"""

import queue
import threading

import torch

from .nic import Closed


class Ring:
    """What the hook needs: the NIC, the codec between NICs, and a thread that completes futures.

    world     by how much gradients are divided; 0: the number of nodes in the ring now. When the ring has been formed again of
              others, make a new one of these
    deadline  seconds, of each piece of a bucket; 0: the NIC's own
    """

    def __init__(self, nic, *, codec="bfp16", world=0, deadline=0.0):
        self.nic, self.codec, self.deadline = nic, codec, deadline
        self.world = world or len(nic.status().nodes)
        self.buckets = 0  # summed
        self.elements = 0
        self.busy = 0.0  # s, of the NIC with buckets
        self.non_finite = 0  # sums made at this node that were infinite or NaN, a hop and element each
        self._queue = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._complete, name="gradnic-ddp", daemon=True)
        self._thread.start()

    def start(self, tensor):
        """Starts a sum over all nodes, in place, and returns a torch Future of the tensor."""
        if self._closed:
            raise Closed("this Ring is closed: nobody would complete the sum")
        future = torch.futures.Future()
        wide = tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
        op = self.nic.start(wide, codec=self.codec, deadline=self.deadline)
        self._queue.put((op, future, tensor, wide))
        return future

    def _complete(self):
        while True:
            item = self._queue.get()
            if item is None:
                return
            op, future, tensor, wide = item
            try:
                stats = op.wait()
                if wide is not tensor:
                    tensor.copy_(wide)
            except Exception as e:  # whatever it is: who waits must not wait for ever
                future.set_exception(e)
                continue
            self.buckets += 1
            self.elements += tensor.numel()
            self.busy += stats.elapsed
            self.non_finite += stats.non_finite
            future.set_result(tensor)

    def close(self):
        """Ends the thread, after what is under way."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()


def all_reduce_hook(ring, bucket):
    """The hook: the mean over all processes, in place."""
    tensor = bucket.buffer()
    tensor.div_(ring.world)
    return ring.start(tensor)


def ring_sum(parts, slice_elements=8192, piece=1 << 20):
    """What the ring computes without compression, to the last bit: the sum of the nodes' parts, in the ring's order.

    parts: a flat float32 tensor for each node, in the ring's order. Of each piece, slice s of a block of len(parts) slices
    begins at node s and goes down: ((x[s] + x[s-1]) + x[s-2]) + ..., modulo the number of nodes.
    """
    n, total = len(parts), parts[0].numel()
    out = torch.empty(total, dtype=torch.float32)
    for begin in range(0, total, piece):
        end = min(begin + piece, total)
        for k, at in enumerate(range(begin, end, slice_elements)):
            to = min(at + slice_elements, end)
            own = k % n
            acc = parts[own][at:to].clone()
            for hop in range(1, n):
                acc += parts[(own - hop) % n][at:to]
            out[at:to] = acc
    return out
