"""Print an emulated step: its makespan and the simulated one, the clock's figures, every pipeline rank."""

from typing import Any

from rich.markup import escape

from meshwright.present.console import console, gib, percent, plain_table
from meshwright.present.plan_answers.replica_exchanges import print_exchanges, step_words
from meshwright.units import format_seconds


def render_emulated(data: dict[str, Any], trace: str | None) -> None:
    """Print an emulated step in its JSON form."""
    out, how = console(), data["emulation"]
    out.print(
        f"[bold]{format_seconds(data['step_time_s'])}[/bold] per {step_words(data)} (emulated, not measured); "
        f"simulated {format_seconds(how['simulated_step_time_s'])}: {how['difference']:+.2%}"
    )
    out.print(f"Bubble {percent(how['bubble'])}, simulated {percent(how['simulated_bubble'])}")
    if how["steps"] > 1:
        behind = f" behind {how['steps_before']:,} others" if how["steps_before"] else ""
        out.print(f"{how['steps']:,} steps timed{behind}")
    out.print(escape(how["stands_for"]))
    for one in (*how["earlier"], how):
        out.print(clock_line(one))
    table = plain_table("rank", "busy", "simulated", "idle", "late starts", "activations GiB", "ledger GiB")
    for rank in how["ranks"]:
        table.add_row(
            str(rank["rank"]),
            format_seconds(rank["busy_s"]),
            format_seconds(rank["simulated_busy_s"]),
            format_seconds(rank["idle_s"]),
            str(rank["late_starts"]),
            gib(rank["peak_activation_bytes"]),
            gib(rank["ledger_activation_bytes"]),
        )
    out.print()
    out.print(table)
    print_exchanges(out, data)
    if trace:
        out.print(f"\nThe emulated step is in {escape(trace)}; open it at ui.perfetto.dev.")


def clock_line(one: dict[str, Any]) -> str:
    """Return the accuracy of one run's clock as text."""
    earlier = f"; {format_seconds(one['step_time_s'])}, repeated" if "step_time_s" in one else ""
    return (
        f"Scale {one['scale']:.3g} (seconds of the wall per modelled second), {one['wall_s']:.1f} s; "
        f"{one['late_starts']} of {one['starts']} starts late; scheduled {one['scheduling']}, "
        f"load average {one['load_average']:.1f}{earlier}"
    )
