"""What a job asks SLURM for: the scheduler's options of a model, and the Snakemake resources that they become.

Memory, time, GPUs and CPU threads stand in the model's entry itself, since they mean something on any machine; here is
what only a cluster knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

ByLength = str | dict[str, str] | None
"""One text for all lengths, or one for each length level; lengths that are left out get the site's default."""

RESOURCES = {
    "slurm_partition": "partition",
    "slurm_account": "account",
    "gpu_model": "gpu_model",
    "qos": "qos",
    "constraint": "constraint",
    "slurm_extra": "extra",
}
"""Snakemake's resources, as snakemake-executor-plugin-slurm 2.8 names them, and the keys that give them."""


class SlurmOptions(BaseModel):
    """Options of a model's jobs under SLURM. Elsewhere they mean nothing, and they never run anything again."""

    model_config = ConfigDict(extra="forbid", strict=True)

    partition: ByLength = Field(None, description="Partition, in all or by length.")
    account: ByLength = Field(None, description="Account that is charged.")
    gpu_model: ByLength = Field(None, description="Kind of GPU as the site names it (sinfo -o %G), for jobs with GPUs.")
    qos: ByLength = Field(None, description="Quality of service.")
    constraint: ByLength = Field(None, description="Features that the node must have.")
    extra: ByLength = Field(None, description="Further options of sbatch, such as --exclusive.")

    @field_validator("*")
    @classmethod
    def _one_line_each(cls, value: ByLength) -> ByLength:
        for text in value.values() if isinstance(value, dict) else [value]:
            if text is not None and (not text.strip() or re.search(r"[\x00-\x1f]", text)):
                raise ValueError("one line of text was expected; leave the key out for the site's default")
        return value

    @field_validator("gpu_model")
    @classmethod
    def _a_kind_of_gpu(cls, value: ByLength) -> ByLength:
        for text in value.values() if isinstance(value, dict) else [value]:
            if text is not None and not re.fullmatch(r"[A-Za-z0-9_.]+", text):
                raise ValueError("a kind of GPU was expected, without a number (that is the model's gpu:)")
        return value

    def by_length(self) -> Iterator[tuple[str, dict[str, str]]]:
        """The keys that give a text for each length, with these."""
        for key in RESOURCES.values():
            value = getattr(self, key)
            if isinstance(value, dict):
                yield key, value


def resources(entry: Any, length: str) -> dict[str, str]:
    """The resources of a job of the model `entry` at a length; what the configuration is silent on is left out.

    A kind of GPU is asked for only by jobs that ask for GPUs: SLURM refuses none of a kind.
    """
    options: SlurmOptions | None = entry.slurm
    if options is None:
        return {}
    found: dict[str, str] = {}
    for resource, key in RESOURCES.items():
        value = getattr(options, key)
        text = value.get(length) if isinstance(value, dict) else value
        if text is not None and (resource != "gpu_model" or entry.gpu > 0):
            found[resource] = text
    return found
