"""Show a run's progress to people: a bar on a terminal, lines elsewhere, nothing if only a program reads.

Lines are printed for the first and the last step, and otherwise at most every ``LINE_EVERY_S`` seconds, so that a log
of quick steps stays short. The remaining time is the mean of the last ``RECENT`` steps times the steps left.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from meshwright.runtime.progress.step_metrics import StepMetrics
from meshwright.units import format_bytes, format_count

LINE_EVERY_S = 1.0
RECENT = 20


class Display(Protocol):
    """A display of a run's steps."""

    def show(self, metrics: StepMetrics) -> None:
        """Show a finished step."""
        ...

    def note(self, text: str) -> None:
        """Show a message about something else: an evaluation, a checkpoint."""
        ...


@contextmanager
def display(console: Console | None, steps: int, clock: Callable[[], float] = monotonic) -> Iterator[Display]:
    """Yield the display that fits ``console``; None: only a program reads. ``steps`` of the whole run."""
    if console is None:
        yield Silence()
    elif not console.is_terminal:
        yield Lines(console, RemainingTime(steps), clock)
    else:
        text = TextColumn("{task.description}", markup=False)
        with Progress(BarColumn(bar_width=20), MofNCompleteColumn(), text, console=console) as progress:
            yield Bar(progress, RemainingTime(steps))


class RemainingTime:
    """Estimate of a run's remaining time."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._recent: deque[float] = deque(maxlen=RECENT)

    def left_s(self, metrics: StepMetrics) -> float:
        """Return the seconds from the end of this step to that of the last one."""
        self._recent.append(metrics.step_time_s)
        return (self.steps - metrics.step - 1) * sum(self._recent) / len(self._recent)


def summary(metrics: StepMetrics, left_s: float) -> str:
    """Format the numbers of a step for bar and lines. Unknown ones are left out."""
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
    """Format hours, minutes and seconds: ``1:02:03``, ``0:07``."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, last = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{last:02d}" if hours else f"{minutes}:{last:02d}"


class Silence:
    """A display that shows nothing."""

    def show(self, metrics: StepMetrics) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""


class Lines:
    """Plain lines for a file or a pipe."""

    def __init__(self, console: Console, pace: RemainingTime, clock: Callable[[], float]) -> None:
        self._console, self._pace, self._clock = console, pace, clock
        self._shown_at: float | None = None

    def show(self, metrics: StepMetrics) -> None:
        """Print a line for the step if enough time has passed."""
        left_s, now = self._pace.left_s(metrics), self._clock()
        last = metrics.step == self._pace.steps - 1
        if last or self._shown_at is None or now - self._shown_at >= LINE_EVERY_S:
            self._shown_at = now
            self.note(f"step {metrics.step}  {summary(metrics, left_s)}")

    def note(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bar:
    """A bar in the last line of a terminal."""

    def __init__(self, progress: Progress, pace: RemainingTime) -> None:
        self._progress, self._pace = progress, pace
        self._task = progress.add_task("", total=pace.steps)

    def show(self, metrics: StepMetrics) -> None:
        """Advance the bar."""
        text = summary(metrics, self._pace.left_s(metrics))
        self._progress.update(self._task, completed=metrics.step + 1, description=text)

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False)
