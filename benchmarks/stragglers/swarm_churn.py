"""The section on SWARM: load ratios of stages that converge with churn, and mean steps of the three routings."""

from dataclasses import replace
from math import isclose
from statistics import fmean

from uniform_pipeline import uniform

from meshwright.simulate.churn.peer_rebalancing import EVERY_S, Rebalancing
from meshwright.simulate.churn.peer_routing import WeightedRoundRobin
from meshwright.simulate.churn.peers import Peer
from meshwright.simulate.churn.steps_under_churn import ROUTINGS, RoutedSteps

UNEVEN = [0] * 7 + [1] * 4 + [2] * 3 + [3] * 2
"""The stages of 16 peers at the beginning: 7, 4, 3 and 2."""
MINUTES, SEEDS = (0, 10, 20, 30, 60, 120), 8
CONVERGED = 1.05
RATES = (0.0, 0.1, 0.5, 2.0)
MOVES = {"a move every 300 s": EVERY_S, "without moves": 1e12}


def swarm_churn() -> tuple[str, bool]:
    """Return the section, and whether load ratios converge with moves and stay larger without."""
    ratios = {name: converging(every_s) for name, every_s in MOVES.items()}
    with_moves, without = ratios.values()
    steps = {rate: mean_steps(rate) for rate in RATES}
    text = f"""Simulated (`simulate/churn`): 16 peers of a pipeline of 4 equal stages, 8 micro-batches for each of 4
replicas; a forward pass takes 1 s, a backward pass 2 s, a message 0.2 s. The rules are those of SWARM (arXiv
2301.11913): weighted round-robin by throughput, a move of one peer every 300 s from the least to the most loaded stage,
and passes that run again from saved inputs. The paper's figures are of real training, which is not compared here.

**Load ratio** (largest load of a stage over the mean, in the 10 minutes from the time on; mean of {SEEDS} seeds). The
peers begin at the stages as 7, 4, 3 and 2; each leaves 0.72 times an hour and another one joins a minute later, at the
most loaded stage, so that loads converge without moves, too, but slower. 1 is even.

{_ratio_table(ratios)}

**Mean step** in seconds, with the least and the most of {SEEDS} seeds; peers begin evenly and are replaced after 660 s.
`skip` visits 3 of 4 stages, so that it trains with other gradients than the others.

{_step_table(steps)}"""
    calm = steps[0.0]
    at = MINUTES.index(30)
    good = max(with_moves[at:]) < CONVERGED < without[at] and with_moves[0] > 1.2
    return text, good and isclose(calm["fixed"][0], calm["swarm"][0]) and _is_faster(steps)


def _is_faster(steps: dict[float, dict[str, list[float]]]) -> bool:
    return all(steps[rate]["swarm"][0] < steps[rate]["fixed"][0] for rate in RATES if rate)


def converging(every_s: float) -> list[float]:
    """Return the mean load ratio over the 10 minutes from each time."""
    found: list[list[float]] = []
    for seed in range(SEEDS):
        setting = uniform(per_s=0.72 / 3600, move_s=5.0)
        peers = [Peer(index, stage) for index, stage in enumerate(UNEVEN)]
        run = RoutedSteps(
            setting, WeightedRoundRobin(4, 32), seed, Rebalancing(setting.work, every_s), peers=peers
        )
        found.append([])
        for minute in MINUTES:
            run.run(60.0 * minute) if minute else None
            before = replace(
                run.loads,
                busy=[-busy for busy in run.loads.busy],
                present=[-time for time in run.loads.present],
            )
            run.run(60.0 * minute + 600.0)
            before.add(run.loads)
            found[-1].append(before.ratio)
    return [fmean(column) for column in zip(*found, strict=True)]


def mean_steps(per_hour: float) -> dict[str, list[float]]:
    """Return the mean step of each routing, and the least and the most of its seeds."""
    setting = uniform(
        per_s=per_hour / 3600,
        down_s=660.0,
        move_s=5.0,
        patterns=((0, 1, 3), (0, 2, 3)),
        compulsory=frozenset({0, 3}),
    )
    long_s = min(12 / (setting.per_s * 16), 3e4) if per_hour else 0.0
    found = {}
    for name, run in ROUTINGS.items():
        means = sorted(run(setting, seed, long_s).mean_s for seed in range(SEEDS))
        found[name] = [fmean(means), means[0], means[-1]]
    return found


def _ratio_table(ratios: dict[str, list[float]]) -> str:
    lines = ["| minute | " + " | ".join(map(str, MINUTES)) + " |", "|---|" + "--:|" * len(MINUTES)]
    lines += [f"| {name} | " + " | ".join(f"{one:.3f}" for one in row) + " |" for name, row in ratios.items()]
    return "\n".join(lines)


def _step_table(steps: dict[float, dict[str, list[float]]]) -> str:
    lines = [
        "| a peer leaves, times an hour | " + " | ".join(ROUTINGS) + " |",
        "|---|" + "--:|" * len(ROUTINGS),
    ]
    for rate, row in steps.items():
        cells = " | ".join(f"{mean:.1f} ({low:.1f} to {high:.1f})" for mean, low, high in row.values())
        lines.append(f"| {rate:g} | {cells} |")
    return "\n".join(lines)
