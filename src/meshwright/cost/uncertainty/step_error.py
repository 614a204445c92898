"""The error of a predicted step time: its parts, what it extrapolates, and what would narrow it.

A stack is *seen* where runs of it were fitted on the same kernels, with the same kind of model and precision.
The error is then what left-out groups of its runs had. Else the stack's part comes on top. Where the setting lies
outside the range of the runs, the group's part grows by ``PER_DOUBLING`` of the scale that lies farthest outside, an
assumption.
A cluster file with ``calibrated`` has the error of the user's own runs of that stack instead. What the doubt about
the constants does to the plan at hand comes on top of all.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import hypot

import numpy as np

from meshwright.cost.constants import kernels
from meshwright.cost.uncertainty.constants_error import log_responses, middle_of
from meshwright.cost.uncertainty.error_parts import NONE, ErrorParts, error_parts
from meshwright.cost.uncertainty.interval import Interval
from meshwright.cost.uncertainty.seen_runs import (
    Scale,
    SeenRuns,
    models,
    run_kind,
    runs_of_any_stack,
    scale_of,
    seen_runs,
)
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.setting import Setting

PER_DOUBLING: Mapping[str, float] = {"devices": 0.03, "nodes": 0.03, "nic_gbit_per_s": 0.03, "seq_len": 0.08}
"""Log-sigma that each doubling beyond the range of the runs adds, by scale (assumptions)."""
NETWORK = ("devices", "nodes", "nic_gbit_per_s")
UNMEASURED_KERNELS = 1.5
"""How much wider the group's part is where the device's kernels were never measured (an assumption)."""
WORTH_A_WORD = 0.5
"""Doublings beyond the range from which an answer says so."""


@dataclass(frozen=True, slots=True)
class StepError:
    """The error of a step time; ``extrapolated`` are sentences on what lies outside of the runs that tell it."""

    seen: bool
    parts: ErrorParts
    advice: str | None
    extrapolated: tuple[str, ...]
    origin: str

    @property
    def interval(self) -> Interval:
        """The 80 % interval, as factors on the predicted time."""
        return self.parts.interval

    def to_json(self) -> dict[str, object]:
        """Return the public form: ``{stack, parts, advice}``, parts as standard deviations of the logarithm."""
        return {
            "stack": "seen" if self.seen else "unseen",
            "parts": self.parts.to_json(),
            "advice": self.advice,
        }


def plan_errors(plans: PlanArrays, setting: Setting) -> list[StepError]:
    """Return the error of each plan's predicted step time."""
    ends = zip(*(np.exp(end).tolist() for end in middle_of(log_responses(plans, setting))), strict=True)
    return [step_error(setting, Interval(low, high)) for low, high in ends]


def step_error(setting: Setting, constants: Interval = NONE) -> StepError:
    """Return the error of step times that are predicted in a setting.

    ``constants`` is the interval that the doubt about the constants alone gives a plan (``constants_error.py``).
    """
    at_scale = partial(_at_scale, setting, constants)
    of, own = models(setting), setting.cluster.calibrated
    seen = seen_runs().get(run_kind(setting))
    ranges, unseen = runs_of_any_stack(setting), error_parts()[f"{of} unseen"]
    if own is not None and own.stack == setting.stack.name:
        origin = f"{own.runs} runs of {own.stack} on this cluster"
        return at_scale(unseen.scaled_to(own.sigma), ranges, origin)
    if seen is not None and seen.sigma is not None:
        origin = f"{seen.runs} published runs of this stack, device, kind of model and precision"
        return at_scale(unseen.scaled_to(seen.sigma), seen, origin)
    published = f"published runs of {'dense models' if of == 'dense' else 'models with experts'}"
    if seen is not None:
        origin = f"{published}, groups of which were left out of the fit"
        return at_scale(error_parts()[f"{of} seen"], seen, origin)
    if not kernels(setting.cluster.pool.device.id).measured:
        unseen = replace(unseen, group=UNMEASURED_KERNELS * unseen.group)
    origin = f"{published}, each source left out of the fit"
    return at_scale(unseen, ranges, origin, seen=False)


def pair_interval(setting: Setting) -> Interval:
    """Return the interval of the ratio of two plans' times in one setting; their stack's and group's errors cancel."""
    seen = "seen" if step_error(setting).seen else "unseen"
    return error_parts()[f"pair {seen}"].interval


def _at_scale(
    setting: Setting,
    constants: Interval,
    parts: ErrorParts,
    ranges: SeenRuns,
    origin: str,
    *,
    seen: bool = True,
) -> StepError:
    """Return the error at the scale of a setting, wider than ``parts`` outside the range of the runs."""
    scale = scale_of(setting)
    beyond = {name: ranges.doublings_beyond(scale, name) for name in PER_DOUBLING}
    if scale.nodes == 1:
        beyond["nic_gbit_per_s"] = 0.0
    further = {name: PER_DOUBLING[name] * doublings for name, doublings in beyond.items()}
    network = max(further[name] for name in NETWORK)
    wider = replace(parts, constants=constants).with_further_group_error(hypot(network, further["seq_len"]))
    extrapolated = tuple(_extrapolated(scale, ranges, beyond))
    advice = None
    if extrapolated or not seen:
        why = "; ".join(extrapolated) if seen else f"No runs of {setting.stack.name} like this were seen"
        advice = f"{why}: {_percent(wider)}."
        calibrated = error_parts()["calibrated"]
        if calibrated.interval.high < wider.interval.high:
            advice += f" Three runs of yours bring it to about {_percent(calibrated)}."
        advice = f"Extrapolated: {advice}" if seen else advice
    return StepError(seen, wider, advice, extrapolated, f"80 % interval: {origin} (docs/accuracy.md)")


def _extrapolated(scale: Scale, ranges: SeenRuns, beyond: Mapping[str, float]) -> Iterator[str]:
    if beyond["seq_len"] >= WORTH_A_WORD:
        yield (
            f"the attention kernel at {scale.seq_len:,.0f} tokens: the runs behind the prediction have "
            f"{_range(ranges.least.seq_len, ranges.most.seq_len)}"
        )
    if max(beyond["devices"], beyond["nodes"]) >= WORTH_A_WORD:
        yield (
            f"collectives over {scale.devices:,.0f} devices: the runs behind the prediction have "
            f"{_range(ranges.least.devices, ranges.most.devices)}"
        )
    if beyond["nic_gbit_per_s"] >= WORTH_A_WORD:
        yield (
            f"network cards of {scale.nic_gbit_per_s:,.0f} Gbit/s per device: the runs behind the prediction have "
            f"{_range(ranges.least.nic_gbit_per_s, ranges.most.nic_gbit_per_s)}"
        )


def _range(least: float, most: float) -> str:
    return f"{most:,.0f}" if least == most else f"{least:,.0f} to {most:,.0f}"


def _percent(parts: ErrorParts) -> str:
    return f"±{parts.interval.high - 1:.0%}"
