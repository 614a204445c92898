"""Classify the events of a trace: kind of work, the event that owns the time, launch time on the host.

On a device everything is compute except the optimizer (launched inside an ``Optimizer.step#…`` annotation, or Adam by
name), communication, and copies between host and device, which the host waits for. A CPU's trace has nested operators:
the one that starts a collective (``c10d::…``) is not work, the collective is the annotation of the backend's thread
(``gloo:all_reduce``), which does not record its group.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.ingestion.kineto.collective_axes import COMMUNICATIONS, OTHER, GroupCategories
from meshwright.ingestion.kineto.kernel_names import (
    COMMUNICATION,
    COPY,
    HOST_COPY,
    KERNELS,
    OPERATORS,
    OPTIMIZER_KERNEL,
    PEER_COPY,
    collective_kind,
    kind_of,
)
from meshwright.ingestion.kineto.rank_trace import (
    BACKENDS,
    OPTIMIZER,
    UNKNOWN,
    Collective,
    Ints,
    Spans,
    Trace,
)
from meshwright.ingestion.kineto.step_windows import NEVER
from meshwright.ingestion.kineto.time_attribution import SHARED

COMPUTE, OPTIMIZING, COPIES = "compute", "optimizer", "copies"
OWNERS = (COMPUTE, OPTIMIZING, *COMMUNICATIONS, COPIES)
RANKS = (0, 1, *(SHARED for _ in COMMUNICATIONS), SHARED + 1)
"""Priority of each owner when several run at once, for ``time_attribution.attribute_time``."""

HOST_BACKENDS = ("gloo:", "mpi:")
"""Backends whose annotation is the collective itself; NCCL's only launches it."""

Classes = tuple[str, str]
"""Owner and kind of an event."""


@dataclass(frozen=True, slots=True)
class Work:
    """Events with the index of each one's owner (in ``OWNERS``) and kind (in ``kinds``), and its parent event.

    ``launched`` is the time at which the host began to launch an event, ``returned`` the time at which the launch
    returned; ``NEVER`` if unknown.
    """

    spans: Spans
    owner: Ints
    kind: Ints
    kinds: tuple[str, ...]
    parent: Ints
    launched: Ints
    returned: Ints

    @property
    def is_kernel(self) -> NDArray[np.bool_]:
        """True for everything but copies."""
        return self.kind != (self.kinds.index(COPY) if COPY in self.kinds else UNKNOWN)


def device_work(trace: Trace, groups: GroupCategories) -> Work:
    """Classify kernels, copies and fills of the device."""
    spans, (launched, returned, lane) = trace.device, _launches(trace)
    optimizing = _enclosing(trace, (OPTIMIZER,), launched, lane) != UNKNOWN
    backend = _enclosing(trace, BACKENDS, launched, lane)

    def classes(name: int, group: int, optimizer: int, annotation: int) -> Classes:
        kernel, kind = trace.names[name], kind_of(trace.names[name], KERNELS)
        if kind == COPY:
            return _owner_of_copy(kernel), kind
        if kind == COMMUNICATION or group != UNKNOWN:
            annotated = trace.names[annotation] if annotation != UNKNOWN else ""
            collective = trace.collectives[group] if group != UNKNOWN else Collective(annotated)
            return groups.category(collective_kind(collective.name, kernel), collective), COMMUNICATION
        return OPTIMIZING if optimizer or OPTIMIZER_KERNEL.search(kernel) else COMPUTE, kind

    columns = (spans.name, spans.group, optimizing.astype(np.int64), backend)
    owner, kind, kinds = _classified(columns, classes)
    return Work(spans, owner, kind, kinds, np.full(len(spans), UNKNOWN), launched, returned)


