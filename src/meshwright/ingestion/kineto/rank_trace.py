"""Read one rank's Kineto trace: device work, host operators, launches, annotations, groups.

Categories of events: libkineto/include/ActivityType.h of pytorch/kineto, and the capitalised ones of its early
releases. A kernel and the call that launched it share ``correlation``. Times become whole nanoseconds, so that sums are
exact. Host operators are kept only if there is no device work. Flows, Python frames, counters and memory events are
skipped.
"""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import InputError, Problem
from meshwright.ingestion.kineto.event_stream import EVENTS, stream_trace

Ints = NDArray[np.int64]

STEP, OPTIMIZER = "ProfilerStep#", "Optimizer.step#"
BACKENDS = ("nccl:", "gloo:", "mpi:", "ucc:")
KEPT_ANNOTATIONS = (STEP, OPTIMIZER, *BACKENDS)
PLACES: Mapping[str, str] = {
    **dict.fromkeys(("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"), "device"),
    **dict.fromkeys(("cpu_op", "operator"), "host"),
    "user_annotation": "annotations",
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "runtime"), "launches"),
    **dict.fromkeys(("xpu_runtime", "xpu_driver", "privateuse1_runtime", "privateuse1_driver"), "launches"),
}
HEADER = ("deviceProperties", "distributedInfo", "otherData")
UNKNOWN = -1
MAX_PROBLEMS = 20
LARGEST = 2**52


@dataclass(frozen=True, slots=True)
class Collective:
    """A communication kernel's group as the trace records it; ``ranks`` may be only the first of ``size``."""

    name: str = ""
    size: int = 0
    description: str = ""
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Spans:
    """Events as columns: times in ns, names and lanes (stream or thread) as numbers, ``link`` to a launch."""

    start: Ints
    end: Ints
    name: Ints
    lane: Ints
    link: Ints
    group: Ints

    @property
    def columns(self) -> tuple[Ints, ...]:
        """All columns in order."""
        return self.start, self.end, self.name, self.lane, self.link, self.group

    def take(self, rows: NDArray[Any]) -> "Spans":
        """Select some of the events."""
        return Spans(*(column[rows] for column in self.columns))

    def joined(self, other: "Spans") -> "Spans":
        """Concatenate these events and others."""
        return Spans(*map(np.concatenate, zip(self.columns, other.columns, strict=True)))

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace of one rank. ``host`` is empty unless ``device`` is."""

    names: tuple[str, ...]
    device: Spans
    host: Spans
    annotations: Spans
    launches: Spans
    collectives: tuple[Collective, ...]
    rank: int | None
    world_size: int | None
    device_name: str
    notes: tuple[str, ...] = ()


def read_trace(path: str | Path) -> Trace:
    """Read a trace. Raises InputError with the problems of the file."""
    collected = _Collected(str(path))
    for key, value in stream_trace(path):
        if key == EVENTS:
            collected.event(value)
        elif key in HEADER:
            collected.header[key] = value
    return collected.trace()


class _Collected:
    """Collector of events."""

    def __init__(self, path: str) -> None:
        self.path, self.header, self.count = path, dict[str, Any](), 0
        self.problems: list[Problem] = []
        self.names, self.lanes = dict[str, int](), dict[tuple[str, str], int]()
        self.groups: dict[tuple[str, Collective], int] = {}
        self.columns = {place: array("q") for place in ("device", "host", "annotations", "launches")}

    def event(self, event: Any) -> None:
        """Keep an event if it counts towards time."""
        self.count += 1
        if not isinstance(event, dict):
            self.refuse("", event, "is no object")
            return
        place = PLACES.get(str(event.get("cat")).lower())
        if place is None or event.get("ph") != "X" or (place == "host" and self.columns["device"]):
            return
        name, args = event.get("name"), event.get("args") or {}
        start, length = self.time(event, "ts"), self.time(event, "dur")
        if not isinstance(name, str) or not isinstance(args, dict):
            wrong = "args" if isinstance(name, str) else "name"
            self.refuse(wrong, event.get(wrong), "is of the wrong type")
        elif start is None or length is None:
            pass  # both are among the problems
        elif place != "annotations" or name.startswith(KEPT_ANNOTATIONS):
            lane = self.lanes.setdefault((str(event.get("pid")), str(event.get("tid"))), len(self.lanes))
            if place == "device" and "mem" in event["cat"].lower() and not name.startswith("Mem"):
                name = f"Memcpy {name}"
            number = self.names.setdefault(name, len(self.names))
            link = _whole(args.get("correlation"))
            group = self.group(args) if place == "device" else UNKNOWN
            row = (start, start + length, number, lane, UNKNOWN if link is None else link, group)
            self.columns[place].extend(row)

    def time(self, event: dict[str, Any], key: str) -> int | None:
        """Return a time of the event in nanoseconds, from microseconds; None, with a problem, if it is not a time."""
        value, smallest = event.get(key), 0 if key == "dur" else -LARGEST
        if isinstance(value, int | float) and not isinstance(value, bool) and smallest <= value <= LARGEST:
            return round(value * 1000)
        self.refuse(key, value, "must be a time in microseconds")
        return None

    def refuse(self, key: str, value: object, rule: str) -> None:
        """Record a problem; raise InputError if there are many."""
        field = f"{EVENTS}[{self.count - 1}]" + (f".{key}" if key else "")
        self.problems.append(Problem(field, value, rule, "record the trace again, or take the event out"))
        if len(self.problems) >= MAX_PROBLEMS:
            raise InputError(self.problems)

    def group(self, args: Mapping[str, Any]) -> int:
        """Return the index of a kernel's collective; ``UNKNOWN`` if the kernel records none."""
        if "Collective name" not in args:
            return UNKNOWN
        collective = Collective(
            str(args["Collective name"]),
            _whole(args.get("Group size")) or 0,
            str(args.get("Process Group Description") or ""),
            _ranks(args.get("Process Group Ranks")),
        )
        key = (str(args.get("Process Group Name") or ""), collective)
        return self.groups.setdefault(key, len(self.groups))

    def refuse_modelled(self) -> None:
        """Refuse a simulated or emulated step: nobody measured its times."""
        about = self.header.get("otherData")
        origin = about.get("origin") if isinstance(about, dict) else None
        if origin in ("simulated", "emulated"):
            rule = f"is a step that Meshwright has {origin}: nothing in it was measured"
            hint = "a trace that torch.profiler wrote in a run of the plan, or a second plan file"
            raise InputError(Problem("trace", self.path, rule, hint))

    def trace(self) -> Trace:
        """Return the trace after the file is read."""
        if self.problems:
            raise InputError(self.problems)
        spans = {place: _spans(column) for place, column in self.columns.items()}
        device, number, notes = _one_device(spans["device"], list(self.lanes))
        host = spans["host"] if not len(device) else spans["host"].take(np.arange(0))
        self.refuse_modelled()
        if not len(device) and not len(host):
            rule = "has no kernel and no operator" if self.count else "has no traceEvents"
            raise InputError(Problem("trace", self.path, rule, "profile with activities CPU and CUDA"))
        world = self.header.get("distributedInfo")
        world = world if isinstance(world, dict) else {}
        return Trace(
            names=tuple(self.names),
            device=device,
            host=host,
            annotations=spans["annotations"],
            launches=spans["launches"].take(np.isin(spans["launches"].link, device.link)),
            collectives=tuple(_completed(self.groups, world)),
            rank=_whole(world.get("rank")),
            world_size=_whole(world.get("world_size")),
            device_name=_device_name(self.header.get("deviceProperties"), number),
            notes=notes,
        )


