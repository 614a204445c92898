"""Emulate composed plans and hold their makespans against the simulated ones.

    python benchmarks/emulation.py               runs what has no row yet and prints the page
    python benchmarks/emulation.py --write       also writes benchmarks/emulation.md
    python benchmarks/emulation.py --again ...   forgets the rows first

Each row is kept in benchmarks/emulation.json as soon as it is known, so that the command can be stopped and taken up
again. The last rows put faults into the interpreter: they must come out late, or not at all.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from meshwright import __version__
from meshwright.cost.pricing import program_prices
from meshwright.errors import RunError
from meshwright.plan.expand import expand
from meshwright.plan.long import Stages
from meshwright.plan.resolve import Resolved, load_nouns, resolve_with
from meshwright.plan.short import ShortPlan
from meshwright.runtime.channels import Channels
from meshwright.runtime.emulation.classes import local_program
from meshwright.runtime.emulation.emulate import emulate
from meshwright.runtime.emulation.scale import shortest_pass
from meshwright.runtime.interpreter import Interpreter
from meshwright.runtime.step_states import StepStates
from meshwright.simulate.ledger import peak_activation_bytes
from meshwright.simulate.predict import played
from meshwright.verbs.modelled_times import modelled_times

HERE = Path(__file__).parent
ROWS = HERE / "emulation.json"
WITHIN = 0.03
Prepare = Callable[[Interpreter], None]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plan, on how many processes it is emulated, and for a fault what is done to the interpreter.

    ``message`` replaces the seconds of a message by so many shortest passes, during which the sender goes on.
    """

    layout: dict[str, int]
    schedule: str = "1f1b"
    chunks: int = 1
    vocabulary: str | None = None
    sharding: str = "none"
    gather: str | None = None
    recompute: str = "full"
    model: str = "llama-3.1-8b"
    stack: str = "meshwright"
    batch: int = 64
    stages: Stages = "balanced"
    processes: int = 4
    message: float | None = None
    fault: str = ""

    @property
    def name(self) -> str:
        """The row's key and first words."""
        degrees = " ".join(f"{axis} {degree}" for axis, degree in self.layout.items())
        chunks = f" ×{self.chunks}" if self.chunks > 1 else ""
        parts = [
            degrees,
            self.schedule + (f"+{self.vocabulary}" if self.vocabulary else "") + chunks,
            self.sharding,
            self.gather or "",
            f"recompute {self.recompute}",
        ]
        parts += ["" if self.stages == "balanced" else "unequal stages", self.model, self.stack]
        parts += [f"message {self.message} of a pass"] if self.message else []
        return ", ".join(part for part in parts if part and part != "none")


UNEQUAL: Stages = (("embed", "0..5"), ("6..15",), ("16..25",), ("26..31", "head"))
APART = "generic"
"""A stack that runs nothing beside compute."""
CASES = (
    Case(layout={"pp": 4}),
    Case(layout={"pp": 4, "dp_shard": 16, "tp": 8}, sharding="zero1", batch=256, model="llama-3.1-70b"),
    Case(layout={"pp": 4, "dp_shard": 4, "tp": 2}, sharding="zero1", processes=8),
    Case(layout={"pp": 4, "dp_shard": 4}, schedule="gpipe", sharding="zero2", processes=8),
    Case(layout={"pp": 4, "dp_shard": 4}, sharding="zero3", gather="per-step"),
    Case(layout={"pp": 4, "dp_shard": 4}, sharding="zero3", gather="per-layer", processes=8),
    Case(layout={"pp": 4, "dp_shard": 4}, sharding="zero3", gather="per-micro-batch", processes=8),
    Case(layout={"pp": 4, "dp_shard": 4}, stages=UNEQUAL, sharding="zero1"),
    Case(layout={"pp": 4, "tp": 4}, stages=UNEQUAL, recompute="none", processes=8),
    Case(layout={"pp": 4, "dp_shard": 8}, schedule="interleaved-1f1b", chunks=2, sharding="zero1"),
    Case(layout={"pp": 4, "dp_shard": 8, "tp": 2}, schedule="interleaved-1f1b", chunks=2, sharding="zero1",
         processes=8, batch=128),
    Case(layout={"pp": 4, "dp_replicate": 2, "dp_shard": 4, "tp": 2}, schedule="interleaved-1f1b", chunks=2,
         sharding="zero3", gather="per-step", processes=8, batch=128),
    Case(layout={"pp": 2, "dp_shard": 4, "tp": 2}, schedule="interleaved-1f1b", chunks=4, sharding="zero1",
         processes=8),
    Case(layout={"pp": 4, "dp_replicate": 4, "tp": 2}, model="llama-3.2-1b", processes=8),
    Case(layout={"pp": 8, "dp_shard": 2}, sharding="zero1", processes=8, model="llama-3.2-1b"),
    Case(layout={"pp": 4, "dp_shard": 2, "tp": 2}, schedule="zb-h1", sharding="zero1"),
    Case(layout={"pp": 4, "dp_shard": 2, "tp": 2}, schedule="zb-h1", sharding="zero1", stack=APART, processes=8),
    Case(layout={"pp": 4, "dp_shard": 4}, schedule="zb-h1", sharding="zero3", gather="per-layer"),
    Case(layout={"pp": 4, "dp_shard": 4}, schedule="zb-h2", sharding="zero1", processes=8),
    Case(layout={"pp": 4, "tp": 4}, schedule="zb-h2", recompute="none"),
    Case(layout={"pp": 4, "dp_shard": 4}, schedule="v-half", chunks=2, sharding="zero1"),
    Case(layout={"pp": 4, "tp": 2}, schedule="v-half", chunks=2, processes=8, batch=32),
    Case(layout={"pp": 4, "dp_shard": 4}, schedule="v-min", chunks=2, sharding="zero3", gather="per-step"),
    Case(layout={"pp": 4, "tp": 2, "dp_shard": 2}, schedule="v-min", chunks=2, sharding="zero1", stack=APART,
         processes=8),
    Case(layout={"pp": 4}, vocabulary="vocab-1", batch=32),
    Case(layout={"pp": 4, "tp": 2}, vocabulary="vocab-2", processes=8, batch=32, stack=APART),
    Case(layout={"pp": 4, "dp_shard": 4}, schedule="v-half", chunks=2, vocabulary="vocab-1", sharding="zero1"),
    Case(layout={"pp": 4}, vocabulary="interlaced", recompute="none", batch=32),
)  # fmt: skip


