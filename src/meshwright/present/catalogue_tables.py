"""Print the lists of models, devices and stacks as tables."""

from typing import Any

from rich.markup import escape

from meshwright.present.console import console, gib, plain_table
from meshwright.units import GIGA, TERA, format_count


def render_models(data: dict[str, Any]) -> None:
    """Print a list of models in its JSON form."""
    out, table = console(), plain_table("model", "family", "parameters", "active", "layers", "context")
    for row in data["models"]:
        active = row["parameters_active"]
        table.add_row(
            escape(row["name"]),
            escape(row["family"]),
            format_count(row["parameters"]),
            "" if active == row["parameters"] else format_count(active),
            f"{row['layers']}",
            f"{row['context']:,}",
        )
    out.print(table)
    out.print(f"\n[dim]{len(data['models'])} models; `meshwright describe NAME` says more of one.[/dim]")


def render_devices(data: dict[str, Any]) -> None:
    """Print a list of devices in its JSON form."""
    out = console()
    table = plain_table("device", "GiB", "GB/s", "16-bit TFLOP/s", "fp8", "USD/h", "usual node")
    for row in data["devices"]:
        peaks, price = row["peak_flops"], row["usd_per_hour"]
        table.add_row(
            escape(row["id"]),
            gib(row["memory_bytes"]),
            f"{row['memory_bytes_per_s'] / GIGA:,.0f}",
            _tera(peaks.get("bf16", peaks.get("fp16"))),
            _tera(peaks.get("fp8")),
            "–" if price is None else f"{price:.2f}",
            escape(row["usual_node"]),
        )
    out.print(table)
    out.print("\n[dim]Peaks are dense. Prices: median of on-demand offers, per device.[/dim]")


def render_stacks(data: dict[str, Any]) -> None:
    """Print a list of stacks in its JSON form."""
    out, table = console(), plain_table("stack", "release", "exports to")
    for row in data["stacks"]:
        table.add_row(escape(row["name"]), escape(row["release"]), ", ".join(row["exports_to"]) or "–")
    out.print(table)


def _tera(flops: float | None) -> str:
    return "–" if flops is None else f"{flops / TERA:,.0f}"
