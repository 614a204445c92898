"""The pause of a training for each checkpoint: saved at once, or in the background.

Saved at once, training waits for all of the writing. Saved in the background (as in DataStates-LLM, arXiv 2406.10707,
and in ``runtime/checkpoint/background_save.py``), states are copied to the host during the next forward and backward
passes, which change none of them; the optimizer waits for the copies, and the next checkpoint for the disk. So training
waits

    max(0, copy − (F + B), on disk − τ)

seconds for a checkpoint, where copy = a rank's bytes / rate to its host, and τ is the work until the next checkpoint
begins. The checkpoint is on disk max(copy, write) seconds after it began: a piece is written as soon as it is copied.

Ignored: copies and writing that slow the passes down, a host buffer smaller than a rank's bytes, and the piece that is
on its way when copying ends.
"""

from dataclasses import dataclass

from meshwright.cluster.cluster import Pool
from meshwright.cost.constants import constant_on
from meshwright.errors import InputError, Problem
from meshwright.plans.setting import Setting
from meshwright.result import Report

AFTER_BACKWARD = ("optimizer", "dp", "codec")
"""Parts of a step that are not counted as passes: reductions are among them, though states change only behind them."""


@dataclass(frozen=True, slots=True)
class BackgroundCopies:
    """Copies of a checkpoint that is saved in the background.

    ``copy_s``: seconds of the rank with most bytes, alone. ``passes``: the share of a step in forward and backward
    passes.
    """

    copy_s: float
    passes: float = 1.0

    def on_disk_s(self, write_s: float) -> float:
        """Return the seconds from the beginning of a checkpoint to its commitment."""
        return max(self.copy_s, write_s)

    def pause_s(self, step_s: float, work_s: float, write_s: float) -> float:
        """Return the seconds that training waits for each checkpoint."""
        return max(0.0, self.copy_s - self.passes * step_s, self.on_disk_s(write_s) - work_s)


def even_copies(setting: Setting, checkpoint_bytes: float) -> BackgroundCopies:
    """Return the copies of any plan: as if all devices had alike much, and all of a step were passes.

    No plan waits less. Raises InputError where the rate of the link between device and host is unknown.
    """
    return BackgroundCopies(_copy_s(setting, checkpoint_bytes / setting.cluster.devices))


def copies_of_plan(setting: Setting, checkpoint_bytes: float, report: Report) -> BackgroundCopies:
    """Return the copies of a plan."""
    behind = sum(report.breakdown_s.get(part, 0.0) for part in AFTER_BACKWARD)
    passes = max(0.0, 1 - behind / report.step_time_s)
    return BackgroundCopies(_copy_s(setting, most_rank_bytes(checkpoint_bytes, report)), passes)


def most_rank_bytes(checkpoint_bytes: float, report: Report) -> float:
    """Return the bytes that the rank of a plan with most parameters and optimizer states copies.

    Of adapters it is at most the whole checkpoint, as the frozen parameters of a rank are no part of it.
    """
    held = max(stage["parameters"] + stage["optimizer"] for stage in report.memory_bytes["stages"])
    return min(held, checkpoint_bytes)


def host_rate(setting: Setting, pool: Pool) -> float | None:
    """Return the bytes a second that copies between a device and its host reach; None where it is unknown."""
    nominal = pool.node.host_bytes_per_s
    return None if nominal is None else constant_on(setting.cluster, "host_link_efficiency") * nominal


def _copy_s(setting: Setting, rank_bytes: float) -> float:
    rates = [host_rate(setting, pool) for pool in setting.cluster.pools]
    known = [rate for rate in rates if rate is not None]
    if len(known) < len(rates):
        rule = f"needs the rate from a device of {setting.cluster.name} to its host, which nobody has said"
        hint = "host_gbyte_per_s_per_device in the cluster file"
        raise InputError(Problem("assume.checkpoint_async", "true", rule, hint))
    return rank_bytes / min(known)