def _spans(column: "array[int]") -> Spans:
    rows = np.frombuffer(column, dtype=np.int64).reshape(-1, 6) if column else np.empty((0, 6), np.int64)
    return Spans(*(np.ascontiguousarray(rows[:, i]) for i in range(6)))


def _one_device(work: Spans, lanes: list[tuple[str, str]]) -> tuple[Spans, str, tuple[str, ...]]:
    """Return the work of the busiest device of a trace, which is the rank's own, its number, and notes."""
    if not len(work):
        return work, "", ()
    devices, of_lane = np.unique([device for device, _ in lanes], return_inverse=True)
    busy = np.bincount(of_lane[work.lane], weights=work.end - work.start, minlength=len(devices))
    chosen = int(busy.argmax())
    several = int(np.count_nonzero(busy))
    notes = (f"the trace has kernels of {several} devices: the busiest is read",) if several > 1 else ()
    return work.take(of_lane[work.lane] == chosen), str(devices[chosen]), notes


def _completed(groups: Iterable[tuple[str, Collective]], world: Mapping[str, Any]) -> Iterable[Collective]:
    """Yield groups, completed with the ranks in the header."""
    listed = world.get("pg_config")
    known = {
        str(entry.get("pg_name")): _ranks(entry.get("ranks"))
        for entry in (listed if isinstance(listed, list) else ())
        if isinstance(entry, dict)
    }
    for name, collective in groups:
        ranks = known.get(name, ())
        yield replace(collective, ranks=ranks) if len(ranks) > len(collective.ranks) else collective


def _device_name(properties: object, number: str) -> str:
    """Return a device's name in the header; that of the first one if the number is not listed."""
    listed = (
        [entry for entry in properties if isinstance(entry, dict)] if isinstance(properties, list) else []
    )
    named = [entry for entry in listed if str(entry.get("id")) == number] or listed
    return str(named[0].get("name", "")) if named else ""


def _ranks(value: object) -> tuple[int, ...]:
    """Parse ranks from a list, or from text: ``[0, 1, ...]``, where torch omits ranks after the 30th."""
    parts = value if isinstance(value, list) else str(value or "").strip("[] ").split(",")
    ranks = (_whole(part) for part in parts)
    return tuple(rank for rank in ranks if rank is not None)


def _whole(value: object) -> int | None:
    """Return a whole number, also from text; None for anything else."""
    if isinstance(value, str) and value.strip().isdigit() and len(value) < 16:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST:
        return value
    return None
