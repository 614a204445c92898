"""Emulate composed plans and hold their makespans against the simulated ones.

    python benchmarks/emulation.py               runs what has no row yet and prints the page
    python benchmarks/emulation.py --write       also writes benchmarks/emulation.md
    python benchmarks/emulation.py --again ...   forgets the rows first

Each row is kept in benchmarks/emulation.json as soon as it is known, so that the command can be stopped and taken up
again. The last rows put faults into the interpreter: they must come out late, or not at all. Exits with 1 where a plan
does not take the simulated time, or a blocking send does not show.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from emulated_rounds import ROUNDS, round_line, round_row
from emulation_cases import BLOCKED, CASES, EVERY, FAULTY, LAYOUTS, LEFT, RANGED, Case, resolved

from meshwright import __version__
from meshwright.cost.operators.price_plans import program_prices
from meshwright.errors import RunError
from meshwright.program.program import Program
from meshwright.runtime.comm.pipeline_messages import PipelineMessages
from meshwright.runtime.emulation.emulate import emulate
from meshwright.runtime.emulation.emulation_result import Emulation
from meshwright.runtime.emulation.local_program import local_program
from meshwright.runtime.emulation.time_scale import shortest_pass
from meshwright.runtime.executor.interpreter import Interpreter
from meshwright.runtime.state.parameter_lifecycle import StepStates
from meshwright.simulate.memory_ledger import peak_activation_bytes
from meshwright.simulate.plan_estimate import lower_and_simulate
from meshwright.verbs.run.modelled_times import modelled_times

HERE = Path(__file__).parent
ROWS = HERE / "emulation.json"
WITHIN = 0.03
EXPOSED, SENDING_AHEAD = 0.10, ("gpipe", "zb-h1", "v-half")
"""A blocking send makes a step of these schedules later by at least so much."""
Prepare = Callable[[Interpreter], None]


class BlockingChannels(PipelineMessages):
    """Waits after each send until the message has been taken."""

    def send(self, action, tensor):  # type: ignore[no-untyped-def]
        """Send, and wait."""
        super().send(action, tensor)
        self.sent[-1][0].wait()


def blocking(interpreter: Interpreter) -> None:
    """The fault that a clock of stamps alone would hide."""
    plan = interpreter.plan
    interpreter.channels = BlockingChannels(
        plan.program, plan.communicator, plan.pipeline_rank, plan.message_buffer
    )


def _nothing_after_pass(states: StepStates) -> None:
    """No second operation of a reduction begins before the norm needs it."""


def left_to_their_end(interpreter: Interpreter) -> None:
    """Reductions of several operations of which only the first one runs beside passes."""
    type(interpreter.states).after_pass = _nothing_after_pass  # type: ignore[method-assign]


FAULTS: dict[str, Prepare] = {BLOCKED: blocking, LEFT: left_to_their_end}


def row(case: Case) -> dict[str, Any]:
    """A case, emulated."""
    if case.synchronise:
        return round_row(case, described)
    plan = resolved(case)
    program, simulation = lower_and_simulate(plan.long, plan.setting)
    local = local_program(program, case.processes)
    times = modelled_times(program, program_prices(program, plan.setting))
    expected_s = simulation.step_s
    if case.message is not None:
        times = replace(times, message_s=case.message * shortest_pass(local, times), send_occupancy=0.0)
        expected_s = without_fault(case)
    try:
        found = emulate(
            local, times, simulation.step_s, prepare=FAULTS.get(case.fault, lambda interpreter: None)
        )
    except RunError as error:
        return {"simulated_s": expected_s, "stuck": str(error).split(": [")[0]}
    return {
        "simulated_s": expected_s or found.step_s,
        "emulated_s": found.step_s,
        **described(program, found),
    }


def described(program: Program, found: Emulation) -> dict[str, Any]:
    """How a case was emulated."""
    return {
        "processes": len(found.ranks),
        "ranks": program.parts.ranks,
        "scale": found.scale,
        "late": found.late_share,
        "repeated": len(found.earlier),
        "wall_s": found.wall_s,
        "real_time": found.real_time,
        "load_average": found.load_average,
        "peaks_equal": all(
            rank.peak_bytes == peak_activation_bytes(program, rank.pipeline_rank) for rank in found.ranks
        ),
    }


def without_fault(case: Case) -> float:
    """The emulated time of the case without its fault, which is run first; 0 for that case itself."""
    return float(known().get(key(replace(case, fault="")), {}).get("emulated_s", 0.0)) if case.fault else 0.0


def key(case: Case) -> str:
    """What a row is kept under."""
    return f"{case.name}; {case.processes} processes; batch {case.batch}; {case.fault}"


def known() -> dict[str, Any]:
    """Rows of earlier runs."""
    return json.loads(ROWS.read_text(encoding="utf-8")) if ROWS.exists() else {}


def keep(found: dict[str, Any]) -> None:
    """Write all rows."""
    ROWS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def rows(cases: tuple[Case, ...]) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Every case with its row; those that are not known yet are run and kept."""
    for case in cases:
        found = known()
        if key(case) not in found:
            found[key(case)] = row(case)
            keep(found)
            print(key(case), found[key(case)], flush=True)
        yield case, found[key(case)]


