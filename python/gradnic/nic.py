"""A process's connection to its NIC."""

import ctypes
import dataclasses
import math
import operator
import os
import threading
import time
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
    non_finite: int  # sums made at this node that were infinite or NaN, a hop and element each


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


def _milliseconds(seconds, what):
    """A time as the library takes it: rounded up, so that only 0 is 0."""
    try:
        ms = math.ceil(seconds * 1000)
    except (TypeError, ValueError, OverflowError):  # no number, NaN, infinite
        ms = -1
    if not 0 <= ms <= 1 << 40:
        raise InvalidArgument(f"{what} {seconds!r}: it must be seconds, from 0 up")
    return ms


def _whole(numbers):
    """A whole number, or several, as a tuple of int; None for what is none."""
    try:
        return (operator.index(numbers),)
    except TypeError:
        pass
    try:
        return tuple(operator.index(n) for n in numbers)
    except TypeError:
        return None


def _memory(x, what):
    """Address and elements of a contiguous float32 numpy array or torch tensor on the CPU that can be written."""
    if isinstance(x, numpy.ndarray):
        if x.dtype != numpy.float32 or not x.dtype.isnative:
            raise InvalidArgument(f"{what}: dtype {x.dtype}: it must be float32; sum a float32 copy, and copy that back")
        if not x.flags.c_contiguous:
            raise InvalidArgument(f"{what}: it must be contiguous; numpy.ascontiguousarray makes a copy that is")
        if not x.flags.writeable:
            raise InvalidArgument(f"{what}: it cannot be written")
        return x.ctypes.data, x.size
    if hasattr(x, "data_ptr") and hasattr(x, "is_contiguous"):
        if str(x.dtype) != "torch.float32":
            raise InvalidArgument(f"{what}: dtype {x.dtype}: it must be torch.float32; sum its float(), and copy that back")
        if str(x.layout) != "torch.strided":
            raise InvalidArgument(f"{what}: layout {x.layout}: only dense tensors can be summed, such as its to_dense()")
        if x.device.type != "cpu":
            raise InvalidArgument(f"{what}: it is on {x.device}: only memory of the host can be given to the NIC")
        if not x.is_contiguous():
            raise InvalidArgument(f"{what}: it must be contiguous; its contiguous() is a copy that is")
        if x.is_neg():
            raise InvalidArgument(f"{what}: a view that negates; its resolve_neg() is a copy that does not")
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
        end = None if timeout is None else time.monotonic() + max(float(timeout), 0.0)
        if end is not None and math.isnan(end):
            raise InvalidArgument("timeout nan: it must be seconds")
        while True:
            left = 0.1 if end is None else min(max(end - time.monotonic(), 0.0), 0.1)
            if self._poll(left):  # 0.1 s at most: in between Python sees signals
                break
            if end is not None and time.monotonic() >= end:
                raise TimeoutError("the operation is still under way")
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def done(self):
        """Whether it is over."""
        return self._poll(0)

    def _poll(self, seconds):
        # While another thread waits for it, that one learns of the end, and done() must not wait along.
        if not (self._lock.acquire(timeout=seconds) if seconds > 0 else self._lock.acquire(blocking=False)):
            if self._nic._pid != os.getpid():
                raise Forked("this process was forked while another thread waited for the operation: start it with spawn or exec instead")
            return self._result is not None
        try:
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
        finally:
            self._lock.release()


def _open(path, options):
    """gradnic_open, whose handle is returned, on a thread of its own: Python sees signals meanwhile."""
    handle, lock, result, left = ctypes.c_uint64(), threading.Lock(), [], []

    def run():
        got = library.call("gradnic_open", path, byref(options), byref(handle))
        with lock:
            result.append(got)
            if left and got[0] == library.OK:
                library.call("gradnic_close", handle.value, 0)

    library.load()  # what it raises is the caller's
    thread = threading.Thread(target=run, name="gradnic-open", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:  # Ctrl-C
        with lock:
            left.append(True)
            if result and result[0][0] == library.OK:
                library.call("gradnic_close", handle.value, 0)
        raise
    _check(result[0])
    return handle.value


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
        path = os.fsencode(path)
        if b"\0" in path:
            raise InvalidArgument(f"path {path!r}: no path has a zero byte")
        self._handle = _open(path, library.Options(int(arena), int(piece), max(_milliseconds(timeout, "timeout"), 1)))

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
        whole = _whole(shape)
        n = -1 if whole is None or min(whole, default=0) < 0 else math.prod(whole)
        if not 0 <= n <= 1 << 60:
            raise InvalidArgument(f"shape {shape!r}: it must be a whole number from 0 up, or several")
        shape = whole
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
        if not isinstance(codec, str):
            raise InvalidArgument(f'codec {codec!r}: it must be a name, such as "none" or "bfp16"')
        request = library.Request(at, n, w, learning_rate, codec.encode(), _milliseconds(deadline, "deadline"))
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
        whole = _whole(nodes)
        if whole is None or any(not 0 <= n < 65535 for n in whole):  # ctypes would cut them to 16 bits
            raise InvalidArgument(f"nodes {nodes!r}: they must be whole numbers from 0 to 65534")
        _check(library.call("gradnic_reform", self._handle, (ctypes.c_uint16 * len(whole))(*whole), len(whole)))


def _free(handle, at, pid):
    if pid == os.getpid():
        library.call("gradnic_free", handle, at)
