"""A process's connection to its NIC."""

import ctypes
import dataclasses
import os
import threading
import weakref

import numpy

from . import library
from .library import byref


class Error(RuntimeError):
    """What went wrong; its subclasses say which kind."""


class InvalidArgument(Error, ValueError):
    """An argument cannot be; nothing was done."""


class Gone(Error, ConnectionError):
    """The NIC is gone. What was under way is undefined."""


class Closed(Error):
    """The connection is closed."""


class RequestFailed(Error):
    """The NIC could not do it: a node died, the deadline has passed, or there is no such codec."""


class Forked(Error):
    """This process was forked from the one that loaded the library. Use multiprocessing's "spawn" method."""


class NoRoom(Error, MemoryError):
    """The shared memory has no such piece free."""


_ERRORS = {
    library.EINVAL: InvalidArgument,
    library.EGONE: Gone,
    library.ECLOSED: Closed,
    library.EREQUEST: RequestFailed,
    library.EFORK: Forked,
    library.ENOMEM: NoRoom,
}


def _check(result):
    status, text = result
    if status < 0:
        raise _ERRORS.get(status, Error)(text or f"error {status}")
    return status


@dataclasses.dataclass(frozen=True)
class Stats:
    """What an operation took, summed over its pieces."""

    elapsed: float  # s, from when the NIC took a piece to its end
    waited: float  # s, of that, until the first slice could be sent
    blocks: int  # of a slice a node, with padding
    non_finite: int  # sums made at this node that were infinite or NaN


@dataclasses.dataclass(frozen=True)
class Status:
    """What the NIC says of the ring."""

    node: int
    nodes: list
    generation: int
    outstanding: int
    phase: str  # forming, formed or failed
    failure: str


def version():
    """The version of libgradnic.so."""
    return library.load().gradnic_version().decode()


def _memory(x, what):
    """Address and elements of a contiguous float32 numpy array or torch tensor on the CPU that can be written."""
    if isinstance(x, numpy.ndarray):
        if x.dtype != numpy.float32 or not x.dtype.isnative:
            raise InvalidArgument(f"{what}: dtype {x.dtype}: it must be float32")
        if not x.flags.c_contiguous:
            raise InvalidArgument(f"{what}: it must be contiguous")
        if not x.flags.writeable:
            raise InvalidArgument(f"{what}: it cannot be written")
        return x.ctypes.data, x.size
    if hasattr(x, "data_ptr") and hasattr(x, "is_contiguous"):
        if str(x.dtype) != "torch.float32":
            raise InvalidArgument(f"{what}: dtype {x.dtype}: it must be torch.float32")
        if x.device.type != "cpu":
            raise InvalidArgument(f"{what}: it is on {x.device}: only memory of the host can be given to the NIC")
        if not x.is_contiguous():
            raise InvalidArgument(f"{what}: it must be contiguous")
        return x.data_ptr(), x.numel()
    raise InvalidArgument(f"{what}: {type(x).__name__}: a numpy array or a torch tensor is needed")


class Operation:
    """An operation under way. The arrays must be left alone until it is over; they are kept alive until then."""

    def __init__(self, nic, handle, held):
        self._nic, self._handle, self._held = nic, handle, held
        self._lock = threading.Lock()
        self._result = None

    def wait(self, timeout=None):
        """Waits until it is over, timeout seconds at most, and returns its Stats. Raises TimeoutError, or what went wrong."""
        left = None if timeout is None else max(float(timeout), 0.0)
        while True:
            step = 0.1 if left is None else min(left, 0.1)  # in between Python sees signals
            if self._poll(step):
                break
            if left is not None:
                left -= step
                if left <= 0:
                    raise TimeoutError("the operation is still under way")
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def done(self):
        """Whether it is over."""
        return self._poll(0)

    def _poll(self, seconds):
        with self._lock:
            if self._result is not None:
                return True
            st = library.StatsStruct()
            result = library.call("gradnic_wait", self._handle, int(seconds * 1000 + 0.999), byref(st))
            if result[0] == library.TIMEOUT:
                return False
            if result[0] == library.EFORK:
                _check(result)  # the parent's, where it may be going on
            try:
                _check(result)
                self._result = Stats(st.elapsed_ns / 1e9, st.waited_ns / 1e9, st.blocks, st.non_finite)
            except Error as e:
                self._result = e
            self._held = None
            self._nic._forget(self)
            return True


