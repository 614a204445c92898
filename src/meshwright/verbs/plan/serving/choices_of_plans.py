"""Reasons for the choices of a found plan: what the best plans with another value come to.

Values are compared among the candidates that were evaluated; bounds ruled out the others, which are worse.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from meshwright.search.reasons import Reason
from meshwright.verbs.plan.serving.searched_cluster import SearchedCluster

NO_OTHER = "no other one keeps the limits, or bounds rule it out"


def choice_reasons(one: SearchedCluster, row: Any) -> tuple[Reason, ...]:
    """Return a reason for each choice of the best candidate that has several values."""
    return tuple(_reasons(one, row))


def _reasons(one: SearchedCluster, row: Any) -> Iterator[Reason]:
    values: dict[str, Callable[[Any], str]] = {
        "stack": lambda at: one.space.families[at["family"]].stack,
        "quantise": lambda at: _formats(one, at),
        "pools": lambda at: "one that serves" if at["second"] < 0 else "prefill and decode",
        "replica": lambda at: _layout(one, at),
    }
    searched = {
        "stack": len(one.question.stacks) > 1,
        "quantise": len(one.space.families) > len(one.question.stacks),
        "pools": one.question.limits.steps > 0,
        "replica": True,
    }
    for field, value in values.items():
        if not searched[field]:
            continue
        own = value(row)
        others = [other for other in one.found.table if value(other) != own][:1]
        text, loss = NO_OTHER, float("inf")
        if others:
            loss = _loss(one, row, others[0])
            text = f"{value(others[0])}: {_figure(one, others[0])}, {_difference(one, loss)}"
        yield Reason(field, own, text, loss)


def _loss(one: SearchedCluster, row: Any, other: Any) -> float:
    own, its = (float(one.goal.scores(np.asarray(at).reshape(1))[0]) for at in (row, other))
    return own / its - 1 if own > 0 else its / own - 1


def _difference(one: SearchedCluster, loss: float) -> str:
    """Return how much less of the objective another plan has, or how much more it takes."""
    tokens = one.goal.objective == "throughput" and not one.goal.given_rate
    return f"{loss / (1 + loss):.1%} less" if tokens else f"{loss:.1%} more"


def _figure(one: SearchedCluster, row: Any) -> str:
    if one.goal.objective == "latency":
        return f"{float(row['latency_s']):.3g} s a request"
    if one.goal.given_rate:
        return f"{int(row['devices'])} devices"
    return f"{float(row['requests_per_s']) * one.question.limits.lengths.mean_output:,.0f} output tokens/s"


def _formats(one: SearchedCluster, row: Any) -> str:
    formats = one.space.families[row["family"]].formats
    return f"weights {formats.weights or 'as released'}, kv {formats.kv or 'of the model'}"


def _layout(one: SearchedCluster, row: Any) -> str:
    designs = one.found.designs[row["family"]]
    if row["second"] < 0:
        return degrees_text(designs.serve.degrees[row["first"]].tolist())
    assert designs.prefill is not None
    assert designs.decode is not None
    first, second = designs.prefill.degrees[row["first"]], designs.decode.degrees[row["second"]]
    return f"{degrees_text(first.tolist())} → {degrees_text(second.tolist())}"


def degrees_text(degrees: list[int]) -> str:
    """Return degrees above 1 by name; tp1 where all are 1."""
    names = ("attention_dp", "tp", "pp", "ep", "etp")
    return " ".join(f"{name}{size}" for name, size in zip(names, degrees, strict=True) if size > 1) or "tp1"
