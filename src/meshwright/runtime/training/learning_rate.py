"""Learning-rate schedules: the fraction of the highest rate at a step, a pure function of the step number.

Steps count from 0; s is the step, n the number of steps, w that of the warm-up, f the floor (a fraction too). In the
warm-up the factor is (s + 1)/w in every schedule, so that no step has rate 0 and step w − 1 has the full rate. After it
x = (s − w)/(n − w) runs from 0 to 1 and stays there. All factors lie in [0, 1], all schedules are 1 right after the
warm-up, and none falls below its floor.
"""

from dataclasses import dataclass
from math import cos, pi, sqrt
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The run that a schedule is for. ``decay_steps`` is the length of the decay of ``wsd``."""

    steps: int
    warmup_steps: int = 0
    floor: float = 0.0
    decay_steps: int = 0

    def passed(self, step: int) -> float:
        """Return the x of the schedules: the fraction of steps after the warm-up that are over before ``step``."""
        return min(1.0, (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps))

    def fallen(self, share: float) -> float:
        """Interpolate from the floor (``share`` 0) to 1 (``share`` 1)."""
        return self.floor + (1.0 - self.floor) * share


class Schedule(Protocol):
    """The factor of a step after the warm-up."""

    def __call__(self, step: int, course: Course) -> float:
        """Return the factor of ``step``."""
        ...


def constant(step: int, course: Course) -> float:
    """Return 1."""
    return 1.0


def cosine(step: int, course: Course) -> float:
    """Return f + (1 − f)·(1 + cos πx)/2: half a period (Loshchilov and Hutter, arXiv 1608.03983, eq. 5)."""
    return course.fallen((1 + cos(pi * course.passed(step))) / 2)


def linear(step: int, course: Course) -> float:
    """Return f + (1 − f)·(1 − x)."""
    return course.fallen(1 - course.passed(step))


def wsd(step: int, course: Course) -> float:
    """Return the warm-up-stable-decay factor (MiniCPM, 2404.06395): 1, then f + (1 − f)·(1 − √y) in the last d steps.

    y runs from 0 to 1 over d = ``decay_steps``, or over all steps after the warm-up if these are fewer; the form
    of the decay is that of arXiv 2405.18392.
    """
    length = max(1, min(course.decay_steps, course.steps - course.warmup_steps))
    y = 1 - (course.steps - step) / length
    return course.fallen(1 - sqrt(min(1.0, max(0.0, y))))


def inverse_sqrt(step: int, course: Course) -> float:
    """Return max(f, √(w/(s + 1))), the Transformer's decay (Vaswani et al., 1706.03762, eq. 3); w is at least 1."""
    return max(course.floor, min(1.0, sqrt(max(1, course.warmup_steps) / (step + 1))))


LR_SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "cosine": cosine,
    "linear": linear,
    "wsd": wsd,
    "inverse-sqrt": inverse_sqrt,
}


def rate_factor(schedule: str, step: int, course: Course) -> float:
    """Return the factor of a step under a schedule of ``LR_SCHEDULES``, warm-up included."""
    if step < course.warmup_steps:
        return (step + 1) / course.warmup_steps
    return LR_SCHEDULES[schedule](step, course)
