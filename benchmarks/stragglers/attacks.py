"""Train seven replicas of which one or two send wrong gradients, with each rule that combines them.

The replicas are real processes. Wrong ones replace their gradient just before it is sent:

====================  ==============================================================================================
attack                what a wrong replica sends
====================  ==============================================================================================
sign flip             −10 times its own gradient
noise                 Gaussian noise of 100 times the norm of its own gradient
small shift           in each element the mean of the honest gradients minus 1.5 of their standard deviations
====================  ==============================================================================================
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from statistics import mean
from typing import Any

import torch
import torch.distributed as dist
from stragglers_kept import kept
from text_runs import TextRun

from meshwright.runtime.synchronisation.draw_key import seeded
from meshwright.runtime.synchronisation.unit_codecs import UnitCodecs

REPLICAS, STEPS, LR = 7, 50, 0.3
LAST, SEEDS = 8, (0,)
SHOWN = (1, 10, 20, 30, 40, 50)
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
SGD = {"name": "sgd", "momentum": 0.9}
FLAG_RANK = 4
"""⌈(n + 1)/2⌉, the rank that the paper takes."""
ATTACKS = ("none", "sign flip", "noise", "small shift")
MUST_TRAIN = ("median", "Krum", "Flag, normalised")
HALF = 0.5
"""Share of the healthy run's decrease of the loss that a rule must keep where it withstands an attack."""


def entry(combine: object) -> dict[str, object]:
    """Return an entry; the mean is a trimmed mean of which nothing is cut, so that all rules take one way."""
    return {"state": "gradient", "over": "dp_replicate", "combine": combine}


def rules(wrong: int) -> dict[str, dict[str, object]]:
    """Return the entries by rule; ``wrong`` is the f that they know."""
    return {
        "mean": entry({"trimmed_mean": 0}),
        "median": entry("median"),
        "trimmed mean": entry({"trimmed_mean": wrong}),
        "Krum": entry({"krum": wrong}),
        "Flag": entry({"flag": {"rank": FLAG_RANK}}),
        "Flag, normalised": entry({"flag": {"rank": FLAG_RANK, "average": "normalised"}}),
    }


@contextmanager
def attacked(attack: str, wrong: int) -> Iterator[None]:
    """Let the last ``wrong`` ranks of runs inside the block send wrong gradients."""
    honest = UnitCodecs.sum

    def attacking(self: UnitCodecs, items: Any, shard: torch.Tensor) -> Generator[Any, None, None]:
        rank = self.communicator.rank
        if attack == "small shift":
            everyone = [torch.empty_like(shard) for _ in range(REPLICAS)]
            dist.all_gather(everyone, shard.contiguous())
            rows = torch.stack(everyone[: REPLICAS - wrong])
        if rank >= REPLICAS - wrong:
            if attack == "sign flip":
                shard.mul_(-10)
            elif attack == "noise":
                draw = seeded(shard.device, "attack", rank, int(self._count(0)), self.unit.name)
                noise = torch.randn(shard.shape, generator=draw, dtype=shard.dtype)
                shard.copy_(100 * shard.norm() / noise.norm() * noise)
            elif attack == "small shift":
                shard.copy_(rows.mean(0) - 1.5 * rows.std(0))
        yield from honest(self, items, shard)

    UnitCodecs.sum = attacking  # type: ignore[method-assign]
    try:
        yield
    finally:
        UnitCodecs.sum = honest  # type: ignore[method-assign]


def curves(attack: str, wrong: int, rule: str) -> list[float]:
    """Return the mean loss of each step over seeds; infinite where a run ended since its loss was not finite."""
    said = rules(wrong)[rule]

    def train(seed: int) -> list[float]:
        run = TextRun(f"{attack} {wrong} {rule}", REPLICAS, said, STEPS, LR, SGD, sizes=SIZES)
        with attacked(attack, wrong):
            return list(run.train(seed)["losses"])

    runs = [kept(f"attack {attack} {wrong} {rule} {seed}", lambda seed=seed: train(seed)) for seed in SEEDS]
    return [mean(of) for of in zip(*runs, strict=True)]


def attacks() -> tuple[str, bool]:
    """Return the section, and whether the rules withstand what they must."""
    healthy = curves("none", 0, "mean")
    first, ends = healthy[0], {"none": mean(healthy[-LAST:])}
    lines, good = [_head(), _row("none", 0, "mean", healthy, "")], True
    for attack in ATTACKS[1:]:
        for wrong in (1, 2):
            for rule in rules(wrong):
                found = curves(attack, wrong, rule)
                kept_share = (first - mean(found[-LAST:])) / (first - ends["none"])
                trains = kept_share >= HALF
                if attack != "small shift" and (rule in MUST_TRAIN or rule == "mean"):
                    good &= trains == (rule in MUST_TRAIN)
                lines.append(_row(attack, wrong, rule, found, f"{kept_share:.2f}"))
    text = (
        f"A decoder of width {SIZES['hidden_size']} on the example text, {REPLICAS} replicas of one sequence of 64 "
        f"tokens each, real processes on this machine's CPU; SGD of {LR} with momentum 0.9, gradients clipped at norm "
        f"1, {STEPS} steps. Losses are measured, of {len(SEEDS)} seed. `kept` is the decrease of the mean loss "
        f"of the last {LAST} steps over that of the mean without an attack. Flag's rank is {FLAG_RANK}; trimmed mean "
        "and Krum know f.\n\n" + "\n".join(lines) + "\n\n"
        "Must be shown: with a sign flip and with noise median, Krum and Flag of normalised rows keep training at both "
        f"f (at least {HALF} of the decrease) and the mean does not: **{'yes' if good else 'no'}**. Flag of raw rows "
        "does not withstand them: a flipped row lies in the subspace of the honest ones, where a projection keeps it, "
        "and long noise is a direction of the subspace of rank 4. The small shift is shown as it comes."
    )
    return text, good


def _head() -> str:
    steps = " | ".join(f"step {step}" for step in SHOWN)
    return f"| attack | f | rule | {steps} | kept |\n|---|--:|---|{'--:|' * (len(SHOWN) + 1)}"


def _row(attack: str, wrong: int, rule: str, losses: list[float], share: str) -> str:
    values = " | ".join(f"{losses[step - 1]:.3f}" for step in SHOWN)
    return f"| {attack} | {wrong} | {rule} | {values} | {share} |"
