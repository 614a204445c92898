"""Break one rank's PyTorch Kineto trace (JSON or JSON.gz) down into seconds per step in the categories of ``predict``.

Kernels, copies and fills of the device are read per stream; in a trace without a device the operators of the host
(``source`` says which). A step's time is divided without remainder: computation, the optimizer, the *exposed* part of
each kind of communication (not covered by computation), what the host keeps the device waiting for (copies to and from
it, and moments in which nothing had been launched), and ``bubble``: moments in which the next kernel was queued and
waited. Covered communication is reported separately as hidden.

A trace of one rank cannot distinguish a message from waiting for it: a kernel that receives runs until the neighbour
has sent, and a collective until the last rank has joined. So ``pp`` holds most of a pipeline's bubble, and the others
hold the differences between ranks; ``prediction_comparison`` compares accordingly. Between kernels of one stream a
device rests a microsecond or two, which counts as ``bubble``.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from meshwright.cost.closed_form.step_parts import PARTS
from meshwright.ingestion.kineto.collective_axes import COMMUNICATIONS, OTHER, Axes, GroupCategories
from meshwright.ingestion.kineto.event_categories import COPIES, OWNERS, RANKS, Work, device_work, host_work
from meshwright.ingestion.kineto.rank_trace import Ints, Trace, read_trace
from meshwright.ingestion.kineto.step_windows import NEVER, Windows, find_steps
from meshwright.ingestion.kineto.time_attribution import Floats, attribute_time

CATEGORIES = (*PARTS, OTHER)
NANO = 1e-9
TOP = 10
LONGEST_NAME = 160
KNOWN_LAUNCHES = 0.5


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A kernel or operator: its seconds and calls per step, its kind, and its category in the breakdown."""

    name: str
    kind: str
    category: str
    seconds: float
    calls: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceBreakdown:
    """Seconds per step of one rank, as means over the steps of a trace.

    ``seconds`` has every category and adds up to ``step_s``; ``hidden_s`` is communication under computation.
    ``kernel_s`` is time by kind of work, summed over streams. ``steps_marked`` is False if the trace marks no
    steps and its whole span counts as one.
    """

    source: Literal["device kernels", "host operators"]
    steps: int
    steps_marked: bool
    step_s: float
    step_lengths_s: tuple[float, ...]
    seconds: Mapping[str, float]
    hidden_s: Mapping[str, float]
    kernel_s: Mapping[str, float]
    top: tuple[KernelTime, ...]
    rank: int | None
    world_size: int | None
    device: str
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the breakdown as JSON-ready data."""
        return asdict(self)


def read_kineto(path: str | Path, axes: Axes | None = None) -> TraceBreakdown:
    """Break down a trace file; ``axes`` are the groups of its plan (``collective_axes.plan_axes``).

    Without a plan, kinds of communication are separated if the framework names its groups. Raises InputError.
    """
    return breakdown_of(read_trace(path), axes)


def breakdown_of(trace: Trace, axes: Axes | None = None) -> TraceBreakdown:
    """Break down a trace that has been read."""
    on_device = len(trace.device) > 0
    work = (device_work if on_device else host_work)(trace, GroupCategories(axes))
    steps = find_steps(trace, work.launched, work.is_kernel)
    shares = attribute_time(work.spans.start, work.spans.end, work.owner, RANKS, work.returned, steps)
    scale = NANO / len(steps)
    seconds = dict.fromkeys(CATEGORIES, 0.0)
    for owner, owned in zip(OWNERS, shares.owned.tolist(), strict=True):
        seconds[_category(owner)] += owned * scale
    seconds["host"] += shares.host_idle * scale
    seconds["bubble" if on_device else "host"] += shares.waiting * scale
    hidden = dict(zip(OWNERS, (shares.hidden * scale).tolist(), strict=True))
    own_s = _own_time(work, steps).astype(np.float64) * scale
    lengths = (steps.end - steps.start) * NANO
    return TraceBreakdown(
        source="device kernels" if on_device else "host operators",
        steps=len(steps),
        steps_marked=steps.marked,
        step_s=float(lengths.mean()),
        step_lengths_s=tuple(lengths.tolist()),
        seconds=seconds,
        hidden_s={name: hidden[name] for name in COMMUNICATIONS},
        kernel_s=_by_kind(work, own_s),
        top=_top(trace, work, own_s, len(steps)),
        rank=trace.rank,
        world_size=trace.world_size,
        device=trace.device_name,
        notes=tuple(_notes(trace, work, steps, seconds)),
    )


def _own_time(work: Work, steps: Windows) -> Ints:
    """Return the ns of each event inside the steps, without those of nested events."""
    inside = steps.inside(work.spans.start, work.spans.end)
    nested = work.parent >= 0
    of_children = np.bincount(work.parent[nested], weights=inside[nested], minlength=len(inside))
    return inside - of_children.astype(np.int64)


def _by_kind(work: Work, seconds: Floats) -> dict[str, float]:
    """Return seconds by kind of work, the largest first."""
    totals = np.bincount(work.kind, weights=seconds, minlength=len(work.kinds)).tolist()
    return dict(sorted(zip(work.kinds, totals, strict=True), key=lambda item: -item[1]))


def _top(trace: Trace, work: Work, seconds: Floats, steps: int) -> tuple[KernelTime, ...]:
    """Return the kernels with the most time."""
    names, first, inverse = np.unique(work.spans.name, return_index=True, return_inverse=True)
    totals = np.bincount(inverse, weights=seconds)
    calls = np.bincount(inverse, weights=seconds > 0) / steps
    longest = [at for at in np.argsort(-totals, kind="stable")[:TOP].tolist() if totals[at] > 0]
    return tuple(
        KernelTime(
            trace.names[names[at]][:LONGEST_NAME],
            work.kinds[work.kind[first[at]]],
            _category(OWNERS[work.owner[first[at]]]),
            float(totals[at]),
            float(calls[at]),
        )
        for at in longest
    )


def _category(owner: str) -> str:
    """Return the breakdown category of an owner's time."""
    return "host" if owner == COPIES else owner


def _notes(trace: Trace, work: Work, steps: Windows, seconds: Mapping[str, float]) -> list[str]:
    """Return remarks that a reader of the figures must know."""
    notes = list(trace.notes)
    if not steps.marked:
        notes.append("no step is marked (ProfilerStep#): the whole span counts as one")
    if not len(trace.device):
        notes.append("no device: operators of the host are read, moments without any count as host")
        if any(name.startswith("nccl:") for name in trace.names):
            notes.append(
                "the rank used NCCL: what its device did is not in the trace (profile with activity CUDA)"
            )
    elif np.mean(work.launched != NEVER) < KNOWN_LAUNCHES:
        notes.append("most kernels have no launch in the trace: moments without work count as bubble")
    if seconds[OTHER] > 0:
        notes.append(f"{OTHER}: the trace does not tell which axis it is for; a plan would help")
    return notes
