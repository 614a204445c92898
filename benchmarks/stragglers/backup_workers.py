"""Simulate dynamic backup workers against every fixed number of them (arXiv 2004.14696).

Gradient descent on F(w) = ½‖w‖² from one point, with steps η of the mean of k noisy gradients, is computed; arrivals of
the gradients are drawn. The dynamic quorum is the runtime's, with the noise that the k gradients show. Late workers
drop their work and begin the newest step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import mean

import numpy as np
from stragglers_kept import kept

from meshwright.program.synchronisation.dynamic_quorum import DynamicQuorum

WORKERS, DIMS, STEP_SIZE = 16, 500, 0.02
START, VARIANCE = 1e4, 100.0
"""Squared norm of the first gradient; variance of one worker's gradient, over all dims."""
TARGETS = (10.0, 0.2, 0.04)
MOST_STEPS, SEEDS = 3000, (0, 1, 2)
SMOOTHING = 0.95
SLOW_FACTOR, SLOW_AFTER = 5.0, 100
Draw = Callable[[np.random.Generator, int], np.ndarray]
"""Arrival times of all workers in a step."""


def exponential(share: float) -> Draw:
    """Return arrivals 1 − α + α·Exp(1)."""
    return lambda draw, step: 1 - share + share * draw.exponential(size=WORKERS)


def pareto(draw: np.random.Generator, step: int) -> np.ndarray:
    """Return arrivals of a Pareto distribution with exponent 2 and least value 1/2."""
    return 0.5 * (1 + draw.pareto(2, size=WORKERS))


def half_slow(draw: np.random.Generator, step: int) -> np.ndarray:
    """Return nearly equal arrivals; of half of the workers they become five times as late after some steps."""
    times = 1 + 0.1 * draw.exponential(size=WORKERS)
    if step >= SLOW_AFTER:
        times[WORKERS // 2 :] *= SLOW_FACTOR
    return times


ARRIVALS: Mapping[str, Draw] = {
    "0.8 + 0.2·Exp(1)": exponential(0.2),
    "Exp(1)": exponential(1.0),
    "Pareto, exponent 2": pareto,
    "half of the workers 5 times slower from step 100": half_slow,
}


@dataclass
class Descent:
    """One run of gradient descent; ``quorum`` is fixed, or None for the dynamic one."""

    arrivals: Draw
    quorum: int | None
    seed: int
    policy: DynamicQuorum = field(default_factory=lambda: DynamicQuorum(WORKERS))
    variance: float = VARIANCE
    squared: float = START

    def seconds_to(self, targets: tuple[float, ...]) -> list[float]:
        """Return the seconds until the loss, smoothed over ten steps, is at each target; infinite if it never is."""
        draw = np.random.default_rng(self.seed)
        loss = START / 2
        w, now, found = np.full(DIMS, (START / DIMS) ** 0.5), 0.0, [float("inf")] * len(targets)
        for step in range(MOST_STEPS):
            k = self.policy.quorum if self.quorum is None else self.quorum
            times = np.sort(self.arrivals(draw, step))
            now += float(times[k - 1])
            noise = draw.standard_normal((k, DIMS)) * (VARIANCE / DIMS) ** 0.5
            gradients = w + noise
            if self.quorum is None:
                self._observe(gradients, times[:k])
            w = w - STEP_SIZE * gradients.mean(0)
            loss = 0.9 * loss + 0.1 * 0.5 * float(w @ w)
            found = [
                min(one, now) if loss <= target else one for one, target in zip(found, targets, strict=True)
            ]
            if max(found) < float("inf"):
                break
        return found

    def _observe(self, gradients: np.ndarray, times: np.ndarray) -> None:
        k = len(gradients)
        if k > 1:
            seen = float(gradients.var(0, ddof=1).sum())
            self.variance = SMOOTHING * self.variance + (1 - SMOOTHING) * seen
        squared = float((gradients.mean(0) ** 2).sum()) - self.variance / k
        self.squared = max(SMOOTHING * self.squared + (1 - SMOOTHING) * squared, 1e-9)
        self.policy.noise = STEP_SIZE / (2 - STEP_SIZE) * self.variance / self.squared
        self.policy.observe([float(one) for one in times])


def seconds_of(name: str) -> dict[str, list[float]]:
    """Return the mean seconds to each target, by quorum."""
    quorums: list[int | None] = [None, *range(1, WORKERS + 1)]
    return {
        str(quorum or "dynamic"): [
            mean(of)
            for of in zip(
                *(Descent(ARRIVALS[name], quorum, seed).seconds_to(TARGETS) for seed in SEEDS), strict=True
            )
        ]
        for quorum in quorums
    }


def backup_workers() -> tuple[str, bool]:
    """Return the section, and whether the dynamic choice is up to three times as quick as the best fixed one."""
    lines = [
        "| arrivals of 16 workers | loss to reach | dynamic, s | best fixed quorum, s | quorum | times as quick |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    best = 0.0
    for name in ARRIVALS:
        found = kept(f"backup workers {name}", lambda name=name: seconds_of(name))
        dynamic = found.pop("dynamic")
        for place, target in enumerate(TARGETS):
            quorum = min(found, key=lambda k: found[k][place])
            gain = found[quorum][place] / dynamic[place]
            best = max(best, gain)
            lines.append(
                f"| {name} | {target:g} | {dynamic[place]:.1f} | {found[quorum][place]:.1f} | {quorum} | {gain:.2f} |"
            )
    text = (
        f"Simulated. Gradient descent with η = {STEP_SIZE:g} on F = ½‖w‖² (L = 1) in {DIMS} dims from "
        f"F = {START / 2:g}, gradients of variance {VARIANCE:g}; means of {len(SEEDS)} seeds. Assumed: the loss, its "
        "noise, the arrivals and L, which the paper estimates; late workers drop their work at once. The best fixed "
        "quorum is chosen for each row afterwards.\n\n" + "\n".join(lines) + "\n\n"
        f"The paper reports up to 3 times; the most here is {best:.2f} times."
    )
    return text, best >= 1
