"""Name ranks that have died or hang, with what they did last as evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.recovery.progress_board import Progress

MOST_NAMED = 4
"""Waiting ranks that a sentence names."""


def kill_faults(rows: Sequence[Progress], dead: Mapping[int, str], now_s: float) -> list[Fault]:
    """Return the faults of ranks that have died; ``dead`` says how."""
    return [
        Fault(
            kind="kill",
            rank=rank,
            step=_step(rows[rank]),
            evidence=f"{how}, {now_s - rows[rank].since_s:.2f} s after its last sign of life in {_doing(rows[rank])}",
            detected_s=now_s - _onset(rows[rank]),
        )
        for rank, how in dead.items()
    ]


def hang_faults(rows: Sequence[Progress], hanging: Sequence[int], now_s: float) -> list[Fault]:
    """Return the faults of ranks that make no progress."""
    return [
        Fault(
            kind="hang",
            rank=rank,
            step=_step(rows[rank]),
            evidence=f"no progress for {now_s - rows[rank].since_s:.1f} s in {_doing(rows[rank])}"
            + _waiting(rows, hanging),
            detected_s=now_s - _onset(rows[rank]),
        )
        for rank in hanging
    ]


def with_detection_time(fault: Fault, rows: Sequence[Progress], now_s: float) -> Fault:
    """Return a fault with the seconds since its injection, else since the last sign of life, if it has none."""
    if fault.detected_s is not None or fault.rank is None:
        return fault
    return replace(fault, detected_s=now_s - _onset(rows[fault.rank]))


def _onset(row: Progress) -> float:
    return row.injected_s or row.since_s


def _step(row: Progress) -> int:
    return max(0, row.step)


def _doing(row: Progress) -> str:
    return row.doing or "its start"


def _waiting(rows: Sequence[Progress], hanging: Sequence[int]) -> str:
    """Return what the other ranks wait for, as the end of a sentence."""
    others = [f"rank {rank} in {_doing(row)}" for rank, row in enumerate(rows) if rank not in hanging]
    if not others:
        return ""
    more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
    return f"; waiting for others: {', '.join(others[:MOST_NAMED])}{more}"