class Nic:
    """The NIC that listens on a Unix socket: `gradnic ring --host-socket PATH`. One process at a time has it.

    arena   bytes of shared memory for empty(), and for copies of other arrays
    piece   elements of a request; longer operations are cut; the same on all nodes
    timeout seconds that connecting may take

    Methods may be called from any thread. All nodes must start the same operations in the same order.
    """

    def __init__(self, path, *, arena=0, piece=0, timeout=10.0):
        self._handle = 0
        self._lock = threading.Lock()
        self._running = set()
        self._pid = os.getpid()
        handle = ctypes.c_uint64()
        options = library.Options(int(arena), int(piece), max(int(timeout * 1000), 1))
        _check(library.call("gradnic_open", os.fsencode(path), byref(options), byref(handle)))
        self._handle = handle.value

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close(wait=kind is None)

    def __del__(self):
        if getattr(self, "_handle", 0) and self._pid == os.getpid():
            self.close(wait=False)

    def __reduce__(self):
        raise TypeError("a Nic cannot be given to another process: open one there")

    def close(self, wait=True):
        """Ends the connection: after what is under way, or with wait=False at once. Arrays from empty() stay valid."""
        if self._pid != os.getpid():
            return  # a child's copy: the connection is the parent's
        if wait:
            for op in self._started():
                try:
                    op.wait()
                except Error:
                    pass  # who waits for it is told
        _check(library.call("gradnic_close", self._handle, int(wait)))
        for op in self._started():
            op.done()  # over now: lets the arrays go

    def _started(self):
        with self._lock:
            return list(self._running)

    def _forget(self, op):
        with self._lock:
            self._running.discard(op)

    def empty(self, shape):
        """A float32 array in memory that the NIC sees: operations on it, or on contiguous parts of it, copy nothing.

        torch.from_numpy makes a tensor of it. The memory is given back when the last array on it is gone.
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if any(not isinstance(n, int) or n < 0 for n in shape):
            raise InvalidArgument(f"shape {shape}")
        n = 1
        for d in shape:
            n *= d
        if n == 0:
            return numpy.empty(shape, numpy.float32)
        at = ctypes.c_size_t()
        _check(library.call("gradnic_alloc", self._handle, n, byref(at)))
        block = (ctypes.c_float * n).from_address(at.value)
        # Every array on it keeps block alive, as the base of its memory.
        weakref.finalize(block, _free, self._handle, at.value, self._pid).atexit = False
        return numpy.frombuffer(block, numpy.float32).reshape(shape)

    def start(self, data, *, weights=None, learning_rate=0.0, codec="bfp16", deadline=0.0):
        """Starts to sum data over all nodes, in place, and returns an Operation.

        With weights, as many as data, they become weights - learning_rate * sum, with one rounding, and data the same.
        data=None only waits until all nodes have got here. deadline: seconds, of each piece; 0: the NIC's own.
        """
        at, n = (0, 0) if data is None else _memory(data, "data")
        w = 0
        if weights is not None:
            w, m = _memory(weights, "weights")
            if m != n:
                raise InvalidArgument(f"{m} weights for {n} gradients")
        request = library.Request(at, n, w, learning_rate, codec.encode(), int(deadline * 1000))
        handle = ctypes.c_uint64()
        if len(self._running) >= 64:  # operations that nobody waits for: those that are over let their arrays go
            for old in self._started():
                old.done()
        with self._lock:
            _check(library.call("gradnic_start", self._handle, byref(request), byref(handle)))
            op = Operation(self, handle.value, (data, weights))
            self._running.add(op)
        return op

    def all_reduce(self, data, **options):
        """start() and wait() in one; returns the Stats."""
        return self.start(data, **options).wait()

    def barrier(self, **options):
        """Waits until all nodes have got here."""
        return self.start(None, **options).wait()

    def status(self):
        """What the NIC says of the ring."""
        s = library.StatusStruct()
        _check(library.call("gradnic_status", self._handle, byref(s)))
        return Status(s.node, list(s.nodes[: s.count]), s.generation, s.outstanding, s.phase.decode(), s.failure.decode("utf-8", "replace"))

    def reform(self, nodes):
        """Forms the ring again, of these nodes, after one has failed. All of them must be told the same."""
        nodes = list(nodes)
        if any(not isinstance(n, int) or not 0 <= n < 65535 for n in nodes):  # ctypes would cut them to 16 bits
            raise InvalidArgument(f"nodes {nodes}: numbers from 0 to 65534")
        _check(library.call("gradnic_reform", self._handle, (ctypes.c_uint16 * len(nodes))(*nodes), len(nodes)))


def _free(handle, at, pid):
    if pid == os.getpid():
        library.call("gradnic_free", handle, at)
