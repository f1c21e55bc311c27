"""All-reduce through a ring of NICs (gradnic), from Python.

    import gradnic
    with gradnic.Nic("/run/gradnic/eth1.sock") as nic:
        a = nic.empty(1 << 20)          # memory that the NIC sees: nothing is copied
        a[:] = ...
        nic.all_reduce(a)               # a is the sum over all nodes
        op = nic.start(tensor)          # numpy array or torch tensor, contiguous float32
        ...
        op.wait()

gradnic.ddp has the communication hook for PyTorch. Importing this package loads nothing; the first Nic loads
libgradnic.so, from GRADNIC_LIBRARY, or where `make lib` leaves it, or where the system's loader looks.
"""

from .nic import (
    Closed,
    Error,
    Forked,
    Gone,
    InvalidArgument,
    NoRoom,
    Nic,
    Operation,
    RequestFailed,
    Stats,
    Status,
    version,
)

__all__ = [
    "Closed",
    "Error",
    "Forked",
    "Gone",
    "InvalidArgument",
    "NoRoom",
    "Nic",
    "Operation",
    "RequestFailed",
    "Stats",
    "Status",
    "version",
]
