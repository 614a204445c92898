"""The sections of a report's page, in their order: charts with the tables behind them."""

from collections.abc import Callable, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from meshwright.present.console import console, percent
from meshwright.present.html.figures import memory_bars
from meshwright.present.page import page_tables as tables
from meshwright.present.page.page_elements import (
    add_list,
    add_printed,
    add_tables,
    chart_place,
    element,
    folded,
    section,
)
from meshwright.present.plan_answers.prediction import interval, print_memory
from meshwright.present.plan_answers.training_estimate import print_goodput, print_training
from meshwright.present.svg.stacked_bars import stacked_bars
from meshwright.units import format_bytes, format_seconds

Data = Mapping[str, Any]
ACTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "forward": ("#0072b2", ("F",)),
    "backward": ("#e69f00", ("B", "I")),
    "weight gradients": ("#d55e00", ("W",)),
    "vocabulary": ("#f0e442", ("E", "S", "T", "D")),
    "messages": ("#56b4e9", ("SEND_F", "SEND_B")),
    "gather and reduce": ("#009e73", ("GATHER", "REDUCE", "REDUCE_MIRRORED", "REDUCE_TIED")),
    "optimizer": ("#cc79a7", ("NORM", "PERTURB", "STEP", "VALIDATE")),
    "other": ("#999999", ()),
}
"""Colour and kinds of the actions of each entry of the legend."""
ACTION_COLOURS = {kind: colour for colour, kinds in ACTIONS.values() for kind in kinds}
"""The colour of each kind of action; all further kinds are "other"."""


def compared_plans(page: Element, data: Data) -> None:
    """Add the table of the plans that this one is compared with."""
    if not data["against"]:
        return
    found = section(page, "compared", "Compared plans")
    add_tables(found, tables.against_table(data["against"]))
    for row in data["against"][1:]:
        add_list(found, [f"{row['name']}: {row['why']}"])
        add_list(folded(found, f"Every part that differs: {row['name']}"), row["lines"])


def cost(page: Element, data: Data) -> None:
    """Add time, money and energy of a step, and of the training where its tokens are given."""
    report = data["predict"]
    found = section(page, "cost", "Cost")
    figures = element(found, "dl", class_="figures")
    memory, likely = report["memory_bytes"], report["fits_probability"]
    ends = " to ".join(format_bytes(memory[end]) for end in ("total_low", "total_high"))
    held = f"{ends}, of {format_bytes(memory['capacity'])}"
    _figure(figures, "step time (predicted)", format_seconds(report["step_time_s"]), interval(report))
    per_device = f"{report['tokens_per_s_per_device']:,.1f} per device; MFU {percent(report['mfu'])}"
    _figure(figures, "tokens per second", f"{report['tokens_per_s']:,.0f}", per_device)
    _figure(figures, "memory, fullest device", format_bytes(memory["total"]), f"80 %: {held}")
    fits = "fits" if report["fits"] else "does not fit"
    chance = "" if likely is None else f"probability that it fits: {likely:.2f}"
    _figure(figures, "verdict", fits, chance, "good" if report["fits"] else "bad")
    if report["usd_per_step"] is not None:
        hourly = f"${report['usd_per_hour']:,.2f} per hour"
        _figure(figures, "money per step", f"${report['usd_per_step']:,.4f}", hourly)
    if report["joules_per_step"] is not None:
        _figure(
            figures, "energy per step", f"{report['joules_per_step'] / 1e6:,.2f} MJ", "at most: board limits"
        )
    for name, title, shown in TRAINING:
        one = (report["training"] or {}).get(name)
        if one is not None:
            ends = "" if one["low"] is None else f"80 %: {shown(one['low'])} to {shown(one['high'])}"
            _figure(figures, title, shown(one["value"]), ends)
    add_printed(found, lambda: print_goodput(console(), dict(report)))
    add_printed(found, lambda: print_training(console(), dict(report)))


TRAINING: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("days", "whole training", lambda value: f"{value:,.1f} days"),
    ("usd", "money of the training", lambda value: f"${value:,.0f}"),
    ("kwh", "energy of the training", lambda value: f"{value / 1e3:,.1f} MWh"),
)
"""Figures of a training: key, title, format."""