def difference(found: dict[str, Any]) -> float | None:
    """Emulated over expected, minus 1; None where it never ended."""
    return None if "stuck" in found else found["emulated_s"] / found["simulated_s"] - 1


def breaches(found: Mapping[str, dict[str, Any]]) -> list[str]:
    """Return the cases that are not as the page claims, of rows by key.

    A plan takes the simulated time within ``WITHIN``, is never faster, and has the ledger's peaks. A round may be
    faster, and its closed form is as near.
    """
    wrong = [case for case in (*CASES, *RANGED, *EVERY) if not _is_as_simulated(found[key(case)])]
    wrong += [case for case in ROUNDS if not _is_round_as_simulated(found[key(case)])]
    blocked = [case for case in FAULTY if case.fault == BLOCKED and case.schedule in SENDING_AHEAD]
    return [key(case) for case in (*wrong, *(one for one in blocked if not _is_exposed(found[key(one)])))]


def _is_as_simulated(found: dict[str, Any]) -> bool:
    late = difference(found)
    return late is not None and 0 <= late + 1e-9 <= WITHIN and found["peaks_equal"]


def _is_round_as_simulated(found: dict[str, Any]) -> bool:
    both = (found[name] / found["simulated_s"] - 1 for name in ("closed_form_s", "emulated_s"))
    return all(abs(one) <= WITHIN for one in both) and found["peaks_equal"]


def _is_exposed(found: dict[str, Any]) -> bool:
    late = difference(found)
    return late is not None and late >= EXPOSED


def plan_line(case: Case, found: dict[str, Any]) -> str:
    """A row of the first table."""
    repeated = " (repeated)" if found["repeated"] else ""
    return (
        f"| {case.name} | {found['processes']} for {found['ranks']} | {found['simulated_s']:.3f} | "
        f"{found['emulated_s']:.3f} | {difference(found):+.2%} | {found['late']:.1%}{repeated} | "
        f"{found['scale']:.2g} | {found['load_average']:.1f} | {'yes' if found['peaks_equal'] else '**no**'} |"
    )


def layout_line(name: str, layout: tuple[dict[str, int], str, str | None]) -> str:
    """A row of the table of layouts."""
    degrees, sharding, gather = layout
    words = " ".join(f"{axis} {degree}" for axis, degree in degrees.items())
    return f"| {name} | {words} | {sharding}{f', gathered {gather}' if gather else ''} |"


def fault_line(case: Case, found: dict[str, Any]) -> str:
    """A row of the second table."""
    late = difference(found)
    said = f"never ends: {found['stuck']}" if late is None else f"{late:+.1%}"
    return f"| {case.name} | {case.fault} | {said} |"


