"""Faults that can be injected."""

from __future__ import annotations

import difflib
from enum import StrEnum

from tgi_deploy.errors import InputError


class Fault(StrEnum):
    OOM_LOAD = "oom-load"
    OOM_WARMUP = "oom-warmup"
    BAD_FLAG = "bad-flag"
    GATED = "gated"
    DISK_FULL = "disk-full"
    NETWORK = "network"
    SHM_TOO_SMALL = "shm-too-small"
    NCCL_HANG = "nccl-hang"
    HANG_SHARD = "hang-shard"
    OOM_SERVING = "oom-serving"
    CRASH_AFTER_READY = "crash-after-ready"
    SLOW_DOWNLOAD = "slow-download"
    WRONG_MODEL = "wrong-model"
    NO_CHAT_TEMPLATE = "no-chat-template"
    OVERLOADED = "overloaded"


def parse_faults(names: list[str]) -> frozenset[Fault]:
    """Parse fault names.

    Raises:
        InputError: "unknown_fault".
    """
    known = [fault.value for fault in Fault]
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"one of: {', '.join(known)}"
            raise InputError("unknown_fault", f"the stub server has no fault {name!r}", hint=hint)
    return frozenset(Fault(name) for name in names)
