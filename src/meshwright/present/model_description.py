"""Blocks and operators of a model's description as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from meshwright.present.console import plain_table
from meshwright.present.description_values import print_table, value_text
from meshwright.units import format_count

COLUMNS = ("name", "type", "place", "parameters")
"""Keys of an operator with a column of their own; the rest are its sizes."""


def chain_text(chain: Sequence[Sequence[Any]]) -> str:
    """Return the blocks in their order, as ``embed, 32 × dense, head``."""
    return ", ".join(f"{repeat} × {name}" if repeat > 1 else str(name) for name, repeat in chain)


def print_blocks(out: Console, blocks: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of the distinct blocks, then one of each block's operators."""
    table = plain_table(
        "blocks", "kind", "repeat", "parameters", "active", "forward FLOPs/token", "causal FLOPs/token"
    )
    for block in blocks:
        table.add_row(
            f"  {escape(str(block['name']))}",
            escape(str(block["kind"])),
            f"{block['repeat']:,}",
            format_count(block["parameters"]),
            format_count(block["parameters_active"]),
            format_count(block["flops_per_token_forward"]),
            format_count(block["flops_per_token_forward_causal"]),
        )
    print_table(out, table, 1)
    for block in blocks:
        _print_operators(out, block)


def _print_operators(out: Console, block: Mapping[str, Any]) -> None:
    """Print the operators of a block with their sizes, then their parameters with their shapes."""
    name = escape(str(block["name"]))
    operators = plain_table(f"operators of {name}", "type", "place", "sizes", wrapped=("sizes",))
    parameters = plain_table(f"parameters of {name}", "shape", "operator")
    for operator in block["operators"]:
        own = escape(str(operator["name"]))
        kind, place = escape(str(operator["type"])), escape(str(operator["place"]))
        operators.add_row(f"  {own}", kind, place, escape(_sizes(operator)))
        for parameter, shape in operator["parameters"].items():
            parameters.add_row(f"  {escape(parameter)}", "×".join(map(str, shape)), own)
    print_table(out, operators, 1, 2, 3)
    if parameters.row_count:
        print_table(out, parameters, 2)


def _sizes(operator: Mapping[str, Any]) -> str:
    """Return what an operator says besides its name and kind; what is empty or off is left out."""
    parts = [(key, value) for key, value in operator.items() if key not in COLUMNS]
    return ", ".join(
        key if value is True else f"{key} {_plain(value)}"
        for key, value in parts
        if value is not False and value not in (None, [], (), {}, "")
    )


def _plain(value: Any) -> str:
    return str(value) if isinstance(value, int) else value_text(value)
