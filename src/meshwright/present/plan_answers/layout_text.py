"""Format the choices of a plan in a few words."""

from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.plans.context_parallel import Context
from meshwright.plans.forms.conversion import short_of_only_layout
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import DEFAULT_RANK_ORDER, Schedule
from meshwright.plans.layers.layout_by_layer import format_named_layouts, layers_of_rules
from meshwright.plans.layers.plan_of_layout import plan_of_main_layout
from meshwright.plans.layers.recompute_by_layer import format_layer_recomputes, layer_recomputes
from meshwright.plans.layers.uneven_partition import stages_in_words
from meshwright.plans.synchronisation.exchange_text import LOSS_REMARK, entries_text
from meshwright.plans.synchronisation.synchronisation import Synchronisation

DEGREES = ("pp", "tp", "cp", "dp_replicate", "dp_shard", "ep", "etp")


def plan_words(plan: Mapping[str, Any]) -> str:
    """Return the choices of a plan in a few words; of one in long form also its layouts, and what differs by layer."""
    if "layout" in plan:
        return ", ".join(_choices(plan, recompute_words({"plan": plan})))
    long = LongPlan.model_validate(plan, strict=False)
    recompute = format_layer_recomputes(layer_recomputes(long, layers_of_rules(long)))
    choices = _choices(short_of_only_layout(plan_of_main_layout(long)).to_data(), recompute)
    if len(long.layouts) > 1:
        ranks = [f"pp{long.pipeline.ranks}"] if long.pipeline.ranks > 1 else []
        _, schedule, _, _, again, *_ = choices
        choices = [
            format_named_layouts(long),
            *ranks,
            schedule,
            f"micro-batch {long.pipeline.micro_batch}",
            again,
        ]
    stages = long.pipeline.stages
    return ", ".join([*choices, *([] if stages == "balanced" else [f"stages {stages_in_words(stages)}"])])


def proposal_words(proposal: Mapping[str, Any]) -> str:
    """Return the choices of a proposed plan in a few words; with several layouts, each with its layers."""
    if _has_layouts(proposal):
        return plan_words(proposal["long"])
    return ", ".join(_choices(proposal["plan"], recompute_words(dict(proposal))))


def proposal_layout_words(proposal: Mapping[str, Any]) -> str:
    """Return the degrees of a proposed plan, how many entries it has, and with several layouts how many others.

    Those of most layers are shown.
    """
    words = layout_words(proposal["plan"]["layout"])
    others = len(proposal["long"]["layouts"]) - 1 if _has_layouts(proposal) else 0
    words += f" +{others} layout{'s' if others > 1 else ''}" if others else ""
    return words + (" +synchronise" if proposal["plan"].get("synchronise") else "")


def _has_layouts(proposal: Mapping[str, Any]) -> bool:
    """Return true if layers of a proposed plan have several layouts."""
    return proposal.get("long") is not None and len(proposal["long"]["layouts"]) > 1


def _choices(plan: Mapping[str, Any], recompute: str) -> list[str]:
    """Return degrees, schedule, micro-batch, sharding and recomputation of a plan in its short form."""
    pipeline = plan["pipeline"]
    return [
        layout_words(plan["layout"]),
        pipeline_words(pipeline),
        f"micro-batch {pipeline['micro_batch']}",
        plan["sharding"],
        f"recompute {recompute}",
        *([f"synchronise {synchronise_words(plan)}"] if plan.get("synchronise") else []),
    ]


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


def sequences_text(part: Mapping[str, Any]) -> str:
    """Return the sequences of a replica of a part, or those of each."""
    return ", ".join(map(str, part["batch_share"] or [part["sequences_per_replica"]]))


def context_words(context: str | dict[str, Any]) -> str:
    """Return a form of context parallelism, as ``ring+ulysses4``."""
    return context if isinstance(context, str) else str(Context.model_validate(context))


def schedule_words(schedule: str | dict[str, Any]) -> str:
    """Return a plan's schedule, as ``1f1b`` or ``zero-bubble (memory limit 0.5)``."""
    if isinstance(schedule, str):
        return schedule
    return str(Schedule.model_validate(schedule, strict=False).choice)


def synchronise_words(plan: Mapping[str, Any]) -> str:
    """Return the entries of a plan as its file has them, without defaults."""
    return entries_text(Synchronisation.model_validate(entry, strict=False) for entry in plan["synchronise"])


def synchronise_lines(plans: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each list of entries with the numbers of its proposals, and one on the loss."""
    numbers: dict[str, list[str]] = {}
    for number, proposal in enumerate(plans, 1):
        if proposal["plan"].get("synchronise"):
            numbers.setdefault(synchronise_words(proposal["plan"]), []).append(str(number))
    lines = [f"  {', '.join(of)}: synchronise {words}" for words, of in numbers.items()]
    return [*lines, f"  {LOSS_REMARK}"] if lines else []


def dtype_lines(plans: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each proposal that changes the element types of states."""
    return [
        f"  {number}: dtypes " + ", ".join(f"{key} {word}" for key, word in dtypes.items())
        for number, proposal in enumerate(plans, 1)
        if (dtypes := proposal["plan"].get("dtypes"))
    ]
