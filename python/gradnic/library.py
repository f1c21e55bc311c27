"""libgradnic.so through ctypes: gradnic.h line by line, and nothing more."""

import ctypes
import os
import pathlib
import threading
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint16, c_uint32, c_uint64

ABI = 1
OK, TIMEOUT = 0, 1
EINVAL, EGONE, ECLOSED, EREQUEST, EFORK, ENOMEM, EOTHER = -1, -2, -3, -4, -5, -6, -7
MAX_NODES = 64


class Options(Structure):
    _fields_ = [("arena", c_int64), ("piece", c_int64), ("timeout_ms", c_int64)]


class Request(Structure):
    _fields_ = [
        ("data", c_size_t),
        ("count", c_uint64),
        ("weights", c_size_t),
        ("learning_rate", c_float),
        ("codec", c_char_p),
        ("deadline_ms", c_int64),
    ]


class StatsStruct(Structure):
    _fields_ = [("elapsed_ns", c_uint64), ("waited_ns", c_uint64), ("blocks", c_uint64), ("non_finite", c_uint64)]


class StatusStruct(Structure):
    _fields_ = [
        ("node", c_uint32),
        ("count", c_uint32),
        ("nodes", c_uint16 * MAX_NODES),
        ("generation", c_uint32),
        ("outstanding", c_uint32),
        ("phase", c_char * 16),
        ("failure", c_char * 512),
    ]


_TEXT = [c_char_p, c_size_t]
_FUNCTIONS = {
    "gradnic_abi": (c_int, []),
    "gradnic_version": (c_char_p, []),
    "gradnic_open": (c_int, [c_char_p, POINTER(Options), POINTER(c_uint64)] + _TEXT),
    "gradnic_close": (c_int, [c_uint64, c_int] + _TEXT),
    "gradnic_alloc": (c_int, [c_uint64, c_uint64, POINTER(c_size_t)] + _TEXT),
    "gradnic_free": (c_int, [c_uint64, c_size_t] + _TEXT),
    "gradnic_start": (c_int, [c_uint64, POINTER(Request), POINTER(c_uint64)] + _TEXT),
    "gradnic_wait": (c_int, [c_uint64, c_int64, POINTER(StatsStruct)] + _TEXT),
    "gradnic_status": (c_int, [c_uint64, POINTER(StatusStruct)] + _TEXT),
    "gradnic_reform": (c_int, [c_uint64, POINTER(c_uint16), c_size_t] + _TEXT),
}

_lock = threading.Lock()
_loaded = None


def _candidates():
    if os.environ.get("GRADNIC_LIBRARY"):
        return [os.environ["GRADNIC_LIBRARY"]]
    build = pathlib.Path(__file__).resolve().parents[2] / "build" / "libgradnic.so"
    return ([str(build)] if build.exists() else []) + ["libgradnic.so"]


def load():
    """The library, loaded once a process. A forked child has its parent's, which refuses work."""
    global _loaded
    with _lock:
        if _loaded is None:
            for name in _candidates():
                try:
                    lib = ctypes.CDLL(name)
                    break
                except OSError as e:
                    why = e
            else:
                raise OSError(f"libgradnic.so cannot be loaded; build it with `make lib` or set GRADNIC_LIBRARY: {why}")
            try:
                if lib.gradnic_abi() != ABI:
                    raise OSError(f"{lib._name} has interface {lib.gradnic_abi()}; this package is for {ABI}: build both from one checkout")
                for name, (result, arguments) in _FUNCTIONS.items():
                    f = getattr(lib, name)
                    f.restype, f.argtypes = result, arguments
            except AttributeError as e:
                raise OSError(f"this is not gradnic's library: {e}") from None
            _loaded = lib
        return _loaded


def call(name, *args):
    """Calls a function that ends in (err, errlen). Returns its number and the text of an error."""
    text = ctypes.create_string_buffer(1024)
    status = getattr(load(), name)(*args, text, len(text))
    return status, text.value.decode("utf-8", "replace")


__all__ = ["Options", "Request", "StatsStruct", "StatusStruct", "byref", "call", "load"]
