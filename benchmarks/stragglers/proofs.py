"""Identities of rules, and proofs of plans that combine gradients against one process."""

from dataclasses import replace
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from combine_plans import PLANS, combine_plan, combined
from island_plans import CUTS
from stragglers_kept import kept

from meshwright.plans.synchronisation.gradient_code import gradient_code
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.runtime.verify.compare_models import models_apart
from meshwright.runtime.verify.run_case import run_case

SAME, EQUAL = 1e-12, 1e-9
MOST_REPLICAS = 8
IDENTITIES = {
    "quorum of all replicas": combined(**{"with": {"quorum": 3}}),
    "code that tolerates none": combined(combine={"coded": {"tolerate": 0}}),
    "trimmed mean of which nothing is cut": combined(combine={"trimmed_mean": 0}),
    "Flag at full rank": combined(combine={"flag": {"rank": 3}}),
    "cyclic code that tolerates 1 of 3": combined(combine={"coded": {"tolerate": 1}}),
    "repetition code that tolerates 2 of 3": combined(combine={"coded": {"tolerate": 2}}),
}


def identities() -> tuple[str, bool]:
    """Return the section, and whether all identities hold."""
    lines = ["| plan | largest relative difference of parameters from data parallelism |", "|---|--:|"]
    good = True
    plain = replace(CUTS["replicas"], dp_replicate=3, steps=4)
    for name, entry in IDENTITIES.items():
        said = (Synchronisation.model_validate(entry),)

        def apart(said: tuple[Synchronisation, ...] = said) -> float:
            found = models_apart(
                replace(plain, synchronise=said).trial(), plain.trial(), lambda what, part: None
            )
            return found.value

        value = kept(f"identity {name}", apart)
        good &= value <= SAME
        lines.append(f"| {name} | {value:.1e} |")
    text, decodes = _codes()
    head = f"Four steps of three replicas in fp64, without clipping; equal within {SAME:g}.\n\n"
    return head + "\n".join(lines) + "\n\n" + text, good and decodes


def _codes() -> tuple[str, bool]:
    """Decode every pattern of late replicas of all codes of few replicas."""
    lines = [
        "| n | s | code | patterns | load | worst condition number | largest error of a decoded sum |",
        "|--:|--:|---|--:|--:|--:|--:|",
    ]
    worst = 0.0
    for replicas in range(2, MOST_REPLICAS + 1):
        for tolerate in range(1, replicas):
            code, error, patterns = gradient_code(replicas, tolerate), 0.0, 0
            for late in range(tolerate + 1):
                for there in combinations(range(replicas), replicas - late):
                    patterns += 1
                    error = max(error, float(np.abs(np.array(code.decode(there)) @ code.matrix - 1).max()))
            assert patterns == sum(comb(replicas, late) for late in range(tolerate + 1))
            assert {len(code.shares_of(replica)) for replica in range(replicas)} == {tolerate + 1}
            worst = max(worst, error)
            lines.append(
                f"| {replicas} | {tolerate} | {'repetition' if code.repeats else 'cyclic'} | {patterns} | "
                f"{tolerate + 1}/{replicas} | {code.worst_condition:.1f} | {error:.0e} |"
            )
    good = worst < EQUAL
    end = f"Every pattern of up to s late replicas decodes within {EQUAL:g}: **{'yes' if good else 'no'}**."
    return "\n".join(lines) + "\n\n" + end, good


def proofs() -> tuple[str, bool]:
    """Return the section on plans that are proven, and whether all of them are."""
    lines = [
        "| rule | cut | error | exchanges | bytes logged | bytes predicted | difference from exact data parallelism |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    equal = 0
    for rule, cut in PLANS:

        def proven(rule: str = rule, cut: str = cut) -> dict[str, Any]:
            found = run_case(combine_plan(rule, cut).trial(), lambda what, part: None)
            (entry,) = found.exchanges
            return {
                "equal": found.equal,
                "error": found.worst.value,
                "exchanges": entry.exchanges,
                "logged": entry.logged_bytes,
                "predicted": entry.predicted_bytes,
                "apart": found.from_exact.value,
            }

        one = kept(f"proof {rule} {cut}", proven)
        equal += one["equal"] and one["error"] <= EQUAL and one["logged"] == one["predicted"]
        lines.append(
            f"| {rule} | {cut} | {one['error']:.1e} | {one['exchanges']} | {one['logged']:,} | {one['predicted']:,} | "
            f"{one['apart']:.1e} |"
        )
    head = (
        f"Three replicas of a small decoder on real processes in fp64 against one process, three steps: loss, every "
        f"gradient, norm and parameters within {EQUAL:g}, and every byte. {equal} of {len(PLANS)} plans are equal.\n\n"
    )
    return head + "\n".join(lines), equal == len(PLANS)
