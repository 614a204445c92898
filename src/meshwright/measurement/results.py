"""Results of a machine's measurement, as frozen values with a JSON round trip: ``read_results(r.to_text()) == r``.

Seconds are medians. Kernels were timed on every rank separately, a collective's time is that of its slowest member.
``bytes`` of a collective are the cost model's logical bytes:

    all-reduce, reduce-scatter   the buffer that every rank gives
    all-gather                   the buffer that every rank ends with
    all-to-all                   what one rank sends to all, itself included
    send-recv                    one message; partners exchange one in each direction at once
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal

from meshwright.errors import InputError, Problem
from meshwright.plans.files.strict_types import Strict
from meshwright.plans.files.validation_messages import validated

KernelKind = Literal["matmul", "attention", "attention-step", "pass", "launch", "layer"]
CollectiveKind = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-recv"]
AttentionKernel = Literal["", "flash", "cudnn"]
Precision = Literal["bf16", "fp32"]
Scope = Literal["part of node", "node", "nodes", "rail", "host pair", "device pair"]

DIMENSIONS: Mapping[KernelKind, int] = {
    "matmul": 3,
    "attention": 4,
    "attention-step": 4,
    "pass": 1,
    "launch": 1,
    "layer": 2,
}
"""Number of sizes in a kernel's shape."""
LARGEST = 1e18
LEAST_SLOWDOWN = 0.10
"""Smallest slowdown of an outlier: less is noise."""
HINT = "give a file that `meshwright measure` wrote"


class Machine(Strict):
    """The measured machine; ``device_names``, ``hosts`` and ``memory_bytes`` of every rank."""

    device_kind: Literal["cuda", "cpu"]
    device_names: tuple[str, ...]
    hosts: tuple[str, ...]
    memory_bytes: tuple[int, ...]
    threads_per_device: int
    backend: str
    torch: str
    date: str

    @property
    def ranks(self) -> int:
        """Devices that were measured; on a CPU, processes."""
        return len(self.hosts)

    @property
    def nodes(self) -> int:
        """Number of hosts."""
        return len(set(self.hosts))

    @property
    def devices_per_node(self) -> int:
        """Devices of the fullest host."""
        return max(self.hosts.count(host) for host in set(self.hosts))


class KernelTime(Strict):
    """One kernel on every rank: ``seconds`` and their robust standard deviation over repeats, a number per rank.

    ``shape`` is (m, k, n) of a product, (batch, heads, tokens, head size) of causal attention, (elements,) of a pass,
    (tokens, hidden size) of a layer. ``attention-step`` and ``layer`` are forward and backward; ``kernel`` names the
    attention kernel. A launch's seconds are the host's.
    """

    kind: KernelKind
    dtype: Precision
    kernel: AttentionKernel = ""
    shape: tuple[int, ...]
    flops: float
    moved_bytes: float
    seconds: tuple[float, ...]
    spread_s: tuple[float, ...]
    repeats: int

    @property
    def name(self) -> str:
        """The kernel's name for people: ``matmul bf16 8192×4096×4096``."""
        words = (self.kind, self.kernel, self.dtype, "×".join(map(str, self.shape)))
        return " ".join(word for word in words if word)


