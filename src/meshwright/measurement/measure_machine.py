"""Measure a machine's kernels and collectives within a budget of seconds (``measure``).

Under torchrun or Slurm every process is one rank and rank 0 gets the results; otherwise processes of this host are
started. The parts that a machine has share the budget in proportion to ``PARTS``: on one host nothing crosses
hosts. What does not fit is left out and listed in ``unfinished``; start-up, three repeats of every kernel and four
sizes of every collective always run, whatever the budget.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import torch
import torch.distributed as dist

from meshwright.errors import InputError, MeasurementError, Problem, RunError
from meshwright.measurement.collectives import Collectives
from meshwright.measurement.kernels import Kernel, kernels_of, time_kernel
from meshwright.measurement.machine_facts import host_name, machine_of, own_core
from meshwright.measurement.rank_groups import GroupRound, collective_rounds, pair_rounds
from meshwright.measurement.rank_session import OPERATION_S, Session, join_job
from meshwright.measurement.results import KernelTime, Results, Scope, read_results
from meshwright.measurement.timing import BLOCK_S, SHARED_BLOCK_S
from meshwright.runtime.executor.rank import CPU_THREADS
from meshwright.runtime.launch.forked_ranks import ProgressCallback, run_locally
from meshwright.runtime.launch.launcher_environment import Place, launched_place
from meshwright.runtime.launch.rendezvous import MEETING_S, shared_store

DEFAULT_S, LONGEST_S = 300.0, 600.0
PARTS = {"kernels": 0.3, "node": 0.3, "across": 0.3, "pairs": 0.1}
INSIDE: tuple[Scope, ...] = ("part of node", "node")
MOST_PAIR_ROUNDS = 32
CPU_PROCESSES = 2
SLACK = 3.0
"""Factor of the budget that local ranks may take, plus ``MEETING_S``, before they count as stuck."""


@dataclass(frozen=True, slots=True)
class MeasurementOptions:
    """The time to measure, and the time after which an operation counts as stuck.

    ``hosts`` names a host for every rank, to rehearse several hosts on one.
    """

    budget_s: float = DEFAULT_S
    operation_s: float = OPERATION_S
    hosts: tuple[str, ...] = ()


def measure(
    budget_s: float = DEFAULT_S, processes: int | None = None, progress: ProgressCallback | None = None
) -> Results | None:
    """Measure the machine that this process was launched on, or this host with so many processes.

    Without ``processes``: one for each accelerator, or two on a CPU. Returns None on all launched ranks but 0. Raises
    InputError, and MeasurementError that names the rank that failed first.
    """
    place = launched_place(os.environ)
    _check(budget_s, processes, place)
    options, report = MeasurementOptions(budget_s), progress or _silent
    if place is None:
        return measure_locally(options, processes or torch.cuda.device_count() or CPU_PROCESSES, report)
    return measured_by_rank(place, _shared_store(place), options, report if place.rank == 0 else _silent)


def measure_locally(options: MeasurementOptions, processes: int, report: ProgressCallback) -> Results:
    """Measure this host with so many processes."""

    def work(place: Place, store: dist.Store, report_rank: ProgressCallback) -> str:
        report_rank_0 = report_rank if place.rank == 0 else _silent
        with ThreadPoolExecutor(
            1
        ) as fresh:  # OpenMP's threads belong to the forking thread and do not survive
            results = fresh.submit(measured_by_rank, place, store, options, report_rank_0).result()
        return results.to_text() if results else ""

    try:
        text = run_locally(work, processes, SLACK * options.budget_s + MEETING_S, report)
    except RunError as error:
        raise MeasurementError(str(error)) from error
    return read_results(str(text))


def measured_by_rank(
    place: Place, store: dist.Store, options: MeasurementOptions, report: ProgressCallback
) -> Results | None:
    """Run one rank's part of the measurement; return the results on rank 0."""
    host = options.hosts[place.rank] if options.hosts else host_name()
    with join_job(place, host, store, options.operation_s) as session:
        results = _measured(session, options, report)
    return results if place.rank == 0 else None


def shares(budget_s: float, parts: Mapping[str, bool]) -> dict[str, float]:
    """Return the seconds of every part that exists."""
    whole = sum(PARTS[name] for name, there in parts.items() if there)
    return {name: budget_s * PARTS[name] / whole if there else 0.0 for name, there in parts.items()}


