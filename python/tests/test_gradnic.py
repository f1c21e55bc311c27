"""Tests of the package over a ring of two NICs, whose sockets GRADNIC_TEST_SOCKETS names, separated by commas.

python_test.go makes the ring and runs this file.
"""

import ctypes.util
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy

import gradnic

SOCKETS = os.environ["GRADNIC_TEST_SOCKETS"].split(",")
NODES = len(SOCKETS)


def gradient(node, n):
    return numpy.random.RandomState(node + 1).standard_normal(n).astype(numpy.float32)


def total(n):
    return gradient(0, n) + gradient(1, n)


def child_all_reduce(socket, node, queue):
    with gradnic.Nic(socket) as nic:
        a = gradient(node, 1000)
        nic.all_reduce(a, codec="none")
        queue.put(bool((a == total(1000)).all()))


class RingTest(unittest.TestCase):
    def setUp(self):
        self.nics = [gradnic.Nic(s, arena=1 << 21) for s in SOCKETS]

    def tearDown(self):
        for nic in self.nics:
            nic.close(wait=False)

    def each(self, f):
        """Runs f(node, nic) for all nodes at once and returns the results."""
        out = [None] * NODES

        def run(i):
            try:
                out[i] = f(i, self.nics[i])
            except Exception as e:
                out[i] = e

        threads = [threading.Thread(target=run, args=(i,)) for i in range(NODES)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for o in out:
            if isinstance(o, Exception):
                raise o
        return out

    def test_numpy(self):
        def f(node, nic):
            inside, outside = nic.empty((20, 1000)), gradient(node, 20000)
            inside[:] = gradient(node, 20000).reshape(20, 1000)
            stats = nic.all_reduce(inside, codec="none")
            nic.all_reduce(outside, codec="none")
            self.assertGreater(stats.blocks, 0)
            self.assertGreater(stats.elapsed, 0)
            row = nic.empty((2, 8))
            row[:] = node
            nic.all_reduce(row[1], codec="none")  # a part of an array
            numpy.testing.assert_array_equal(row, [[node] * 8, [1] * 8])
            return inside.ravel(), outside

        for a, b in self.each(f):
            numpy.testing.assert_array_equal(a, total(20000))
            numpy.testing.assert_array_equal(b, total(20000))

    def test_codec(self):
        def f(node, nic):
            a = gradient(node, 5000)
            nic.all_reduce(a)  # bfp16
            return a

        a, b = self.each(f)
        numpy.testing.assert_array_equal(a, b)
        off = numpy.abs(a - total(5000)).max()
        self.assertTrue(0 < off < 0.1, off)

    def test_weights(self):
        def f(node, nic):
            a, w = gradient(node, 3000), gradient(9, 3000)
            nic.all_reduce(a, weights=w, learning_rate=0.5, codec="none")
            return a, w

        want = gradient(9, 3000) - numpy.float32(0.5) * total(3000)
        for a, w in self.each(f):
            numpy.testing.assert_array_equal(a, want)
            numpy.testing.assert_array_equal(w, want)

    def test_many_unheld(self):
        """Arrays that nobody holds are kept for as long as the NIC has them."""

        def f(node, nic):
            last = gradient(node, 4000)
            ops = [nic.start(gradient(node, 4000), codec="none") for _ in range(20)]
            op = nic.start(last, codec="none")
            gc.collect()
            op.wait()
            self.assertTrue(all(o.done() or o.wait() for o in ops))
            nic.barrier()
            self.assertEqual(len(nic._running), 0)
            return last

        for a in self.each(f):
            numpy.testing.assert_array_equal(a, total(4000))

    def test_refused(self):
        nic = self.nics[0]
        frozen = numpy.zeros(4, numpy.float32)
        frozen.flags.writeable = False
        for bad, why in [
            (numpy.zeros(4), "float32 copy"),
            (numpy.zeros(4, ">f4"), "float32 copy"),
            (numpy.zeros((4, 4), numpy.float32)[:, 1], "ascontiguousarray"),
            (frozen, "written"),
            ([1.0, 2.0], "list"),
        ]:
            with self.assertRaisesRegex(gradnic.InvalidArgument, why):
                nic.start(bad)
        a = numpy.zeros(4, numpy.float32)
        for why, options in [
            ("deadline -1", {"deadline": -1}),
            ("deadline nan", {"deadline": float("nan")}),
            ("deadline inf", {"deadline": float("inf")}),
            ("deadline '1'", {"deadline": "1"}),
            ("codec None", {"codec": None}),
            ("overlap", {"weights": a}),
        ]:
            with self.assertRaisesRegex(gradnic.InvalidArgument, why):
                nic.start(a, **options)
        for shape in (-1, (3, -1), 1 << 64, 2.0, "3", (numpy.float32(1),)):
            with self.assertRaisesRegex(gradnic.InvalidArgument, "shape"):
                nic.empty(shape)
        for why, path, options in [
            ("zero byte", SOCKETS[1] + "\0x", {}),
            ("timeout nan", SOCKETS[1], {"timeout": float("nan")}),
            ("timeout -1", SOCKETS[1], {"timeout": -1}),
        ]:
            with self.assertRaisesRegex(gradnic.InvalidArgument, why):
                gradnic.Nic(path, **options)
        with self.assertRaises(gradnic.InvalidArgument):
            nic.start(numpy.zeros(4, numpy.float32), weights=numpy.zeros(3, numpy.float32))
        with self.assertRaises(gradnic.RequestFailed):
            nic.all_reduce(numpy.zeros(4, numpy.float32), codec="nope")
        with self.assertRaises(gradnic.NoRoom):
            nic.empty(1 << 22)
        with self.assertRaisesRegex(gradnic.Error, "--host-socket running"):
            gradnic.Nic("/nowhere/at/all")
        with self.assertRaisesRegex(gradnic.Error, "has the node"):
            gradnic.Nic(SOCKETS[0])
        self.assertTrue(gradnic.version())

    def test_numpy_integers(self):
        """Whole numbers of numpy are as good as Python's."""
        nic = self.nics[0]
        self.assertEqual(nic.empty(numpy.int64(5)).shape, (5,))
        self.assertEqual(nic.empty(numpy.arange(1, 4)).shape, (1, 2, 3))
        self.assertEqual(nic.empty(()).shape, ())
        self.each(lambda node, nic: nic.reform(numpy.arange(NODES)))
        self.each(lambda node, nic: nic.barrier())

    def test_short_deadline(self):
        """A deadline below a millisecond is one, and not the NIC's own of a minute."""
        with self.assertRaisesRegex(gradnic.RequestFailed, "deadline"):
            self.nics[0].start(gradient(0, 10), deadline=1e-4).wait(20)
        self.each(lambda node, nic: nic.reform([0, 1]))
        self.each(lambda node, nic: nic.barrier())

    def test_interrupt_open(self):
        """Ctrl-C ends an open that waits: here for the requests of the process before, which ended without them."""
        code = (
            "import gradnic, numpy, sys\n"
            "gradnic.Nic(sys.argv[1]).start(numpy.ones(10, numpy.float32), codec='none', deadline=30)\n"
            "print('under way', flush=True)\n"
        )
        self.nics[0].close()
        subprocess.run([sys.executable, "-c", code, SOCKETS[0]], stdout=subprocess.DEVNULL, timeout=20, check=True)
        code = (
            "import gradnic, sys\n"
            "print('opening', flush=True)\n"
            "try:\n"
            "    gradnic.Nic(sys.argv[1], timeout=60)\n"
            "    print('opened')\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted')\n"
        )
        p = subprocess.Popen([sys.executable, "-c", code, SOCKETS[0]], stdout=subprocess.PIPE, text=True)
        self.assertEqual(p.stdout.readline(), "opening\n")
        time.sleep(0.3)
        p.send_signal(signal.SIGINT)
        try:
            self.assertEqual(p.communicate(timeout=10)[0], "interrupted\n")
        finally:
            p.kill()
        a = gradient(1, 10)
        self.nics[1].all_reduce(a, codec="none")  # what was left under way was summed
        numpy.testing.assert_array_equal(a, gradient(1, 10) + 1)
        self.nics[0] = gradnic.Nic(SOCKETS[0])
        self.each(lambda node, nic: nic.barrier())

    def test_memory(self):
        """empty() gives memory back when the last view is gone, also after close; arrays outlive the connection."""
        nic = self.nics[0]
        for _ in range(50):
            a = nic.empty(200_000)  # 50 of them would not fit
            view = a[100:]
            del a
            view[:] = 3
            with self.assertRaises(gradnic.NoRoom):
                nic.empty(400_000)
            del view
        a = nic.empty(10)
        nic.close()
        nic.close()
        a[:] = 5
        self.assertEqual(a.sum(), 50)
        with self.assertRaises(gradnic.Closed):
            nic.all_reduce(a)
        with self.assertRaises(gradnic.Closed):
            nic.empty(1)

    def test_timeout(self):
        nic = self.nics[0]
        a = gradient(0, 1000)
        op = nic.start(a, codec="none")
        with self.assertRaises(TimeoutError):
            op.wait(0.05)
        self.assertFalse(op.done())
        b = gradient(1, 1000)
        self.nics[1].all_reduce(b, codec="none")
        self.assertGreater(op.wait().elapsed, 0.04)
        numpy.testing.assert_array_equal(a, b)

    def test_status_and_failure(self):
        """A node that hands in nothing: an error at the deadline; formed again, the ring goes on."""
        s = self.nics[0].status()
        self.assertEqual((s.node, s.nodes, s.phase, s.failure), (0, [0, 1], "formed", ""))
        with self.assertRaises(gradnic.RequestFailed):
            self.nics[0].all_reduce(gradient(0, 10), deadline=0.1)
        s = self.nics[0].status()
        self.assertEqual(s.phase, "failed")
        self.assertTrue(s.failure)
        for bad in ([0, 65536], [-1, 1], [0.0, 1]):
            with self.assertRaises(gradnic.InvalidArgument):
                self.nics[0].reform(bad)
        self.each(lambda node, nic: nic.reform([0, 1]))

        def f(node, nic):
            a = gradient(node, 10)
            nic.all_reduce(a, codec="none")
            return a

        for a in self.each(f):
            numpy.testing.assert_array_equal(a, total(10))

    def test_fork(self):
        """A child is refused at once; the parent goes on."""
        nic = self.nics[0]
        op = nic.start(gradient(0, 100), codec="none")
        child = os.fork()
        if child == 0:
            ok = 0
            for f in (lambda: gradnic.Nic(SOCKETS[1]), nic.status, op.done, lambda: nic.empty(4)):
                try:
                    f()
                except gradnic.Forked as e:
                    ok += "spawn" in str(e)
            nic.close()
            os._exit(0 if ok == 4 else 1)
        for _ in range(500):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
            time.sleep(0.01)
        else:
            os.kill(child, 9)
            self.fail("the child hangs")
        self.assertEqual(status, 0)
        self.nics[1].all_reduce(gradient(1, 100), codec="none")
        op.wait()

    def test_fork_holds_nothing(self):
        """A process that dies leaves its NIC to the next, even when a child of it lives on."""
        self.nics[0].close()
        code = (
            "import gradnic, os, sys, time\n"
            "nic = gradnic.Nic(sys.argv[1])\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    os.close(1)\n"
            "    time.sleep(20)\n"
            "    os._exit(0)\n"
            "print(child, flush=True)\n"
            "os.kill(os.getpid(), 9)\n"
        )
        out = subprocess.run([sys.executable, "-c", code, SOCKETS[0]], stdout=subprocess.PIPE, timeout=20)
        try:
            self.assertEqual(out.returncode, -9)
            self.nics[0] = gradnic.Nic(SOCKETS[0])
            self.assertEqual(self.nics[0].status().node, 0)
        finally:
            os.kill(int(out.stdout), 9)

    def test_done_does_not_wait(self):
        """While a thread waits for an operation, done() and the start of others do not wait along."""
        nic = self.nics[0]
        op = nic.start(gradient(0, 10), codec="none")
        waiter = threading.Thread(target=op.wait)
        waiter.start()
        time.sleep(0.05)
        begin = time.monotonic()
        for _ in range(100):
            self.assertFalse(op.done())
        for _ in range(100):  # from the 64th on each looks at what is over
            nic.start(None)
        with self.assertRaises(TimeoutError):
            op.wait(0)
        took = time.monotonic() - begin  # 13 s when each waits along
        self.nics[1].all_reduce(gradient(1, 10), codec="none")
        for _ in range(100):
            self.nics[1].start(None)
        self.each(lambda node, nic: nic.barrier())
        waiter.join()
        self.assertLess(took, 5)
        self.assertTrue(op.done())

    def test_unobserved(self):
        """Operations that nobody waits for do not pile up."""

        def f(node, nic):
            for i in range(300):
                nic.start(gradient(node, 10), codec="none")
                if i % 64 == 63:  # at the same places on all nodes, which must hand in the same requests
                    nic.barrier()
            nic.barrier()
            return len(nic._running)

        for n in self.each(f):
            self.assertLess(n, 80)

    def test_library(self):
        """A library that is not there, or another one, is an OSError that says so."""
        code = "import gradnic\ntry:\n    gradnic.version()\nexcept OSError as e:\n    print(e)\n"
        for path, want in [("/nowhere/at/all.so", "make lib"), (ctypes.util.find_library("m"), "not gradnic's library")]:
            out = subprocess.run(
                [sys.executable, "-c", code], env=dict(os.environ, GRADNIC_LIBRARY=path), stdout=subprocess.PIPE, text=True, timeout=20
            )
            self.assertIn(want, out.stdout)

    def test_spawn(self):
        """Processes that are spawned have a NIC each; a Nic cannot be sent to them."""
        with self.assertRaises(TypeError):
            self.nics[0].__reduce__()
        for nic in self.nics:
            nic.close()
        ctx = multiprocessing.get_context("spawn")
        queue = ctx.Queue()
        children = [ctx.Process(target=child_all_reduce, args=(s, i, queue)) for i, s in enumerate(SOCKETS)]
        for c in children:
            c.start()
        self.assertEqual([queue.get(timeout=30) for _ in children], [True] * NODES)
        for c in children:
            c.join(10)
            self.assertEqual(c.exitcode, 0)


if __name__ == "__main__":
    unittest.main()