class Group(Strict):
    """Ranks that were measured together: ``local`` on each of ``nodes`` hosts (0 if hosts have unequal numbers)."""

    name: str
    scope: Scope
    ranks: tuple[int, ...]
    nodes: int
    local: int

    def active(self, kind: CollectiveKind) -> tuple[int, ...]:
        """Return the ranks that take part: one without a partner sends nothing."""
        return self.ranks[: len(self.ranks) // 2 * 2] if kind == "send-recv" else self.ranks

    def took(self, kind: CollectiveKind, size: int, seconds: float, repeats: int) -> "CollectiveTime":
        """Return the time of a collective of ``size`` bytes in this group."""
        return CollectiveTime(
            kind=kind,
            group=self.name,
            ranks=len(self.active(kind)),
            nodes=self.nodes,
            local=self.local,
            bytes=size,
            seconds=seconds,
            repeats=repeats,
        )


class CollectiveTime(Strict):
    """One collective of one size in the group of that name."""

    kind: CollectiveKind
    group: str
    ranks: int
    nodes: int
    local: int
    bytes: int
    seconds: float
    repeats: int


class Results(Strict):
    """All measurements; ``unfinished`` lists what was not reached in time or is not available."""

    measurement: Literal[1] = 1
    machine: Machine
    kernels: tuple[KernelTime, ...]
    groups: tuple[Group, ...]
    collectives: tuple[CollectiveTime, ...]
    unfinished: tuple[str, ...] = ()
    budget_s: float
    took_s: float

    @property
    def origin(self) -> str:
        """The origin of the numbers, as text."""
        of = self.machine
        return f"measured {of.date} with torch {of.torch}, backend {of.backend}"

    @cached_property
    def group_of(self) -> dict[str, Group]:
        """Groups by name."""
        return {group.name: group for group in self.groups}

    def in_scope(self, *scopes: Scope) -> tuple[CollectiveTime, ...]:
        """Return the collectives of groups of these scopes."""
        return tuple(time for time in self.collectives if self.group_of[time.group].scope in scopes)

    def to_text(self) -> str:
        """Return the results as JSON text."""
        return json.dumps(self.to_data(), ensure_ascii=False)


def read_results(text: str, where: str = "results") -> Results:
    """Read results from their JSON text. Raises InputError with every problem."""
    try:
        data = _with_tuples(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise InputError(Problem(where, text[:80], f"cannot be read as JSON: {error}", HINT)) from None
    if not isinstance(data, dict):
        raise InputError(Problem(where, text[:80], "must be a JSON object", HINT))
    results = validated(Results, data)
    problems = list(_contradictions(results))
    if problems:
        raise InputError(problems)
    return results


def _with_tuples(value: object) -> object:
    """Return the value with tuples for lists: results are frozen."""
    if isinstance(value, dict):
        return {key: _with_tuples(item) for key, item in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def _contradictions(results: Results) -> Iterator[Problem]:
    """Yield problems that the types do not exclude: one number per rank, shapes, values above zero, known groups."""
    if not results.machine.ranks:
        yield Problem("machine.hosts", (), "must not be empty", HINT)
    yield from _not_per_rank(results)
    for i, kernel in enumerate(results.kernels):
        if len(kernel.shape) != DIMENSIONS[kernel.kind]:
            rule = f"must have {DIMENSIONS[kernel.kind]} sizes"
            yield Problem(f"kernels.{i}.shape", kernel.shape[:8], rule, HINT)
        if bool(kernel.kernel) != kernel.kind.startswith("attention"):
            yield Problem(f"kernels.{i}.kernel", kernel.kernel, "belongs to attention, and only there", HINT)
    names = {group.name for group in results.groups}
    for i, time in enumerate(results.collectives):
        if time.group not in names:
            yield Problem(f"collectives.{i}.group", time.group, "is no group of these results", HINT)
    for i, group in enumerate(results.groups):
        if not group.ranks or not all(0 <= rank < results.machine.ranks for rank in group.ranks):
            rule = f"must be ranks from 0 to {results.machine.ranks - 1}"
            yield Problem(f"groups.{i}.ranks", group.ranks[:8], rule, HINT)
    for field, values in _positive(results):
        wrong = [value for value in values if not 0 < value <= LARGEST]
        if wrong:
            yield Problem(field, wrong[0], f"must be more than 0 and at most {LARGEST:.0e}", HINT)


def _not_per_rank(results: Results) -> Iterator[Problem]:
    per_rank: dict[str, Sequence[object]] = {
        "machine.device_names": results.machine.device_names,
        "machine.memory_bytes": results.machine.memory_bytes,
        **{f"kernels.{i}.seconds": kernel.seconds for i, kernel in enumerate(results.kernels)},
        **{f"kernels.{i}.spread_s": kernel.spread_s for i, kernel in enumerate(results.kernels)},
    }
    for field, values in per_rank.items():
        if len(values) != results.machine.ranks:
            rule = f"must have one entry for each of {results.machine.ranks} ranks"
            yield Problem(field, len(values), rule, HINT)


def _positive(results: Results) -> Iterator[tuple[str, Sequence[float]]]:
    """Yield every factor or divisor, by field."""
    yield "machine.memory_bytes", results.machine.memory_bytes
    for i, kernel in enumerate(results.kernels):
        yield f"kernels.{i}.seconds", kernel.seconds
        yield f"kernels.{i}", (kernel.flops, kernel.moved_bytes, *kernel.shape)
    for i, group in enumerate(results.groups):
        yield f"groups.{i}", (group.nodes, 1 + group.local)
    for i, time in enumerate(results.collectives):
        yield f"collectives.{i}", (time.seconds, time.bytes, time.ranks, time.nodes, 1 + time.local)
