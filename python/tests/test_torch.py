"""Tests with torch, over the ring of GRADNIC_TEST_SOCKETS."""

import os
import tempfile
import threading
import unittest

import torch
import torch.distributed as dist

import gradnic
from gradnic import ddp

SOCKETS = os.environ["GRADNIC_TEST_SOCKETS"].split(",")


def gradient(node, n):
    return torch.randn(n, generator=torch.Generator().manual_seed(node + 1))


class TorchTest(unittest.TestCase):
    def test_tensors(self):
        """Tensors in place, of torch's memory and of the NIC's; the hook's future; the sum in the ring's order."""
        n = 40000
        want = ddp.ring_sum([gradient(i, n) for i in range(len(SOCKETS))])
        errors = []

        def run(node):
            try:
                with gradnic.Nic(SOCKETS[node]) as nic:
                    a = gradient(node, n)
                    nic.all_reduce(a, codec="none")
                    b = torch.from_numpy(nic.empty(n))
                    b.copy_(gradient(node, n))
                    ring = ddp.Ring(nic, codec="none")
                    c = ring.start(b).wait()
                    ring.close()
                    if not (torch.equal(a, want) and torch.equal(b, want) and c is b):
                        errors.append(f"node {node}: not the sum")
                    if (ring.world, ring.buckets, ring.elements) != (len(SOCKETS), 1, n):
                        errors.append(f"node {node}: {ring.world} {ring.buckets} {ring.elements}")
            except Exception as e:
                errors.append(e)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(SOCKETS))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(errors, [])

    def test_non_finite(self):
        """Whoever makes a sum that is infinite or NaN counts it: on one element of two nodes, one of them."""
        found = [None] * len(SOCKETS)

        def run(node):
            with gradnic.Nic(SOCKETS[node]) as nic:
                ring = ddp.Ring(nic, codec="none")
                a = gradient(node, 100)
                a[7] = float("inf")
                ring.start(a).wait()
                ring.close()
                found[node] = ring.non_finite

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(SOCKETS))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sum(found), len(SOCKETS) - 1)

    def test_refused(self):
        with gradnic.Nic(SOCKETS[0]) as nic:
            for bad, why in [
                (torch.zeros(4, dtype=torch.float64), r"float\(\)"),
                (torch.zeros(4, 4).t()[1], r"contiguous\(\)"),
                (torch.empty(4, device="meta"), "meta"),
                (torch.eye(4).to_sparse(), r"to_dense\(\)"),
                (torch.eye(4).to_sparse_csr(), r"to_dense\(\)"),
                (torch.zeros(1, dtype=torch.complex64).conj().imag, r"resolve_neg\(\)"),
            ]:
                with self.assertRaisesRegex(gradnic.InvalidArgument, why):
                    nic.start(bad)
            ring = ddp.Ring(nic)
            ring.close()
            with self.assertRaisesRegex(gradnic.Closed, "this Ring is closed"):
                ring.start(torch.zeros(4))

    def test_16_bits(self):
        """Buckets of float16 and bfloat16 are summed as float32, and rounded once."""
        for dtype in (torch.float16, torch.bfloat16):
            parts = [gradient(i, 3000).to(dtype) for i in range(len(SOCKETS))]
            want = ddp.ring_sum([p.float() for p in parts]).to(dtype)
            got = [None] * len(SOCKETS)

            def run(node):
                with gradnic.Nic(SOCKETS[node]) as nic:
                    ring = ddp.Ring(nic, codec="none")
                    got[node] = ring.start(parts[node]).wait()
                    ring.close()

            threads = [threading.Thread(target=run, args=(i,)) for i in range(len(SOCKETS))]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            for node, g in enumerate(got):
                self.assertIs(g, parts[node])
                self.assertTrue(torch.equal(g, want), dtype)

    def test_failure(self):
        """What the NIC cannot do is the future's error."""
        with gradnic.Nic(SOCKETS[0]) as nic:
            ring = ddp.Ring(nic, codec="nope")
            with self.assertRaisesRegex(RuntimeError, "nope"):
                ring.start(torch.zeros(4)).wait()
            ring.close()

    def test_backward_fails(self):
        """What the NIC cannot do ends backward with its reason, and does not hang it; with a NIC that can, training goes on."""
        with tempfile.TemporaryDirectory() as there:
            dist.init_process_group("gloo", init_method=f"file://{there}/meet", rank=0, world_size=1)
            try:
                with gradnic.Nic(SOCKETS[0]) as nic:
                    ring = ddp.Ring(nic, codec="nope")
                    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 3))
                    model.register_comm_hook(ring, ddp.all_reduce_hook)
                    with self.assertRaisesRegex(RuntimeError, "nope"):
                        model(torch.ones(2, 4)).sum().backward()
                    ring.close()
                    nic.reform([0])  # alone, the sum is the gradient
                    ring = ddp.Ring(nic, codec="none", world=1)
                    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 3))
                    model.register_comm_hook(ring, ddp.all_reduce_hook)
                    model(torch.ones(2, 4)).sum().backward()
                    self.assertTrue((model.module.weight.grad == 2).all())
                    ring.close()
                with gradnic.Nic(SOCKETS[1]) as other:
                    other.reform([0, 1])
                with gradnic.Nic(SOCKETS[0]) as nic:
                    nic.reform([0, 1])
            finally:
                dist.destroy_process_group()

    def test_ring_sum(self):
        """Against the definition, element by element."""
        parts = [gradient(i, 70) for i in range(3)]
        got = ddp.ring_sum(parts, slice_elements=8, piece=50)
        for j in range(70):
            own = j % 50 // 8 % 3
            v = parts[own][j] + parts[own - 1][j]
            v = v + parts[own - 2][j]
            self.assertEqual(got[j].item(), v.item())


if __name__ == "__main__":
    unittest.main()
