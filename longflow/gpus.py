"""Devices for jobs on one machine: who has which GPU.

Snakemake counts GPUs but does not say which one a job gets, so that every job would use the first. A lease is a lock on
a file per device, held by the job itself: however it dies, the kernel gives the device back. Under SLURM the
scheduler's choice stands; an allocation of more devices than a job needs is dealt out like a machine.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from longflow.errors import UserError


def lease_folder(allocation: str | None = None) -> Path:
    """Where the locks are: one folder per user and machine, or per SLURM allocation, which numbers its own devices."""
    return Path(tempfile.gettempdir()) / "-".join(["longflow-gpus", str(os.getuid()), *filter(None, [allocation])])


def visible_devices(environment: Mapping[str, str]) -> list[str]:
    """The devices this process may use: CUDA_VISIBLE_DEVICES if set, else all that nvidia-smi lists."""
    given = environment.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        names = [name.strip() for name in given.split(",") if name.strip()]
        # CUDA sees nothing from -1 on, and a device named twice is one device.
        return list(dict.fromkeys(names[: names.index("-1")] if "-1" in names else names))
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, "--query-gpu=index", "--format=csv,noheader"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    return listed.stdout.split() if listed.returncode == 0 else []


def try_lease(devices: list[str], count: int, folder: Path) -> list[tuple[str, int]] | None:
    """Lock `count` of the devices at once, or none: pairs of device and open lock, or None if too few are free.

    All or nothing under one mutex, so that two jobs of two GPUs each cannot wait for each other for ever.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    with open(folder / "mutex", "w") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        held: list[tuple[str, int]] = []
        for device in devices:
            lock = os.open(folder / f"gpu-{device.replace('/', '_')}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                continue
            held.append((device, lock))
            if len(held) == count:
                return held
        for _, lock in held:
            os.close(lock)
        return None


def lease(count: int, environment: Mapping[str, str], timeout: float) -> dict[str, str]:
    """Wait for `count` devices and return the environment of a job that has them.

    The locks stay open in this process and in what it becomes by exec, and in the children of that: a device is free
    again when the last of them is gone.

    Args:
        count: GPUs wanted; 0 hides all of them.
        environment: the environment so far.
        timeout: seconds to wait before giving up.

    Raises UserError if there are fewer devices than wanted, or none became free in time.
    """
    if count == 0:
        return {**environment, "CUDA_VISIBLE_DEVICES": ""}
    devices = visible_devices(environment)
    allocation = environment.get("SLURM_JOB_ID")
    if allocation is not None and len(devices) <= count:
        return dict(environment)
    if len(devices) < count:
        raise UserError(
            f"{count} GPUs are needed and {len(devices)} are here ({', '.join(devices) or 'none'}); "
            "lower the model's gpu: or run on a machine that has them"
        )
    deadline = time.monotonic() + timeout
    folder = lease_folder(allocation)
    while (held := try_lease(devices, count, folder)) is None:
        if time.monotonic() > deadline:
            raise UserError(
                f"no {count} of the GPUs {', '.join(devices)} became free within {timeout:.0f} s; other jobs of this "
                f"user hold their locks in {folder}"
            )
        time.sleep(0.5)
    for _, lock in held:
        os.set_inheritable(lock, True)
    return {**environment, "CUDA_VISIBLE_DEVICES": ",".join(device for device, _ in held)}
