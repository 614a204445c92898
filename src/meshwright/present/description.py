"""Descriptions as text: tables for what has rows, lines for the rest, at most 100 columns where words allow it."""

from collections.abc import Callable, Mapping
from textwrap import TextWrapper
from typing import Any

from rich.console import Console
from rich.markup import escape

from meshwright.plans.files.plan_file import plan_text
from meshwright.present.cluster_description import print_links, print_pools, print_tiers
from meshwright.present.console import WIDTH_OF_FILES, console
from meshwright.present.description_values import print_rows, value_text
from meshwright.present.model_description import chain_text, print_blocks
from meshwright.present.plan_answers.layout_text import meshes_text, sequences_text
from meshwright.present.serving_pools import serving_lines
from meshwright.units import format_bytes

TABLES: Mapping[tuple[str, str], Callable[[Console, Any], None]] = {
    ("model", "blocks"): print_blocks,
    ("cluster", "pools"): print_pools,
    ("cluster", "tiers"): print_tiers,
    ("cluster", "links"): print_links,
}
"""Keys of a kind of description that are printed as tables."""


def render_description(data: dict[str, Any]) -> None:
    """Print a description in its JSON form; a plan is printed as a plan file, the rest as its comments."""
    if data.get("kind") == "plan":
        print(_plan_file(data), end="", flush=True)
        return
    out, after_table = console(), False
    for key, item in data.items():
        table = TABLES.get((str(data.get("kind")), key))
        if after_table and table is None:
            out.print()
        after_table = table is not None
        if table is not None:
            table(out, item)
        elif (data.get("kind"), key) == ("model", "chain"):
            _print_line(out, key, chain_text(item), 0)
        else:
            _print_item(out, key, item, 0)


def _plan_file(data: dict[str, Any]) -> str:
    lines = [f"{name}: {', '.join(data[name])}" for name in ("given", "defaults") if data.get(name)]
    if data["form"] == "serving":
        return plan_text(data["plan"], below=[*lines, *serving_lines(data)])
    lines += [f"devices: {data['devices']}", "stages:"]
    for stage in data["stages"]:
        last = stage["first_layer"] + stage["layers"] - 1
        ends = "".join(f", {end}" for end in ("embed", "head") if stage[end])
        layers = f"layers {stage['first_layer']}..{last}" if stage["layers"] else "no layers"
        lines.append(f"  {stage['stage']} on pipeline rank {stage['pipeline_rank']}: {layers}{ends}")
    return plan_text(data["plan"], below=[*lines, *_part_lines(data)])


def _part_lines(data: dict[str, Any]) -> list[str]:
    """Return the parts of a plan of several layouts, and what moves between them."""
    if "parts" not in data:
        return []
    if data["parts"] is None:
        return ["parts: unknown, the plan has errors (`meshwright check` names them)"]
    lines = ["parts:"]
    for part in data["parts"]:
        ranks = f"{part['first_rank']}..{part['first_rank'] + part['ranks'] - 1}"
        sequences = sequences_text(part)
        lines.append(
            f"  {part['layout']} on pipeline rank {part['pipeline_rank']}, ranks {ranks}: {part['blocks']}: "
            f"{meshes_text(part)}, {part['sharding']}, sequences of a replica in a micro-batch: {sequences}"
        )
    lines.append("changes of layout, bytes that all ranks move for a micro-batch:")
    for one in data["reshards"]:
        ends = sorted({one["from_pipeline_rank"], one["to_pipeline_rank"]})
        lines.append(
            f"  {one['before']} to {one['after']} on pipeline rank {' and '.join(map(str, ends))}: "
            f"{one['from']} to {one['to']}, {format_bytes(one['forward_bytes'])} forward, "
            f"{format_bytes(one['backward_bytes'])} backward"
        )
    return lines


def _print_item(out: Console, key: str, item: Any, depth: int) -> None:
    if isinstance(item, dict) and item:
        out.print("  " * depth + f"[bold]{escape(key)}[/bold]:", soft_wrap=True)
        for inner, value in item.items():
            _print_item(out, inner, value, depth + 1)
    elif isinstance(item, list | tuple) and item and all(isinstance(entry, dict) for entry in item):
        print_rows(out, key, item)
    else:
        _print_line(out, key, value_text(item) or "–", depth)


def _print_line(out: Console, key: str, text: str, depth: int) -> None:
    """Print a key and its value, on several lines where they are long."""
    indent = "  " * (depth + 1)
    width = min(out.width, WIDTH_OF_FILES)
    lines = TextWrapper(width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    shown = lines.wrap("  " * depth + f"{key}: {text}") or [""]
    head = "  " * depth + key
    first = f"[bold]{escape(head)}[/bold]{escape(shown[0].removeprefix(head))}"
    out.print("\n".join([first, *map(escape, shown[1:])]), soft_wrap=True)
