"""Thinking models: what was thought is kept apart from what was answered, and only the answer is scored."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator


class Markers(BaseModel):
    """How a model marks its reasoning."""

    model_config = ConfigDict(extra="forbid", strict=True)

    start: str = Field("<think>", min_length=1, description="What begins the reasoning; a chat template may write it.")
    end: str = Field("</think>", min_length=1, description="What ends it.")

    @field_validator("end")
    @classmethod
    def _another_one(cls, value: str, info: ValidationInfo) -> str:
        if value == info.data.get("start"):
            raise ValueError("a text other than the one that begins the reasoning was expected")
        return value


class Reasoning(Markers):
    """How a model marks its reasoning, and how long it may reason."""

    max_tokens: int = Field(ge=1, description="Tokens for the reasoning, beside those of the answer.")


@dataclass(frozen=True)
class Thought:
    """A model's text taken apart. `closed` is False where it ends inside the reasoning, so that there is no answer."""

    answer: str
    reasoning: str
    closed: bool


def take_apart(text: str, finish_reason: str, markers: Markers) -> Thought:
    """The reasoning and the answer of a text.

    The answer is what follows the last end marker, without white space around it. A text without an end marker is an
    answer without reasoning only if the model came to its end and never began to reason; cut off at the token limit, or
    begun and not ended, it is reasoning that never closed, and its answer is empty, whatever words stand in it.
    """
    before, end, after = text.rpartition(markers.end)
    if end:
        return Thought(after.strip(), before.removeprefix(markers.start).strip(), True)
    if markers.start in text or finish_reason == "length":
        return Thought("", text.removeprefix(markers.start).strip(), False)
    return Thought(text, "", True)
