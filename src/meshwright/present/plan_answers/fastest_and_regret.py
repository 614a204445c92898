"""Format the regret of plans, and how the recommended plan compares with the fastest one."""

from collections.abc import Iterator
from typing import Any

from meshwright.present.console import percent
from meshwright.present.plan_answers.layout_text import layout_words, pipeline_words, recompute_words
from meshwright.units import format_seconds


def shown_regret(proposal: dict[str, Any]) -> str:
    """Return by how much a plan may be slower than the best one: what 80 % of the draws stay below."""
    return "–" if proposal["regret"] is None else percent(proposal["regret"]["p80"])


REGRET = "regret: the loss to the best plan that 80 % of drawn errors stay below"
"""What the column of regrets holds."""


def fastest_lines(data: dict[str, Any]) -> Iterator[str]:
    """Yield a line about the fastest plan if another one is recommended."""
    first, fastest = data["plans"][0], data["fastest"]
    if len(data["clusters"]) > 1 or first["regret"] is None or first["plan"] == fastest["plan"]:
        return
    plan, step_s = fastest["plan"], fastest["predict"]["step_time_s"]
    more = first["predict"]["step_time_s"] / step_s - 1
    yield (
        f"Fastest by prediction, {-more / (1 + more):.1%}: {layout_words(plan['layout'])}, "
        f"{pipeline_words(plan['pipeline'])}, micro-batch {plan['pipeline']['micro_batch']}, {plan['sharding']}, "
        f"recompute {recompute_words(fastest)}, {format_seconds(step_s)}"
    )


def left_out_line(data: dict[str, Any]) -> str:
    """Return the keys of which some values were not searched."""
    keys = dict.fromkeys(row["key"] for row in data["space"]["left_out"])
    return f"Not searched: some values of {', '.join(keys)}."
