"""A run that saves in the background, played pass by pass: a stream computes, one copies to the host, a disk writes."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Run:
    """Seconds of a step's forward and backward passes and of what follows, of a checkpoint's copies and its writing.

    A checkpoint begins after every ``every``-th step.
    """

    passes_s: float
    optimizer_s: float
    copy_s: float
    write_s: float
    every: int

    @property
    def step_s(self):
        """Seconds of a step that waits for nothing."""
        return self.passes_s + self.optimizer_s


class PlayedRun:
    """Steps taken and steps on disk; ``waited_s`` for copies and for the disk."""

    def __init__(self, run: Run, clock: float = 0.0, step: int = 0):
        self.run, self.clock, self.step, self.on_disk = run, clock, step, step
        self.waited_s = 0.0
        self.saves: list[tuple[float, int]] = []
        self._copied_s = self._disk_free_s = clock

    def take_step(self):
        """Take a step; save after it where one is due."""
        optimizer_s = max(self.clock + self.run.passes_s, self._copied_s)
        self._wait(self.clock + self.run.passes_s, optimizer_s)
        self.clock = optimizer_s + self.run.optimizer_s
        self.step += 1
        if self.step % self.run.every == 0:
            begun_s = max(self.clock, self._disk_free_s)
            self._wait(self.clock, begun_s)
            self.clock = begun_s
            self._copied_s = begun_s + self.run.copy_s
            self._disk_free_s = max(self._copied_s, begun_s + self.run.write_s)
            self.saves.append((self._disk_free_s, self.step))

    def _wait(self, since_s, until_s):
        self.waited_s += until_s - since_s

    def newest_at(self, clock_s: float) -> int:
        """Return the step of the newest checkpoint that is on disk."""
        return max((step for on_disk_s, step in self.saves if on_disk_s <= clock_s), default=self.on_disk)


def played_share(run: Run, mtbf_s: float, restart_s: float, failures: int, draw: Random) -> float:
    """Return the share of the time that became steps on disk, over so many failures."""
    clock, step = 0.0, 0
    for _ in range(failures):
        failure_s = clock + draw.expovariate(1 / mtbf_s)
        if failure_s > clock + restart_s:
            played = PlayedRun(run, clock + restart_s, step)
            while played.clock < failure_s:
                played.take_step()
            step = played.newest_at(failure_s)
        clock = failure_s
    return step * run.step_s / clock
