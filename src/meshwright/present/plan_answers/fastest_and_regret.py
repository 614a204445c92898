"""Format the regret of plans, and how the recommended plan compares with the fastest one."""

from collections.abc import Iterator
from typing import Any

from meshwright.present.console import percent
from meshwright.present.plan_answers.layout_text import proposal_words
from meshwright.units import format_seconds


def shown_regret(proposal: dict[str, Any]) -> str:
    """Return by how much a plan may be slower than the best one: what 80 % of the draws stay below."""
    return "–" if proposal["regret"] is None else percent(proposal["regret"]["p80"])


REGRET = "regret: the loss to the best plan that 80 % of drawn errors stay below"
"""What the column of regrets holds."""


def fastest_lines(data: dict[str, Any]) -> Iterator[str]:
    """Yield a line about the fastest plan if another one is recommended, and one about plans by ranges of layers."""
    yield from _ranges_line(data.get("ranges"))
    first, fastest = data["plans"][0], data["fastest"]
    same = all(first[form] == fastest[form] for form in ("plan", "long"))
    if len(data["clusters"]) > 1 or first["regret"] is None or same:
        return
    step_s = fastest["predict"]["step_time_s"]
    more = first["predict"]["step_time_s"] / step_s - 1
    yield f"Fastest by prediction, {-more / (1 + more):.1%}: {proposal_words(fastest)}, {format_seconds(step_s)}"


def _ranges_line(ranges: dict[str, Any] | None) -> Iterator[str]:
    """Yield the best step of a search by ranges of layers, against plans with one layout."""
    if ranges is None or ranges["step_time_s"] is None:
        return
    best, gain = format_seconds(ranges["step_time_s"]), ranges["gain"]
    if gain is None:
        against = "no plan with one layout for all layers fits"
    else:
        against = f"{abs(gain):.1%} {'less' if gain > 0 else 'more'} than with one layout for all layers"
    proposed = "" if ranges["proposed"] else "; not proposed, the difference is too small to tell"
    yield f"By ranges of layers: {best}, {against}; gap to the lower bound {ranges['gap']:.1%}{proposed}."


def left_out_line(data: dict[str, Any]) -> str:
    """Return the keys of which some values were not searched."""
    keys = dict.fromkeys(row["key"] for row in data["space"]["left_out"])
    return f"Not searched: some values of {', '.join(keys)}."
