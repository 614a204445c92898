"""The page of errors of runs that were left out of the fit, ``benchmarks/left-out.md``."""

from collections.abc import Mapping, Sequence
from datetime import date
from math import comb

import numpy as np
from error_parts import Found, Groups, grouped, joined, parts_of, student, whole_sigma
from left_out_fits import Floats, source_of

from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.cost.uncertainty.features_error import log_errors
from meshwright.cost.uncertainty.plan_features import plan_features
from meshwright.cost.uncertainty.regret import axes_above_one, recommended_order, regrets
from meshwright.plans.choices.defaults import departures
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.validation.error_metrics import ordered_pairs

ZERO3 = SHARDINGS.index("zero3")
RANKED = 4
FEW = 20
"""Sources with fewer runs say little of a share."""


def left_out_page(unseen: Sequence[Found], seen: Sequence[Found]) -> str:
    """The page, as Markdown."""
    dense, experts = (grouped(unseen, of) for of in ("dense", "experts"))
    held = coverage(dense)
    weighed = np.mean([share for share, _ in held.values()])
    return f"""# Runs left out of the fit

Step times of published runs, predicted with constants that were fitted without them; what only the left-out runs could
teach is at its prior in `calibration/priors.csv`. Each fit begins at the present constants with their derivatives,
which its steps correct and no fit computes anew, and takes about 150 runs of a source. The priors of four constants
know a little of published runs, as their origins say: messages inside a node, grouped products, sharded communication
and host time; the figures are that much too good where those matter. That of the host time of experts comes from five
rows of Megatron-Bridge itself: of that source, left out, the figure is too good. The passes that were timed beside
Zero Bubble's steps are fitted with its steps. Written on {date.today().isoformat()} by
`python scripts/write_error_parts.py RUNS.csv --write` from the constants of
`python scripts/fit_left_out.py RUNS.csv --write`, which are in
[left-out-constants.csv](left-out-constants.csv). In-sample errors of the same runs are in [accuracy](accuracy.md).

## Each source left out

What a new cluster and stack would find. *In the others' interval*: the share of a source's dense runs inside the 80 %
interval that follows from all other sources' left-out errors and from what its own fit leaves open of the constants
(each run has its own), with the range that a binomial share of so many runs has. Its
mean over the sources is {weighed:.1%}.

| source | runs | MAPE | bias | in the others' interval |
| --- | --: | --: | --: | --: |
{_source_lines(unseen, held)}
The mean MAPE over sources of dense models is {_mean_mape(dense):.1%}.

## Each fifth of a source's groups left out

What a new model or scale on a known stack would find: the groups (source, model, device, number of devices) of every
source were dealt to five folds, and each fold was predicted by constants that were fitted without it. *Pairs right*: of
all pairs of a setting whose times differ by more than 5 %, the share in the right order.

| source | runs | MAPE | bias | pairs | right |
| --- | --: | --: | --: | --: | --: |
{_fold_lines(seen)}
The mean MAPE over sources of dense models is {_mean_mape(grouped(seen, "dense")):.1%}.

## Choosing a plan

By how much the chosen plan was slower than the best one that was run, the mean over settings with at least {RANKED}
plans. *Fastest* takes the least predicted time; *recommended* is what `plan` recommends, with errors drawn from what
the fit leaves open of the constants and from the features of the plans; *best of 3*: the best of the first three
recommended; *smallest tp*: the mean of the plans with the smallest tp.

| left out | source | settings | fastest | recommended | best of 3 | smallest tp |
| --- | --- | --: | --: | --: | --: | --: |
{_choice_lines("fold", seen)}
{_choice_lines("source", unseen)}

## Parts of the error

Standard deviations of log(measured/predicted) beyond what the doubt about the constants explains;
`scripts/error_parts.py` says how they are found. *Constants*: what that doubt adds, the mean over the sources' runs.

| runs | stack | group | run | together | 80 % interval | constants | runs | sources |
| --- | --: | --: | --: | --: | --: | --: | --: | --: |
{_part_line("dense, source left out", dense, False)}
{_part_line("experts, source left out", experts, False)}
{_part_line("dense, group left out", grouped(seen, "dense"), True)}
{_part_line("experts, group left out", grouped(seen, "experts"), True)}
"""


def _choice_lines(left_out: str, found: Sequence[Found]) -> str:
    """Return the regrets of choices by source, and the mean over all settings."""
    by_source: dict[str, list[tuple[float, ...]]] = {}
    for one in found:
        if len(one.errors) >= RANKED:
            by_source.setdefault(source_of(one.observation), []).append(_choice_regrets(one, found, left_out))
    rows = {**dict(sorted(by_source.items())), "all": [row for own in by_source.values() for row in own]}
    return "\n".join(
        f"| {left_out} | {source} | {len(own)} | " + " | ".join(f"{m:.1%}" for m in np.mean(own, 0)) + " |"
        for source, own in rows.items()
    )


