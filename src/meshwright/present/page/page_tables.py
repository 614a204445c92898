"""The tables behind the charts of a page, from the report's document."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from meshwright.present.console import percent, plain_table
from meshwright.present.plan_answers.layout_text import meshes_text, plan_words, sequences_text
from meshwright.units import format_bytes, format_seconds

Data = Mapping[str, Any]


def against_table(rows: Iterable[Data]) -> Table:
    """Return the plans that are compared: step, cost, days and the risk of not fitting."""
    table = plain_table(
        "plan", "choices", "step", "80 %", "cost", "days", "memory", "risk of not fitting", texts=("choices",)
    )
    for row in rows:
        table.add_row(
            escape(row["name"]),
            escape(plan_words(row["plan"])),
            format_seconds(row["step_time_s"]),
            _between(row["step_time_low_s"], row["step_time_high_s"], format_seconds),
            _cost(row),
            "–" if row["days"] is None else f"{row['days']['value']:,.1f}",
            format_bytes(row["memory_bytes"]),
            percent(row["risk_of_not_fitting"]),
        )
    return table


def _cost(row: Data) -> str:
    if row["usd"] is not None:
        return f"${row['usd']['value']:,.0f}"
    return "–" if row["usd_per_step"] is None else f"${row['usd_per_step']:,.4f} per step"


def _between(low: float | None, high: float | None, shown: Any) -> str:
    return "–" if low is None or high is None else f"{shown(low)} to {shown(high)}"


def axes_table(layout: Data) -> Table:
    """Return the axes of the mesh: size, where their groups are, and the first one."""
    table = plain_table("axis", "size", "groups", "nodes of a group", "first group", texts=("first group",))
    for axis in layout["axes"]:
        group = axis["first_group"]
        shown = ", ".join(map(str, group[:8])) + (f", … {group[-1]}" if len(group) > 8 else "")
        groups, nodes = f"{axis['groups']:,}", str(axis["nodes_of_group"])
        table.add_row(axis["axis"], f"{axis['size']:,}", groups, nodes, shown)
    return table


def parts_table(parts: Sequence[Data]) -> Table:
    """Return the layouts of each pipeline rank with their blocks."""
    columns = "layout", "pipeline rank", "blocks", "mesh", "sharding", "sequences of a replica"
    table = plain_table(*columns, texts=("blocks", "mesh", "sharding"))
    for part in parts:
        table.add_row(
            escape(part["layout"]),
            str(part["pipeline_rank"]),
            part["blocks"],
            meshes_text(part),
            part["sharding"],
            sequences_text(part),
        )
    return table


def reshards_table(reshards: Sequence[Data]) -> Table:
    """Return the changes of layout with the bytes that all ranks move for a micro-batch."""
    table = plain_table("change of layout", "blocks", "pipeline ranks", "forward", "backward")
    for one in reshards:
        ranks = sorted({one["from_pipeline_rank"], one["to_pipeline_rank"]})
        table.add_row(
            escape(f"{one['from']} to {one['to']}"),
            f"{one['before']} to {one['after']}",
            ", ".join(map(str, ranks)),
            format_bytes(one["forward_bytes"]),
            format_bytes(one["backward_bytes"]),
        )
    return table


def actions_table(timeline: Data) -> Table:
    """Return each distinct action of the simulated step, with how often it runs."""
    counts = [0] * len(timeline["bodies"])
    for rank in timeline["ranks"]:
        for stream in rank["streams"]:
            for body in stream["body"]:
                counts[body] += 1
    table = plain_table("action", "stage", "stream", "duration", "bytes", "runs", texts=("stream",))
    for body, count in zip(timeline["bodies"], counts, strict=True):
        table.add_row(
            body["action"],
            "–" if body["stage"] is None else str(body["stage"]),
            body["stream"],
            format_seconds(body["duration"] * timeline["unit_s"]),
            format_bytes(body["bytes"]) if body["bytes"] else "–",
            f"{count:,}",
        )
    return table


def time_table(time: Data) -> Table:
    """Return the parts of the step, and under compute its kernels."""
    table = plain_table("part", "time", "share")
    for part in time["parts"]:
        table.add_row(part["part"], format_seconds(part["seconds"]), percent(part["share"]))
        for name, seconds in (time["kernels_s"] or {}).items() if part["key"] == "compute" else ():
            if seconds:
                share = percent(seconds / time["step_time_s"])
                table.add_row(f"– {name.replace('_', ' ')}", format_seconds(seconds), share)
    return table


def others_table(title: str, others: Iterable[Data]) -> Table:
    """Return other plans: step and memory, and the difference from this one in words."""
    table = plain_table("change", "step", "memory", "fits", title=title)
    for one in others:
        held = format_bytes(one["memory_bytes"])
        table.add_row(
            escape(one["text"]), format_seconds(one["step_time_s"]), held, "yes" if one["fits"] else "no"
        )
    return table


def pareto_table(points: Iterable[Data]) -> Table:
    """Return the Pareto set in time and memory."""
    table = plain_table("plan", "step", "memory")
    for point in points:
        held = format_bytes(point["memory_bytes"])
        table.add_row(escape(plan_words(point["plan"])), format_seconds(point["step_time_s"]), held)
    return table


def clusters_table(rows: Iterable[Data]) -> Table:
    """Return the clusters that none beats in time, money and energy."""
    table = plain_table("cluster", "step", "days", "cost", "energy", title="Clusters that none beats in all")
    for row in rows:
        days, usd, kwh = (_value(row[name]) for name in ("days", "usd", "kwh"))
        step = "–" if row["step_time_s"] is None else format_seconds(row["step_time_s"])
        table.add_row(escape(row["cluster"]), step, days, usd and f"${usd}", kwh and f"{kwh} kWh")
    return table


def _value(found: Any) -> str:
    value = found["value"] if isinstance(found, Mapping) else found
    return "–" if value is None else f"{value:,.2f}"


def origins_table(predict: Data) -> Table:
    """Return where each figure comes from."""
    table = plain_table("figure", "origin", texts=("origin",))
    for name, text in predict["origin"].items():
        table.add_row(name, escape(text))
    return table


def errors_table(parts: Data) -> Table:
    """Return the parts of the error of the step time: standard deviations of its logarithm."""
    names = {
        "stack": "stack, of which no or few runs were seen",
        "group": "differences between sources of runs",
        "run": "differences between runs of one source",
        "constants": "constants of the cost model",
    }
    table = plain_table("what is uncertain", "about")
    for name, deviation in parts.items():
        table.add_row(names.get(name, name), f"± {deviation:.1%}")
    return table


def counts_table(title: str, head: str, counts: Data) -> Table:
    """Return counts of plans by name."""
    table = plain_table(head, "plans", title=title)
    for name, count in counts.items():
        table.add_row(escape(name), f"{count:,}")
    return table


def values_table(title: str, rows: Iterable[Data]) -> Table:
    """Return the values of each choice that were searched or left out."""
    table = plain_table("choice", "values", "why", title=title, texts=("values", "why"))
    for row in rows:
        values = ", ".join(map(str, row["values"]))
        table.add_row(row["key"], escape(values), escape(row.get("why", "")))
    return table
