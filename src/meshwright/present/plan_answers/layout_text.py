"""Format the choices of a plan in a few words."""

from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.plans.context_parallel import Context
from meshwright.plans.forms.short import DEFAULT_RANK_ORDER, Schedule

DEGREES = ("pp", "tp", "cp", "dp_replicate", "dp_shard", "ep", "etp")


def plan_words(plan: Mapping[str, Any]) -> str:
    """Return the choices of a plan in its short form in a few words; of a plan in long form only that it is one."""
    if "layout" not in plan:
        return "a plan in long form"
    pipeline = plan["pipeline"]
    return ", ".join(
        [
            layout_words(plan["layout"]),
            pipeline_words(pipeline),
            f"micro-batch {pipeline['micro_batch']}",
            plan["sharding"],
            f"recompute {recompute_words({'plan': plan})}",
        ]
    )


def recompute_words(proposal: dict[str, Any]) -> str:
    """Return what all layers recompute, where stages differ from the first one on, and states on the host."""
    return _recompute(proposal) + _host_states(proposal["plan"].get("offload") or {})


def _host_states(offload: dict[str, Any]) -> str:
    """Return the states on the host, behind a comma."""
    shares = {name: offload.get(name) or "none" for name in ("optimizer", "parameters")}
    there = [f"{name} {share}" for name, share in shares.items() if share not in ("none", 0.0)]
    return f", on the host {' and '.join(there)}" if there else ""


def _recompute(proposal: dict[str, Any]) -> str:
    if proposal.get("long") is None:
        return _recomputed(proposal["plan"]["recompute"])
    rules = [rule for key, rule in proposal["long"]["layers"].items() if key not in ("embed", "head")]
    return " ".join(dict.fromkeys(_recomputed(rule["recompute"]) for rule in rules))


def _recomputed(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else ",".join(value)


def pipeline_words(pipeline: dict[str, Any]) -> str:
    """Return the schedule and its virtual stages, as ``interleaved-1f1b ×2``."""
    chunks = pipeline["virtual_stages"]
    return schedule_words(pipeline["schedule"]) + (f" ×{chunks}" if chunks > 1 else "")


def layout_words(layout: dict[str, Any]) -> str:
    """Return the degrees above 1, as ``pp4 tp4 dp_shard8``, and what is unusual about them."""
    words = [f"{d}{layout[d]}" for d in DEGREES if layout[d] > 1]
    words += ["sp off"] if layout["tp"] > 1 and layout["sequence_parallel"] is False else []
    if layout["cp"] > 1 and layout.get("context"):
        words.append(context_words(layout["context"]))
    order = [axis for axis in layout["rank_order"] if layout[axis] > 1]
    words += [] if order == [a for a in DEFAULT_RANK_ORDER if layout[a] > 1] else ["order", *order]
    return " ".join(words) or "one device"


def meshes_text(part: Mapping[str, Any]) -> str:
    """Return both meshes of a part of a Program, as ``dp_shard 4 × tp 2``."""
    meshes = [part[name] for name in ("mesh", "expert_mesh") if part[name]]
    return ", ".join(" × ".join(f"{axis} {n}" for axis, n in mesh.items()) for mesh in meshes) or "one rank"


def context_words(context: str | dict[str, Any]) -> str:
    """Return a form of context parallelism, as ``ring+ulysses4``."""
    return context if isinstance(context, str) else str(Context.model_validate(context))


def schedule_words(schedule: str | dict[str, Any]) -> str:
    """Return a plan's schedule, as ``1f1b`` or ``zero-bubble (memory limit 0.5)``."""
    if isinstance(schedule, str):
        return schedule
    return str(Schedule.model_validate(schedule, strict=False).choice)


def dtype_lines(plans: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each proposal that changes the element types of states."""
    return [
        f"  {number}: dtypes " + ", ".join(f"{key} {word}" for key, word in dtypes.items())
        for number, proposal in enumerate(plans, 1)
        if (dtypes := proposal["plan"].get("dtypes"))
    ]