def page() -> str:
    """All tables with their explanation."""
    plans, ranged, every, rounds, faults = (
        list(rows(cases)) for cases in (CASES, RANGED, EVERY, ROUNDS, FAULTY)
    )
    differences = [abs(difference(found) or 0.0) for _, found in (*plans, *ranged, *every, *rounds)]
    real_time = all(found["real_time"] for _, found in (*plans, *ranged, *every, *rounds))
    return PAGE.format(
        version=__version__,
        today=date.today().isoformat(),
        count=len(differences),
        cores=os.cpu_count(),
        bound=f"{WITHIN:.0%}",
        within=sum(d <= WITHIN for d in differences),
        largest=max(differences),
        median=sorted(differences)[len(differences) // 2],
        scheduling="ran under SCHED_RR" if real_time else "ran as other processes do, some of them",
        plans="\n".join(plan_line(*one) for one in plans),
        layouts="\n".join(layout_line(*one) for one in LAYOUTS.items()),
        ranged="\n".join(plan_line(*one) for one in ranged),
        every="\n".join(plan_line(*one) for one in every),
        rounds="\n".join(round_line(*one) for one in rounds),
        faults="\n".join(fault_line(*one) for one in faults if one[0].fault),
    )


PAGE = """# Emulated against simulated

Steps of {count} plans by the interpreter that trains, on local processes with real messages and collectives, compute
slept at the modelled times; beside them the simulator's makespan of the same Program. Version {version}, {today}. Made
by `python benchmarks/emulation.py --write`; [emulation](../docs/emulation.md) says how, and what it proves. All ranks
{scheduling}; the load average is that of the machine, {cores} cores, right before each run. Nothing
here was measured on the devices that the plans name.

Within {bound}: {within} of {count}. Largest difference {largest:.2%}, median {median:.2%}.

*Processes* are local ones for the plan's ranks. *Late* is the share of starts that the wall had overtaken; above 5 % a
run is repeated once at double scale (seconds of the wall per modelled second). *Peak* says whether the largest sum of
activations in flight is the ledger's, to the byte, on every rank.

| plan | processes | simulated s | emulated s | difference | late | scale | load | peak |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{plans}

## Several layouts

Layers of one plan have different layouts, which change inside a stage and from stage to stage; one process stands for
each pipeline rank. `full`: the layers run again. The layouts of a pipeline rank's eight devices:

| layout | degrees | sharding |
| --- | --- | --- |
{layouts}

| plan | processes | simulated s | emulated s | difference | late | scale | load | peak |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{ranged}

## Every schedule

Four ranks and 12 micro-batches; the stages have unlike layers, so that no two take the same time, and a message takes a
good part of the shortest pass. *Lists solved* are the [solver](../docs/solver.md)'s, for the plan's own times and no
more memory than 1F1B's.

| plan | processes | simulated s | emulated s | difference | late | scale | load | peak |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{every}

## Exchanges between steps

A round of steps in which all periods end together; seconds are those of the mean step. *Steps*: 20 + 20 are 20 steps
after which exchanges with a delay arrive, and a round of 20 that counts. *Closed form* prices the step of one island
and adds what each exchange would add alone; differences are from the simulated mean. Two processes stand for the
islands of each pipeline rank; they meet in exchanges only. A simulated round waits for the slowest pipeline rank; where
passes of a pipeline hide a part of that, an emulated one is faster.

| plan | processes | steps | closed form s | simulated s | emulated s | closed form | emulated | late | peak |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rounds}

## Faults

The same interpreter with something wrong in it. Messages of the first rows take 0.8 of the shortest pass, and the
sender goes on meanwhile; the difference is from the emulated time of the interpreter as it is.

| plan | fault | difference |
| --- | --- | --- |
{faults}

A blocking send is nearly hidden by 1F1B, which waits for an answer to nearly every message anyway, and exposed by
schedules that send ahead; where two ranks send to each other at once, both wait for ever.
"""


def main(arguments: list[str]) -> int:
    """Print the page, write it where asked, and return the exit code."""
    if "--again" in arguments:
        ROWS.unlink(missing_ok=True)
    text = page()
    print(text)
    if "--write" in arguments:
        kept = {key(case) for case in (*CASES, *RANGED, *EVERY, *ROUNDS, *FAULTY)}
        keep({name: found for name, found in known().items() if name in kept})
        (HERE / "emulation.md").write_text(text, encoding="utf-8")
    wrong = breaches(known())
    print("\n".join(f"not as claimed: {name}" for name in wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
