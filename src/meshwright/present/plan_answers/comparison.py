"""Compare two plans: the choices in which they differ, then the predictions."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.markup import escape

from meshwright.plans.resolve import Resolved
from meshwright.plans.synchronisation.exchange_text import entry_text
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.present.console import console, plain_table
from meshwright.present.plan_answers.layer_ranges import render_ranges
from meshwright.result import Report, ServingReport
from meshwright.units import format_bytes, format_seconds

TRAINING_UNITS = {
    "days": "days",
    "device_hours": "h",
    "usd": "USD",
    "kwh": "kWh",
    "power_kw": "kW",
    "failures": "count",
    "spare_nodes": "count",
}
ROUND = "round"
"""The unit of a report on plans whose replicas exchange between steps."""
SYNCHRONISE = "synchronise"
NOTHING = 1e-9
"""Values below this have no useful ratio."""
SERVING_UNITS = {
    "ttft_s": "s",
    "tpot_s": "s",
    "request_latency_s": "s",
    "output_tokens_per_s": "tokens/s",
    "output_tokens_per_s_per_device": "tokens/s",
    "usd_per_million_output_tokens": "USD",
    "joules_per_output_token": "J",
    "batch": "count",
    "kv_capacity_tokens": "tokens",
    "limited_by": "choice",
    "idle_devices": "count",
}
NOT_OF_SERVING = ("step_time_s", "tokens_per_s", "tokens_per_s_per_device", "mfu", "mfu_causal", "hfu")
"""Rows that say nothing of a serving plan, or that others say."""
Side = tuple[Resolved, Report]
ServingSide = tuple[Mapping[str, Any], ServingReport]
"""A serving plan's data as its file has it, and its Report."""


def compare_reports(a: Side, b: Side, ranges: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return ``{"rows": [{quantity, a, b, unit}], "ranges": …}``: choices that differ, then predicted numbers.

    ``ranges`` compare them by range of layers. With constants that the user gave, ``origin`` says so.
    """
    choices = [
        {"quantity": name, "a": left, "b": right, "unit": "choice"}
        for name, left, right in _differences(a[0], b[0])
    ]
    given = dict.fromkeys(side[0].setting.given.text for side in (a, b) if side[0].setting.given)
    origin = {"origin": {"constants": " | ".join(given)}} if given else {}
    return {"rows": choices + list(_numbers(a[1], b[1])), "ranges": ranges, **origin}


def compare_serving_reports(a: ServingSide, b: ServingSide) -> dict[str, Any]:
    """Return the rows of a comparison of serving plans: keys that differ, then predicted numbers."""
    left, right = (dict(_flat(data, "")) for data, _ in (a, b))
    keys = [*left, *(key for key in right if key not in left)]
    rows = [
        {"quantity": key, "a": left.get(key), "b": right.get(key), "unit": "choice"}
        for key in keys
        if left.get(key) != right.get(key)
    ]
    numbers = [row for row in _numbers(a[1], b[1]) if row["quantity"] not in NOT_OF_SERVING]
    return {"rows": [*rows, *_of_serving(a[1].to_json(), b[1].to_json()), *numbers], "ranges": None}


def _of_serving(a: dict[str, Any], b: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the means of requests."""
    for name, unit in SERVING_UNITS.items():
        yield {"quantity": f"serving.{name}", "a": a["serving"][name], "b": b["serving"][name], "unit": unit}


def render_comparison(data: dict[str, Any], a: str, b: str) -> None:
    """Print a comparison in its JSON form."""
    out = console()
    sides = escape(a), escape(b)
    table = plain_table("quantity", *sides, "b/a", wrapped=sides)
    for row in data["rows"]:
        table.add_row(
            escape(row["quantity"]), *(_shown(row[side], row["unit"]) for side in ("a", "b")), _ratio(row)
        )
    out.print(table)
    render_ranges(out, data.get("ranges"), a, b)
    if "origin" in data:
        out.print(escape(f"\nConstants {data['origin']['constants']}"))
    if "largest" in data:
        out.print(
            f"\n{escape(a)} is predicted, {escape(b)} measured. They disagree most in {data['largest']}."
        )
        for remark in data["remarks"]:
            out.print(escape(f"Note: {remark}."))


def _differences(a: Resolved, b: Resolved) -> Iterator[tuple[str, Any, Any]]:
    left, right = (dict(_flat(side.long.to_data(), "")) for side in (a, b))
    if a.short and b.short:
        left, right = (dict(_flat(side.to_data(), "")) for side in (a.short, b.short))
    for name in [*left, *(key for key in right if key not in left)]:
        if left.get(name) != right.get(name):
            yield name, left.get(name), right.get(name)


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if path == SYNCHRONISE:
        for place, entry in enumerate(value):
            yield f"{path}.{place}", entry_text(Synchronisation.model_validate(entry, strict=False))
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _flat(entry, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _numbers(a: Report, b: Report) -> Iterator[dict[str, Any]]:
    left, right = a.to_json(), b.to_json()
    for name, unit in (
        ("step_time_s", "s"),
        ("tokens_per_s", "tokens/s"),
        ("tokens_per_s_per_device", "tokens/s"),
        ("mfu", "fraction"),
        ("mfu_causal", "fraction"),
        ("hfu", "fraction"),
        ("usd_per_hour", "USD"),
        ("usd_per_step", "USD"),
        ("joules_per_step", "J"),
    ):
        yield {"quantity": name, "a": left[name], "b": right[name], "unit": unit}
    for name, unit in (("unit", "choice"), ("steps_per_round", "choice"), ("utilisation", "fraction")):
        if left["unit"] == ROUND or right["unit"] == ROUND:
            yield {"quantity": name, "a": left[name], "b": right[name], "unit": unit}
    for section, unit in (("breakdown_s", "s"), ("memory_bytes", "B")):
        for name in dict.fromkeys((*left[section], *right[section])):
            values = {side: of[section].get(name) for side, of in (("a", left), ("b", right))}
            numbers = all(isinstance(v, int | float | None) for v in values.values())
            if name != "worst_rank" and numbers and {*values.values()} != {None, 0}:
                yield {"quantity": f"{section}.{name}", **values, "unit": unit}
    yield from _of_training(left["training"], right["training"])
    yield {"quantity": "fits", "a": left["fits"], "b": right["fits"], "unit": "choice"}


def _of_training(a: dict[str, Any] | None, b: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield what the trainings come to, where they were requested."""
    if a is None or b is None:
        return
    for name, unit in TRAINING_UNITS.items():
        values = {side: _value(of[name]) for side, of in (("a", a), ("b", b))}
        yield {"quantity": f"training.{name}", **values, "unit": unit}


def _value(figure: Any) -> Any:
    return figure["value"] if isinstance(figure, dict) else figure


def _shown(value: Any, unit: str) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool) or unit == "choice":
        return escape(str(value))
    forms = {"s": format_seconds, "B": format_bytes, "fraction": "{:.1%}".format}
    return forms[unit](value) if unit in forms else f"{value:,.2f}"


def _ratio(row: dict[str, Any]) -> str:
    a, b = row["a"], row["b"]
    if row["unit"] == "choice" or not a or b is None or abs(a) < NOTHING:
        return ""
    return f"{b / a:.3f}"