def _measured(session: Session, options: MeasurementOptions, report: ProgressCallback) -> Results:
    began = perf_counter()
    least_s = BLOCK_S
    if session.device.type == "cpu":
        torch.set_num_threads(CPU_THREADS)
        apart = own_core([str(host) for host in session.gathered(host_name())], host_name())
        least_s = BLOCK_S if apart else SHARED_BLOCK_S
    machine = machine_of(session)
    rounds = _rounds(machine.hosts)
    budget = shares(options.budget_s, {"kernels": True, **{part: bool(of) for part, of in rounds.items()}})
    kernel_cases = kernels_of(machine.device_kind, min(machine.memory_bytes))
    first = budget["kernels"]
    kernels, missing = _kernel_times(
        session,
        kernel_cases,
        KernelBudget(first, least_s),
        lambda what, part: report(what, part * first / options.budget_s),
    )
    collectives, spent = Collectives(session), first
    for part, of in rounds.items():
        for played in of:
            report(played.name, spent / options.budget_s)
            collectives.play(played, budget[part] / len(of))
            spent += budget[part] / len(of)
    return Results(
        machine=machine,
        kernels=kernels,
        groups=tuple(group for of in rounds.values() for played in of for group in played.groups),
        collectives=collectives.times(),
        unfinished=(*missing, *collectives.unfinished),
        budget_s=options.budget_s,
        took_s=perf_counter() - began,
    )


def _rounds(hosts: Sequence[str]) -> dict[str, list[GroupRound]]:
    """Return the rounds of every part except the kernels."""
    rounds = collective_rounds(hosts)
    return {
        "node": [played for played in rounds if played.scope in INSIDE],
        "across": [played for played in rounds if played.scope not in INSIDE],
        "pairs": list(pair_rounds(hosts, MOST_PAIR_ROUNDS)),
    }


class KernelBudget(NamedTuple):
    """Seconds for all kernels, and for the shortest block of one."""

    budget_s: float
    least_s: float


def _kernel_times(
    session: Session, kernels: Sequence[Kernel], share: KernelBudget, report: ProgressCallback
) -> tuple[tuple[KernelTime, ...], list[str]]:
    """Return the kernels that every rank could time, and the names of the others."""
    own: list[float] = []
    for index, kernel in enumerate(kernels):
        report(f"kernels: {kernel.kind}", index / len(kernels))
        timing = time_kernel(kernel, session.device, share.budget_s / len(kernels), share.least_s)
        own += (timing.seconds, timing.spread_s, timing.repeats) if timing else (0.0, 0.0, 0.0)
    rows = session.gathered_numbers(own)
    times = [
        _kernel_time(kernel, [row[3 * i : 3 * i + 3] for row in rows]) for i, kernel in enumerate(kernels)
    ]
    done = tuple(time for time in times if min(time.seconds) > 0)
    return done, [f"{time.name}: not available on every device" for time in times if min(time.seconds) == 0]


def _kernel_time(kernel: Kernel, rows: Sequence[Sequence[float]]) -> KernelTime:
    """Return one kernel's times from (seconds, spread, repeats) of every rank."""
    return KernelTime(
        kind=kernel.kind,
        dtype=kernel.dtype,
        kernel=kernel.kernel,
        shape=kernel.shape,
        flops=kernel.flops,
        moved_bytes=kernel.moved_bytes,
        seconds=tuple(row[0] for row in rows),
        spread_s=tuple(row[1] for row in rows),
        repeats=int(min(row[2] for row in rows)),
    )


def _shared_store(place: Place) -> dist.Store:
    """Return the store of launched ranks. Raises MeasurementError."""
    try:
        return shared_store(place, MEETING_S)
    except RunError as error:
        raise MeasurementError(str(error)) from error


def _check(budget_s: float, processes: int | None, place: Place | None) -> None:
    problems = []
    if not 0 < budget_s <= LONGEST_S:
        rule = f"must be more than 0 and at most {LONGEST_S:.0f} seconds"
        problems.append(Problem("budget_s", budget_s, rule, f"{DEFAULT_S:.0f} is the usual"))
    if processes is not None and place is not None:
        rule = f"{place.launcher} has started {place.ranks} processes already"
        problems.append(Problem("processes", processes, rule, "leave it out"))
    elif processes is not None and processes < 1:
        problems.append(Problem("processes", processes, "must be at least 1", "leave it out"))
    if processes and (devices := torch.cuda.device_count()) and processes > devices:
        rule = f"this host has {devices} devices"
        problems.append(Problem("processes", processes, rule, f"at most {devices}"))
    if problems:
        raise InputError(problems)


def _silent(what: str, part: float) -> None:
    """Report nothing."""
