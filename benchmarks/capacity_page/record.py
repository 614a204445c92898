"""Answer a question, simulate the clusters of the answer, and ask the question separately."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from capacity_page.question import (
    Found,
    Question,
    answer_to,
    given_by,
    separate_questions,
    unequal,
)
from capacity_page.simulation import simulated
from meshwright.economy.cluster_ranking import RankedCluster
from meshwright.economy.cluster_row import family_row

SHOWN = (
    *("model", "family", "cluster", "meets", "misses", "tokens", "days", "days_low", "days_high"),
    *("usd", "usd_low", "usd_high", "power_kw", "kwh_site", "spare_nodes", "goodput", "sure"),
)
"""Figures of a row that the page shows."""


def recorded(question: Question) -> dict[str, Any]:
    """Return the answer to a question, JSON-ready."""
    given = given_by(question.line)
    found = answer_to(given)
    alone = separate_questions(given)
    return asdict(question) | {
        "command": question.line,
        "limits": asdict(found.limits),
        "rows": [_row(row, found, question.key) for row in found.rows],
        "recommended": found.recommended and found.recommended.offer.on,
        "doubt": found.doubt,
        "rejected": [_row(row, found, question.key) for row in rejected(found)],
        "separate": {
            "questions": len(alone),
            "of": "model" if len(given["model"]) > 1 else "device family",
            "differences": list(unequal(found, [answer_to(each) for each in alone])),
        },
    }


def _row(cluster: RankedCluster, found: Found, key: str) -> dict[str, Any]:
    row = family_row(cluster, found.limits)
    share = simulated(cluster, key).share_within(found.limits) if cluster.state == "searched" else None
    return {name: row[name] for name in SHOWN} | {"simulated": share}


def rejected(found: Found) -> Iterator[RankedCluster]:
    """Yield for each choice the next cheaper cluster of its family that is too unsure; none without ``--sure``."""
    for chosen in found.rows if found.limits.sure is not None else ():
        if not chosen.holds(found.limits) or chosen.costs.usd is None:
            continue
        cheaper = [
            (one.costs.usd, one)
            for one in found.standings
            if one.family == chosen.family
            and one.state == "searched"
            and not one.holds(found.limits)
            and one.costs.usd is not None
            and one.costs.usd < chosen.costs.usd
        ]
        if cheaper:
            yield max(cheaper, key=lambda pair: pair[0])[1]