def _figure(parent: Element, title: str, value: str, more: str = "", kind: str = "") -> None:
    box = element(parent, "div")
    element(box, "dt", title)
    shown = element(box, "dd", value, **({"class_": kind} if kind else {}))
    if more:
        element(shown, "small", more)


def layout(page: Element, data: Data) -> None:
    """Add the devices on their nodes."""
    placed = data["layout"]
    found = section(page, "layout", "Layout")
    counts = f"{placed['devices']:,} devices on {placed['nodes']:,} nodes of {placed['devices_per_node']}."
    element(
        found,
        "p",
        f"{counts} Each column is a pipeline rank; devices of one colour in it form a group of the chosen axis.",
    )
    axes = [one["axis"] for one in placed["axes"]]
    if axes:
        choice = element(found, "fieldset")
        element(choice, "legend", "Groups of the axis")
        for number, axis in enumerate(axes):
            label = element(choice, "label")
            chosen = {"checked": "checked"} if number == 0 else {}
            box = element(label, "input", type="radio", name="layout-axis", value=axis, **chosen)
            box.tail = f" {axis} {placed['axes'][number]['size']}"
    chart_place(found, "layout", f"Devices of the plan on their nodes. {counts}")
    if placed["parts"]:
        add_tables(found, tables.parts_table(placed["parts"]), tables.reshards_table(placed["reshards"]))
    add_tables(folded(found, "Axes as a table"), tables.axes_table(placed))


def timeline(page: Element, data: Data) -> None:
    """Add the simulated step, and memory over its time."""
    found = section(page, "step", "The step, action by action (simulated)")
    steps = data["timeline"]
    if steps is None:
        element(found, "p", f"The step was not simulated: {data['not_simulated']}.")
    else:
        length = f"The simulated step takes {format_seconds(steps['step_time_s'])}"
        streams = "A band is a pipeline rank: passes above, messages and data-parallel exchanges below."
        element(
            found,
            "p",
            f"{length}; none of its times was measured. {streams} Zoom with the wheel, drag to move.",
        )
        keys = element(found, "ul", class_="keys")
        for name, (colour, _) in ACTIONS.items():
            item = element(keys, "li")
            box = element(item, "svg", width="11", height="11", aria_hidden="true")
            element(box, "rect", width="11", height="11", fill=colour)
            box.tail = name
        chart_place(
            found, "timeline", f"Timeline of the simulated step on {len(steps['ranks'])} pipeline ranks"
        )
        add_tables(folded(found, "Distinct actions as a table"), tables.actions_table(steps))


def memory(page: Element, data: Data) -> None:
    """Add memory of each pipeline rank: over the step, and at its peak."""
    found = section(page, "memory", "Memory")
    report = data["predict"]
    if data["memory_over_time"] is not None:
        worst = report["memory_bytes"]["worst_rank"]
        label = element(found, "label", "Pipeline rank ", for_="memory-rank")
        select = element(found, "select", id="memory-rank")
        for place, curve in enumerate(data["memory_over_time"]):
            stages = report["memory_bytes"]["stages"]
            chosen = {"selected": "selected"} if curve["rank"] == worst else {}
            held = format_bytes(stages[place]["total"]) if place < len(stages) else ""
            element(select, "option", f"{curve['rank']}: {held}", value=str(place), **chosen)
        label.tail = " "
        chart_place(found, "memory", "Memory of a pipeline rank's device over a simulated step, by kind")
        note = "Activations follow the simulated passes; all other kinds are drawn at their peak throughout."
        element(found, "p", note)
    found.append(stacked_bars(memory_bars(report, "Peak of each pipeline rank")))
    add_printed(
        folded(found, "Memory as a table"), lambda: print_memory(console(), dict(report["memory_bytes"]))
    )
    add_list(found, data["explain"]["memory"]["text"])


def time(page: Element, data: Data) -> None:
    """Add the parts of the step time."""
    found = section(page, "time", "Step time by part (predicted)")
    chart_place(found, "time", "Parts of the step time of the busiest pipeline rank")
    add_list(found, data["explain"]["time"]["text"])
    add_tables(folded(found, "Time as a table"), tables.time_table(data["explain"]["time"]))


