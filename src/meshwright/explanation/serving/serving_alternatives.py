"""Serving plans that differ in one choice: a degree, a number format or a limit of a pool; same load and devices.

A degree that changes the size of a replica changes the number of replicas with it, so that the devices stay as they
are. In a pool with a layout for each phase one degree of a phase grows and another shrinks. What breaks a law, has no
prediction or does not fit is left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from math import isfinite
from typing import Any

from meshwright.cost.serving.levels import LevelTable
from meshwright.cost.serving.serving_report import serving_report
from meshwright.errors import InputError
from meshwright.explanation.serving.serving_sensitivity import MEANS, WORDS
from meshwright.plans.serving.resolve_serving import ResolvedServing, resolve_serving
from meshwright.plans.serving.serving_file import ServingFile
from meshwright.plans.serving.serving_plan import Pool
from meshwright.plans.serving.serving_settings import with_settings
from meshwright.result import ServingReport

SIZES = ("attention_dp", "tp", "pp")
"""Degrees that make a replica larger."""
TIMES = (2.0, 0.5)


@dataclass(frozen=True, slots=True)
class ServingAlternative:
    """A plan that differs by some settings, its Report, and the Report of the plan that is explained."""

    settings: tuple[str, ...]
    report: ServingReport
    own: ServingReport

    @property
    def text(self) -> str:
        """The settings and what they change, in words."""
        changes = [
            f"{WORDS[mean]} {self.report.serving[mean] / self.own.serving[mean] - 1:+.1%}".replace("-", "−")
            for mean in MEANS
            if self.own.serving[mean]
            and isfinite(self.own.serving[mean])
            and isfinite(self.report.serving[mean])
        ]
        return f"{', '.join(self.settings)}: {', '.join(changes)}"

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        found = self.report.to_json()["serving"]
        return {"settings": list(self.settings), **{mean: found[mean] for mean in MEANS}, "text": self.text}


def serving_alternatives(
    file: ServingFile, resolved: ResolvedServing, levels: LevelTable | None = None
) -> list[ServingAlternative]:
    """Return the plans one step away that fit, the most output tokens per second first."""
    own = serving_report(resolved, levels)
    found = [one for settings in steps(resolved) if (one := _alternative(file, settings, own, levels))]
    return sorted(found, key=lambda one: -one.report.serving["output_tokens_per_s"])


def steps(resolved: ResolvedServing) -> Iterator[tuple[str, ...]]:
    """Yield the settings of every step from a plan, legal or not."""
    for pool in resolved.plan.pools.values():
        if pool.has_phase_layouts:
            yield from _of_phases(pool)
        else:
            yield from _of_layout(pool, experts=resolved.model.architecture.moe is not None)
        yield from _of_limits(pool)
        for key, now, other in (("weights", pool.formats.weights, "fp8"), ("kv", pool.formats.kv, "fp8")):
            if now is None or now.endswith("16"):
                yield (f"{pool.name}.{key}={other}",)


def _of_layout(pool: Pool, *, experts: bool) -> Iterator[tuple[str, ...]]:
    name, layout = pool.name, next(iter(pool.layouts.values()))
    for degree in SIZES:
        for times in TIMES:
            size, replicas = getattr(layout, degree) * times, pool.replicas / times
            if size < 1 or replicas != int(replicas) or replicas < 1:
                continue
            mesh = (
                _mesh(name, layout.ep, layout.stage_ranks * (1 if degree == "pp" else times))
                if experts
                else ()
            )
            yield (f"{name}.{degree}={size:.0f}", f"{name}.replicas={replicas:.0f}", *mesh)
    if layout.tp > 1 and experts:
        ranks = layout.attention_dp * layout.tp
        yield (f"{name}.attention_dp={ranks}", f"{name}.tp=1", *_mesh(name, layout.ep, layout.stage_ranks))
    if experts:
        for ep in {1, layout.stage_ranks} - {layout.ep}:
            yield _mesh(name, ep, layout.stage_ranks)


def _of_phases(pool: Pool) -> Iterator[tuple[str, ...]]:
    """Yield layouts of a phase with twice of one degree and half of another: the devices stay."""
    for phase, layout in pool.layouts.items():
        place = f"pools.{pool.name}.layouts.{phase}"
        for more, less in permutations(SIZES, 2):
            if getattr(layout, less) % 2 == 0:
                half = getattr(layout, less) // 2
                yield (f"{place}.{more}={2 * getattr(layout, more)}", f"{place}.{less}={half}")


def _mesh(pool: str, ep: int, ranks: float) -> tuple[str, ...]:
    ep = min(ep, int(ranks))
    return (f"{pool}.ep={ep}", f"{pool}.etp={int(ranks) // ep}")


def _of_limits(pool: Pool) -> Iterator[tuple[str, ...]]:
    for times in TIMES:
        yield (f"{pool.name}.chunk_tokens={pool.batching.chunk_tokens * times:.0f}",)
        if pool.batching.max_sequences is not None:
            yield (f"{pool.name}.max_sequences={pool.batching.max_sequences * times:.0f}",)


def _alternative(
    file: ServingFile, settings: tuple[str, ...], own: ServingReport, levels: LevelTable | None
) -> ServingAlternative | None:
    """Return the plan with some settings; None where it is not legal, not predicted, or does not fit."""
    try:
        report = serving_report(resolve_serving(with_settings(file, settings)), levels)
    except InputError:
        return None
    return ServingAlternative(settings, report, own) if report.fits else None
