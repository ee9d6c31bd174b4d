"""Finds this computer's NVIDIA GPUs, through NVML, else through `nvidia-smi`."""

from __future__ import annotations

import csv
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import DeployError
from tgi_deploy.values.hardware import LocalGpu

if TYPE_CHECKING:
    from collections.abc import Iterator

_MIB: Final = 2**20
_SMI_TIMEOUT_S: Final = 30
# A driver without a GPU prints this; the exit code depends on its version.
_NONE: Final = "No devices were found"
_FIELDS: Final = ("index", "uuid", "name", "memory.total", "memory.used", "compute_cap", "mig.mode.current")


def local_gpus() -> tuple[LocalGpu, ...]:
    """Return the GPUs in the driver's order; empty without a driver.

    Raises DeployError `gpus_unreadable` if the driver doesn't answer.
    """
    try:
        import pynvml  # noqa: PLC0415 -- only planning for this computer's own GPUs asks for them
    except ImportError:
        return _by_smi()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return _by_smi()
    try:
        return tuple(_by_nvml(pynvml))
    except pynvml.NVMLError as error:
        raise _unreadable(str(error)) from error
    finally:
        pynvml.nvmlShutdown()


def _by_nvml(nvml: Any) -> Iterator[LocalGpu]:  # noqa: ANN401 -- the library as a module, which has no types
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        yield LocalGpu(
            index=index,
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            name=_text(nvml.nvmlDeviceGetName(handle)),
            memory_bytes=int(memory.total),
            used_bytes=int(memory.used),
            compute_capability=f"{major}.{minor}",
            mig=_mig(nvml, handle),
        )


def _mig(nvml: Any, handle: object) -> bool:  # noqa: ANN401 -- see _by_nvml
    """Return whether MIG is on; most GPUs don't support it and report an error."""
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:
        return False
    return bool(current)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _by_smi() -> tuple[LocalGpu, ...]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        done = subprocess.run(  # noqa: S603 -- found on the PATH, as a person would
            [program, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, errors="replace", timeout=_SMI_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unreadable(str(error)) from error
    if _NONE in done.stdout:
        return ()
    if done.returncode != 0:
        raise _unreadable(f"nvidia-smi: {(done.stdout + done.stderr).strip()[:200] or f'code {done.returncode}'}")
    return tuple(_row(row) for row in csv.reader(done.stdout.splitlines(), skipinitialspace=True) if row)


def _row(row: list[str]) -> LocalGpu:
    try:
        index, uuid, name, total, used, capability, mig = row
        return LocalGpu(
            index=int(index),
            uuid=uuid,
            name=name,
            memory_bytes=int(total) * _MIB,
            used_bytes=int(used) * _MIB if used.isdecimal() else None,
            compute_capability=capability if capability[:1].isdecimal() else None,
            mig=mig == "Enabled",
        )
    except ValueError as error:
        raise _unreadable(f"nvidia-smi wrote {', '.join(row)[:200]!r}") from error


def _unreadable(why: str) -> DeployError:
    return DeployError(
        "gpus_unreadable",
        f"looking for this computer's GPUs failed: {why}",
        hint="'nvidia-smi' must work first (a driver update needs a restart); --hardware NxGPU plans without detection",
    )
