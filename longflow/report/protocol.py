"""In what way the numbers of a model were made otherwise than the benchmark's own, and the main facts of how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longflow.settings import FULL

Protocol = Mapping[str, Any]


def departures(protocol: Protocol) -> list[str]:
    """What departs from the benchmark's own protocol, each in a few words; nothing if it is that.

    The chat template is a choice that every run has to make, so it is a fact and no departure.
    """
    found = []
    if protocol.get("setting", FULL) != FULL:
        found.append(f"setting {protocol['setting']}")
    if isinstance(protocol.get("predictions"), str):
        found.append("predictions made elsewhere")
    if protocol.get("first_records_only"):
        found.append(f"first {protocol['first_records_only']} records only")
    if (protocol.get("data") or {}).get("records"):
        found.append(f"{protocol['data']['records']} records in each cell")
    if protocol.get("own_prompts"):
        found.append(f"own prompts: {', '.join(protocol['own_prompts'])}")
    truncation = protocol.get("truncation") or {}
    if truncation.get("why") == "max_prompt_tokens":
        found.append(f"prompt limit {truncation['max_prompt_tokens']:,} tokens, chosen by hand")
    elif truncation and truncation.get("max_prompt_tokens") is None:
        found.append("prompts sent whole")
    if (protocol.get("repeats") or 1) > 1:
        found.append(f"{protocol['repeats']} answers to each record")
    if any(each.get("seed") is not None for each in _generations(protocol)):
        found.append("sampled answers")
    options = protocol.get("metric_options") or {}
    if options.get("rouge_overflow", "reference") != "reference":
        found.append("exact ROUGE-L of very long texts")
    if options.get("code_similarity", "difflib") != "difflib":
        found.append(f"code similarity by {options['code_similarity']}")
    compute = protocol.get("compute") or {}
    if compute.get("config_overrides"):
        found.append("configuration of the model overridden")
    if compute.get("reasoning"):
        found.append("reasoning before the answer")
    if compute.get("protocol") not in (None, "longflow"):
        found.append(f"as {compute['protocol']} calls an API")
    return found


def badge(protocol: Protocol | None) -> tuple[str, str]:
    """What stands on the first screen, and whether that is the reference's way: `same`, `other` or `unknown`."""
    if protocol is None:
        return "protocol not written", "unknown"
    found = departures(protocol)
    if not found:
        return "reference protocol", "same"
    return "; ".join(found), "unknown" if found == ["predictions made elsewhere"] else "other"


def facts(protocol: Protocol) -> list[tuple[str, str]]:
    """The main facts, in words, that a reader has to know to repeat the numbers."""
    rows: list[tuple[str, str]] = []

    def tell(name: str, value: Any) -> None:
        if value not in (None, "", {}, []):
            rows.append((name, str(value)))

    truncation, compute = protocol.get("truncation") or {}, protocol.get("compute") or {}
    tell("departures", "; ".join(departures(protocol)) or "none")
    tell("predictions", protocol.get("predictions"))
    tell("chat template", (protocol.get("chat") or {}).get("chat"))
    if truncation:
        limit = truncation.get("max_prompt_tokens")
        tell("prompt limit", "none" if limit is None else f"{limit:,} tokens ({truncation.get('why')})")
        tell("truncation", truncation.get("rule"))
    tell("engine", compute.get("engine"))
    tell("dtype, attention, decoding", _joined(compute, "dtype", "attention", "decode"))
    temperatures = {each.get("temperature") for each in _generations(protocol)} - {None}
    tell("temperature", ", ".join(sorted(map(str, temperatures))))
    limits = sorted({int(each["max_new_tokens"]) for each in _generations(protocol) if each.get("max_new_tokens")})
    tell("answer tokens at most", ", ".join(map(str, limits)))
    tell("metrics", ", ".join(sorted({str(name) for name in (protocol.get("metrics") or {}).values()})))
    tell("libraries", "; ".join(map(str, protocol.get("libraries") or [])))
    tell("longflow", protocol.get("longflow"))
    return rows


def _generations(protocol: Protocol) -> list[Mapping[str, Any]]:
    return [each for each in (protocol.get("generation") or {}).values() if isinstance(each, Mapping)]


def _joined(value: Mapping[str, Any], *names: str) -> str:
    return ", ".join(str(value[name]) for name in names if value.get(name) is not None)