class BlockingChannels(Channels):
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


FAULTS: dict[str, Prepare] = {
    "each send blocks until its message is taken": blocking,
    "reductions go on only when the norm needs them": left_to_their_end,
}
BLOCKED, LEFT = FAULTS
FAULTY = (
    *(
        Case(layout={"pp": 4}, schedule=name, chunks=chunks, batch=8, recompute="none",
             message=0.8, fault=fault)
        for name, chunks in (
            ("gpipe", 1), ("zb-h1", 1), ("zb-h2", 1), ("v-half", 2), ("interleaved-1f1b", 2), ("1f1b", 1),
        )
        for fault in ("", BLOCKED)
    ),
    Case(layout={"pp": 4, "dp_shard": 16, "tp": 8}, schedule="interleaved-1f1b", chunks=2, sharding="zero1",
         batch=256, model="llama-3.1-70b"),
    Case(layout={"pp": 4, "dp_shard": 16, "tp": 8}, schedule="interleaved-1f1b", chunks=2, sharding="zero1",
         batch=256, model="llama-3.1-70b", fault=LEFT),
)  # fmt: skip


def resolved(case: Case) -> Resolved:
    """The plan of a case."""
    devices = 1
    for degree in case.layout.values():
        devices *= degree
    short = ShortPlan.model_validate(
        {
            "plan": 1,
            "model": case.model,
            "cluster": f"h100-sxm-80gb x {devices}",
            "stack": case.stack,
            "workload": {"seq_len": 4096, "global_batch": case.batch},
            "layout": case.layout,
            "sharding": case.sharding,
            "pipeline": {
                "schedule": {"name": case.schedule, "vocabulary": case.vocabulary},
                "virtual_stages": case.chunks,
            },
            "recompute": case.recompute,
        }
        | ({"gather": case.gather} if case.gather else {})
    )
    nouns = load_nouns(short)
    assert nouns.model is not None
    assert nouns.cluster is not None
    assert nouns.stack is not None
    long = expand(short, nouns.model.architecture)
    pipeline = long.pipeline.model_copy(update={"stages": case.stages})
    return resolve_with(
        long.model_copy(update={"pipeline": pipeline}), nouns.model, nouns.cluster, nouns.stack
    )


def row(case: Case) -> dict[str, Any]:
    """A case, emulated."""
    plan = resolved(case)
    program, simulation = played(plan.long, plan.setting)
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
        "processes": local.grid.ranks,
        "ranks": program.grid.ranks,
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


def plan_line(case: Case, found: dict[str, Any]) -> str:
    """A row of the first table."""
    repeated = " (repeated)" if found["repeated"] else ""
    return (
        f"| {case.name} | {found['processes']} for {found['ranks']} | {found['simulated_s']:.3f} | "
        f"{found['emulated_s']:.3f} | {difference(found):+.2%} | {found['late']:.1%}{repeated} | "
        f"{found['scale']:.2g} | {found['load_average']:.1f} | {'yes' if found['peaks_equal'] else '**no**'} |"
    )


def fault_line(case: Case, found: dict[str, Any]) -> str:
    """A row of the second table."""
    late = difference(found)
    said = f"never ends: {found['stuck']}" if late is None else f"{late:+.1%}"
    return f"| {case.name} | {case.fault} | {said} |"


def page() -> str:
    """Both tables with their explanation."""
    plans, faults = list(rows(CASES)), list(rows(FAULTY))
    differences = [abs(difference(found) or 0.0) for _, found in plans]
    real_time = all(found["real_time"] for _, found in plans)
    return PAGE.format(
        version=__version__,
        today=date.today().isoformat(),
        count=len(plans),
        cores=os.cpu_count(),
        bound=f"{WITHIN:.0%}",
        within=sum(d <= WITHIN for d in differences),
        largest=max(differences),
        median=sorted(differences)[len(differences) // 2],
        scheduling="ran under SCHED_RR" if real_time else "ran as other processes do, some of them",
        plans="\n".join(plan_line(*one) for one in plans),
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

## Faults

The same interpreter with something wrong in it. Messages of the first rows take 0.8 of the shortest pass, and the
sender goes on meanwhile; the difference is from the emulated time of the interpreter as it is.

| plan | fault | difference |
| --- | --- | --- |
{faults}

A blocking send is nearly hidden by 1F1B, which waits for an answer to nearly every message anyway, and exposed by
schedules that send ahead; where two ranks send to each other at once, both wait for ever.
"""


def main(arguments: list[str]) -> None:
    """Print the page, and write it where asked."""
    if "--again" in arguments:
        ROWS.unlink(missing_ok=True)
    text = page()
    print(text)
    if "--write" in arguments:
        kept = {key(case) for case in (*CASES, *FAULTY)}
        keep({name: found for name, found in known().items() if name in kept})
        (HERE / "emulation.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
