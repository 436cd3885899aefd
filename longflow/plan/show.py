"""A plan in words."""

from __future__ import annotations

from typing import Any

from longflow.progress import duration


def describe(plan: dict[str, Any]) -> str:
    """The plan for people, a paragraph for each model."""
    lines: list[str] = []
    for name, model in plan["models"].items():
        lines.append(f"{name} ({model['engine']}): {model['cells']} cells")
        if model["engine"] != "imported":
            lines += [f"  {line}" for line in _model(plan, model)]
    if plan["first_records_only"] is not None:
        lines.append(f"Of each cell the first {plan['first_records_only']} records only (run.limit).")
    return "\n".join(lines)


def _model(plan: dict[str, Any], model: dict[str, Any]) -> list[str]:
    known = model["in_journal"]
    kept = (
        "what the journal has cannot be told before the model is here" if known is None else f"{known:,} in the journal"
    )
    total, shared = model["to_prefill"], model["shared_tokens"]
    part = f"{shared / total:.0%}" if total else "0%"
    lines = [
        f"calls     {model['calls']:,} for {model['records']:,} records; {kept}",
        f"tokens    {total:,} of prompts to prefill ({_basis(model)}); {model['truncated']:,} prompts are cut; "
        f"answers of at most {model['answer_tokens_at_most']:,}",
        f"shared    {part} of them stand at the beginning of another prompt of the job"
        + (f"; {model['reused_tokens']:,} are not computed again" if model["engine"] == "transformers" else ""),
    ]
    longest = f"memory    longest prompt {model['longest_prompt']:,} tokens"
    if model["memory_mb"] is None:
        lines.append(f"{longest}; its need cannot be told ({model['memory_unknown']})")
    else:
        on = "on each GPU" if model["gpus"]["configured"] else "of the process"
        lines.append(f"{longest}: {model['memory_mb']['total'] / 1024:,.1f} GiB {on} ({model['memory_words']})")
    if model["not_counted"]:
        lines.append(f"note      {model['not_counted']}")
    if model["gpus"]["configured"]:
        lines.append(_gpus(plan, model["gpus"]))
    lines.append(_hours(model["hours"]))
    if model["money"] is not None:
        expected = model["money"]["expected"]
        lines.append(
            f"money     at most {model['money']['at_most']:,.2f}"
            + ("" if expected is None else f", {expected:,.2f} with answers as long as those so far")
        )
    return lines


def _basis(model: dict[str, Any]) -> str:
    words = {
        "counted": "counted",
        "records": "estimated from the records' lengths",
        "table": "estimated from the lengths that the benchmark states",
    }
    said = ", in part ".join(words[name] for name in model["basis"]) or "none"
    return f"{said}, ±{model['error']:.0%}" if model["error"] else said


def _gpus(plan: dict[str, Any], gpus: dict[str, Any]) -> str:
    here = plan["gpus_here"]
    text = f"GPUs      {gpus['configured']} for each job"
    if plan["gpu_memory_mb"] is None:
        return f"{text}; whether they are enough cannot be told here: give --gpu-memory, in GiB"
    size = f"{plan['gpu_memory_mb'] / 1024:.0f} GiB"
    if gpus["needed"] is None:
        text += f"; how many of {size} are needed cannot be told"
    else:
        enough = "enough" if gpus["needed"] <= gpus["configured"] else "not enough"
        text += f"; {gpus['needed']} of {size} needed: {enough}"
    if here and here < gpus["configured"]:
        text += f"; {here} are here"
    return text


def _hours(hours: dict[str, Any] | None) -> str:
    if hours is None:
        return "time      no rate known: run a cell first, or give --prefill-rate and --decode-rate"
    gpu = f" ({hours['gpu_hours']:,.2f} GPU hours)" if hours["gpu_hours"] else ""
    basis = {
        "given": "at the rates given, with answers as long as they may be",
        "given, without answers": "at the rate given, without answers (--decode-rate adds them)",
        "measured": f"at the rate of the {hours['cells_measured']} cells that have run, answers included",
        "nothing to do": "nothing is to be computed",
    }[hours["basis"]]
    return f"time      {duration(hours['hours'] * 3600)}, one job after another{gpu}, {basis}"