def _choice_regrets(one: Found, found: Sequence[Found], left_out: str) -> tuple[float, ...]:
    """Return the regret of the fastest plan, the recommended one, the best of three, and of the smallest tp."""
    here = one.observation
    measured, predicted = here.measured_s, here.measured_s * np.exp(one.errors)
    seen = frozenset[str]().union(
        *(
            plan_features(other.observation.plans, other.observation.setting)
            for other in found
            if other.observation.setting.stack.name == here.setting.stack.name
            and (source_of(other.observation) != source_of(here) or (left_out == "fold" and other is not one))
        )
    )
    draws = log_errors(here.plans, here.setting, one.responses, seen)
    order = recommended_order(
        regrets(predicted, draws),
        axes_above_one(here.plans),
        departures(here.plans, here.setting),
        evaluate(here.plans, here.setting).total_bytes,
        predicted,
    )
    small = here.plans.tp == here.plans.tp.min()
    chosen = (
        measured[predicted.argmin()],
        measured[order[0]],
        measured[order[:3]].min(),
        measured[small].mean(),
    )
    return tuple(float(time / measured.min() - 1) for time in chosen)


def coverage(groups: Groups) -> dict[str, tuple[float, int]]:
    """Return the share of each source's runs inside the interval of all other sources' errors, and their number."""
    held = {}
    for source, own in groups.items():
        others = {name: errors for name, errors in groups.items() if name != source}
        inside = joined(own).within(whole_sigma(others), student(len(others)))
        held[source] = float(inside.mean()), len(inside)
    return held


def binomial_range(share: float, runs: int) -> tuple[float, float]:
    """Return the 10 % and 90 % points of the observed share of so many runs whose true share is ``share``."""
    chances = np.array([comb(runs, k) * share**k * (1 - share) ** (runs - k) for k in range(runs + 1)])
    passed = np.cumsum(chances)
    return tuple(float(np.searchsorted(passed, point) / runs) for point in (0.1, 0.9))  # type: ignore[return-value]


def _errors_by_source(found: Sequence[Found]) -> dict[str, Floats]:
    errors: dict[str, list[Floats]] = {}
    for one in found:
        errors.setdefault(source_of(one.observation), []).append(one.errors)
    return {source: np.concatenate(own) for source, own in sorted(errors.items())}


def _source_lines(unseen: Sequence[Found], held: Mapping[str, tuple[float, int]]) -> str:
    lines = []
    for source, errors in _errors_by_source(unseen).items():
        inside = "–"
        if source in held:
            share, runs = held[source]
            low, high = binomial_range(share, runs)
            inside = f"{share:.0%} of {runs} ({low:.0%} to {high:.0%})"
        lines.append(f"| {source} | {_figures(errors)} | {inside} |")
        whole = [one for one in unseen if source_of(one.observation) == source]
        cut = [one.errors[one.observation.plans.sharding != ZERO3] for one in whole]
        if source.startswith("Megatron-LM"):
            lines.append(f"| {source}, without ZeRO-3 | {_figures(np.concatenate(cut))} | – |")
    return "\n".join(lines) + "\n"


def _fold_lines(seen: Sequence[Found]) -> str:
    lines = []
    for source, errors in _errors_by_source(seen).items():
        own = [one for one in seen if source_of(one.observation) == source]
        counts = [
            ordered_pairs(m, m * np.exp(e)) for m, e in ((o.observation.measured_s, o.errors) for o in own)
        ]
        right, pairs = np.sum(counts, 0)
        lines.append(
            f"| {source} | {_figures(errors)} | {pairs} | {f'{right / pairs:.0%}' if pairs else '–'} |"
        )
    return "\n".join(lines) + "\n"


def _figures(errors: Floats) -> str:
    return f"{len(errors)} | {np.abs(np.expm1(errors)).mean():.1%} | {np.expm1(errors.mean()):+.1%}"


def _mean_mape(groups: Groups) -> float:
    return float(np.mean([np.abs(np.expm1(-joined(own).values)).mean() for own in groups.values()]))


def _part_line(name: str, groups: Groups, stack_is_known: bool) -> str:
    parts = parts_of(groups, stack_is_known)
    low, high = parts.interval.low, parts.interval.high
    numbers = " | ".join(f"{value:.3f}" for value in (parts.stack, parts.group, parts.run, parts.sigma))
    constants = np.mean([joined(own).constants.mean() for own in groups.values()])
    interval = f"{low - 1:+.0%} to {high - 1:+.0%}"
    return f"| {name} | {numbers} | {interval} | {constants:.3f} | {parts.runs} | {parts.sources} |"