def host_work(trace: Trace, groups: GroupCategories) -> Work:
    """Classify operators of a trace without a device, and the collectives of its backend."""
    is_backend = np.array([name.startswith(HOST_BACKENDS) for name in trace.names])
    starts_one = np.array([kind_of(name, OPERATORS) == COMMUNICATION for name in trace.names])
    operators = trace.host.take(~starts_one[trace.host.name])
    collectives = trace.annotations.take(is_backend[trace.annotations.name])
    spans = operators.joined(collectives)
    optimizing = _enclosing(trace, (OPTIMIZER,), spans.start, spans.lane) != UNKNOWN

    def classes(name: int, optimizer: int) -> Classes:
        operator, kind = trace.names[name], kind_of(trace.names[name], OPERATORS)
        if kind == COMMUNICATION:
            collective = Collective(operator)
            return groups.category(collective_kind(operator, ""), collective), kind
        return OPTIMIZING if optimizer else COMPUTE, kind

    owner, kind, kinds = _classified((spans.name, optimizing.astype(np.int64)), classes)
    never = np.full(len(spans), NEVER)
    return Work(spans, owner, kind, kinds, _parents(spans), never, never)


def _owner_of_copy(name: str) -> str:
    """Return the owner of a copy's time: the host link, communication between devices, or compute."""
    if HOST_COPY.search(name):
        return COPIES
    return OTHER if PEER_COPY.search(name) else COMPUTE


def _classified(
    columns: tuple[Ints, ...], classes: Callable[..., Classes]
) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Return owners and kinds of all events; each combination of columns is classified once."""
    rows, inverse = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    found = [classes(*row) for row in rows.tolist()]
    kinds = tuple(dict.fromkeys(kind for _, kind in found))
    owner = np.array([OWNERS.index(owner) for owner, _ in found], np.int64)
    kind = np.array([kinds.index(kind) for _, kind in found], np.int64)
    return owner[inverse.ravel()], kind[inverse.ravel()], kinds


def _launches(trace: Trace) -> tuple[Ints, Ints, Ints]:
    """Return begin, end and thread of the launch of each device event."""
    calls = trace.launches.take(np.argsort(trace.launches.start, kind="stable"))
    links, first = np.unique(calls.link, return_index=True)
    if not len(links):
        never = np.full(len(trace.device), NEVER)
        return never, never, never
    at = np.minimum(np.searchsorted(links, trace.device.link), len(links) - 1)
    known = (links[at] == trace.device.link) & (trace.device.link != UNKNOWN)
    call = calls.take(first[at])
    start, end, lane = (np.where(known, column, NEVER) for column in (call.start, call.end, call.lane))
    return start, end, lane


def _enclosing(trace: Trace, prefixes: tuple[str, ...], time: Ints, lane: Ints) -> Ints:
    """Return the name of the annotation with such a prefix that encloses each time on a thread, or ``UNKNOWN``."""
    matching = np.array([name.startswith(prefixes) for name in trace.names])
    spans = trace.annotations.take(matching[trace.annotations.name])
    found = np.full(len(time), UNKNOWN)
    for thread in np.unique(spans.lane):
        rows = np.flatnonzero(lane == thread)
        on = spans.take(spans.lane == thread)
        on = on.take(np.argsort(on.start, kind="stable"))
        latest_end = np.maximum.accumulate(on.end)
        longest = np.searchsorted(latest_end, latest_end, side="left")  # the span with that end
        at = np.searchsorted(on.start, time[rows], side="right") - 1
        inside = (at >= 0) & (time[rows] < latest_end[np.maximum(at, 0)])
        found[rows[inside]] = on.name[longest[at[inside]]]
    return found


def _parents(spans: Spans) -> Ints:
    """Return the event of the same thread that encloses each event, or ``UNKNOWN``."""
    parent = np.full(len(spans), UNKNOWN)
    open_events: list[int] = []
    lanes, ends = spans.lane.tolist(), spans.end.tolist()
    starts = spans.start.tolist()
    for row in np.lexsort((-spans.end, spans.start, spans.lane)).tolist():
        while open_events and (
            lanes[open_events[-1]] != lanes[row]
            or ends[open_events[-1]] < ends[row]
            or ends[open_events[-1]] <= starts[row]
        ):
            open_events.pop()
        if open_events:
            parent[row] = open_events[-1]
        open_events.append(row)
    return parent
