"""A run for people who watch it: a bar on a terminal, lines elsewhere, nothing where a program reads.

Lines come at the first and the last step, and else at most every ``LINE_EVERY_S`` seconds, so that a log of quick steps
stays short. The time to go is the mean of the last ``RECENT`` steps for each step that is left.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from meshwright.runtime.progress.metrics import StepMetrics
from meshwright.units import format_bytes, format_count

LINE_EVERY_S = 1.0
RECENT = 20


class Display(Protocol):
    """Shows the steps of a run."""

    def show(self, metrics: StepMetrics) -> None:
        """A step is over."""
        ...

    def note(self, text: str) -> None:
        """Something else is to be told: an evaluation, a checkpoint."""
        ...


@contextmanager
def display(console: Console | None, steps: int, clock: Callable[[], float] = monotonic) -> Iterator[Display]:
    """The form that fits ``console``; None where only a program reads. ``steps`` of the whole run."""
    if console is None:
        yield Silence()
    elif not console.is_terminal:
        yield Lines(console, Pace(steps), clock)
    else:
        text = TextColumn("{task.description}", markup=False)
        with Progress(BarColumn(bar_width=20), MofNCompleteColumn(), text, console=console) as progress:
            yield Bar(progress, Pace(steps))


class Pace:
    """How long the rest of a run takes."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._recent: deque[float] = deque(maxlen=RECENT)

    def left_s(self, metrics: StepMetrics) -> float:
        """Seconds from the end of this step to that of the last one."""
        self._recent.append(metrics.step_time_s)
        return (self.steps - metrics.step - 1) * sum(self._recent) / len(self._recent)


def summary(metrics: StepMetrics, left_s: float) -> str:
    """The numbers of a step, in one form for bar and lines. What is not known is left out."""
    parts = [f"loss {metrics.loss:.4f}"]
    if metrics.grad_norm is not None:
        parts.append(f"norm {metrics.grad_norm:.3g}")
    parts += [f"lr {metrics.lr:.3g}", f"{format_count(metrics.tokens_per_s)} tokens/s"]
    if metrics.mfu is not None:
        parts.append(f"MFU {metrics.mfu:.1%}")
    if metrics.memory_bytes is not None:
        parts.append(format_bytes(metrics.memory_bytes))
    return "  ".join([*parts, f"{duration(left_s)} to go"])


def duration(seconds: float) -> str:
    """Hours, minutes and seconds: ``1:02:03``, ``0:07``."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, last = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{last:02d}" if hours else f"{minutes}:{last:02d}"


class Silence:
    """Shows nothing."""

    def show(self, metrics: StepMetrics) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""


class Lines:
    """Plain lines for a file or a pipe."""

    def __init__(self, console: Console, pace: Pace, clock: Callable[[], float]) -> None:
        self._console, self._pace, self._clock = console, pace, clock
        self._shown_at: float | None = None

    def show(self, metrics: StepMetrics) -> None:
        """A line, if it is time for one."""
        left_s, now = self._pace.left_s(metrics), self._clock()
        last = metrics.step == self._pace.steps - 1
        if last or self._shown_at is None or now - self._shown_at >= LINE_EVERY_S:
            self._shown_at = now
            self.note(f"step {metrics.step}  {summary(metrics, left_s)}")

    def note(self, text: str) -> None:
        """A line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bar:
    """A bar that stays in the last line of a terminal."""

    def __init__(self, progress: Progress, pace: Pace) -> None:
        self._progress, self._pace = progress, pace
        self._task = progress.add_task("", total=pace.steps)

    def show(self, metrics: StepMetrics) -> None:
        """Move the bar."""
        text = summary(metrics, self._pace.left_s(metrics))
        self._progress.update(self._task, completed=metrics.step + 1, description=text)

    def note(self, text: str) -> None:
        """A line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False)