def reasons(page: Element, data: Data) -> None:
    """Add the reasons for this plan: each neighbour with its loss, schedules and rivals."""
    explained = data["explain"]
    found = section(page, "why", "Why this plan")
    if explained["choices"] is None:
        element(found, "p", "Neighbours were not looked at: --no-search.")
        return
    add_list(found, explained["summary"])
    chart_place(found, "neighbours", "Change of the step time with one other choice")
    schedule = explained["schedule"]
    element(found, "p", schedule["text"])
    folds = folded(found, "Neighbours and rivals as tables")
    add_tables(
        folds,
        tables.others_table("One choice away", explained["choices"]),
        tables.others_table("Other schedules", schedule["others"]),
        tables.others_table("Best other plans of the search", explained["rivals"]),
    )


def pareto(page: Element, data: Data) -> None:
    """Add the plans that none beats in time and memory, and clusters in time, money and energy."""
    points = data["pareto_memory"]
    found = section(page, "pareto", "Trade-offs: time against memory")
    if points is None:
        element(found, "p", "No other plans were searched: --no-search.")
        return
    note = (
        "Plans of the search that no other one beats in both. Slower plans lie to the right: move the slider."
    )
    element(found, "p", note if points else "No plan of the search fits.")
    if points:
        chart_place(found, "pareto", "Step time against memory of the plans that none beats in both")
        add_tables(folded(found, "Plans as a table"), tables.pareto_table(points))
    if data["pareto"]:
        add_tables(found, tables.clusters_table(data["pareto"]))


def changes(page: Element, data: Data) -> None:
    """Add what would change the answer."""
    explained = data["explain"]
    found = section(page, "changes", "Changes of the answer")
    chart_place(found, "sensitivity", "Change of the step time with half and twice of each resource")
    add_list(found, [one["text"] for one in explained["turns"] or ()])
    folds = folded(found, "Resources, batch, sequence length and devices in words")
    add_list(folds, [one["text"] for one in explained["sensitivity"]])
    work = [f"{name}: {one['text']}" for name, tries in explained["workload"].items() for one in tries]
    add_list(folds, [*work, *(f"devices: {one['text']}" for one in explained["devices"] or ())])


def assumptions(page: Element, data: Data) -> None:
    """Add the assumptions with their origin and the parts of the interval."""
    report = data["predict"]
    found = section(page, "assumptions", "Assumptions and their origin")
    if report["interval"]:
        element(found, "p", f"Parts of the interval of the step time ({interval(report)}):")
        add_tables(found, tables.errors_table(report["interval"]["parts"]))
        add_list(found, [report["interval"]["advice"]])
    add_tables(found, tables.origins_table(report))


def searched(page: Element, data: Data) -> None:
    """Add the size of the space, what was left out and what was proven."""
    search = data["search"]
    found = section(page, "search", "The search")
    if search is None:
        element(found, "p", "Nothing was searched: --no-search.")
        return
    if "error" in search:
        add_list(found, [search["error"], *search["reasons"], search["suggestion"]])
        return
    proven = (
        "Bounds prove that no plan of this space is faster than the fastest one found."
        if search["optimal"]
        else f"Plans that were not played may be faster, by at most {percent(search['gap'])}."
    )
    add_list(
        found,
        [
            f"{search['candidates_considered']:,} combinations of choices, {search['candidates_legal']:,} legal plans, "
            f"{search['candidates_evaluated']:,} priced, {search['candidates_feasible']:,} of them fit.",
            proven,
            f"{search['candidates_tied']:,} plans are within {search['tie_ratio'] - 1:.1%} of the fastest: a "
            "prediction cannot tell them apart.",
        ],
    )
    folds = folded(found, "Searched values, values left out and rejected plans")
    add_tables(
        folds,
        tables.values_table("Searched", search["space"]["searched"]),
        tables.values_table("Left out", search["space"]["left_out"]),
        tables.counts_table("Rejected", "reason", search["rejected"]),
    )
