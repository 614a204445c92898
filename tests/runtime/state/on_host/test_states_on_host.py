"""States on the host have the bits of states on the device, and the bytes that the ledger counts."""

import io
from dataclasses import replace

import pytest
import torch
from covering_plans import Proven

from meshwright.program.model_states.state_elements import bytes_per_element
from meshwright.program.model_states.states_on_host import host_bytes
from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.state.shard_pieces import pieces_of, whole_tensors
from meshwright.runtime.verify.expected_copies import expected_copies
from meshwright.runtime.verify.expected_traffic import STEP
from meshwright.runtime.verify.run_case import gathered
from meshwright.runtime.verify.verify_case import micro_batches

ZERO3 = {"sharding": "zero3", "gather": "per-layer"}
SHAPES = {
    "one rank": Proven("llama", micro_batches=3),
    "tied table and tp": Proven(
        "qwen3", pp=2, tp=2, sequence_parallel=True, schedule="zb-h1", micro_batches=4
    ),
    "zero1": Proven("llama", dp_shard=2, sharding="zero1"),
    "zero2": Proven("llama", dp_shard=2, tp=2, sharding="zero2"),
    "zero3": Proven("qwen3", dp_shard=2, dp_replicate=2, **ZERO3),
    "zero3 in a pipeline": Proven("llama", pp=2, dp_shard=2, schedule="zb-h1", micro_batches=4, **ZERO3),
    "experts": Proven("mixtral", dp_shard=2, ep=2, **ZERO3),
    "in a V": Proven("qwen3", pp=2, schedule="zb-v", micro_batches=4, layers=4),
}
SHARES = [(1.0, 0.0), (0.5, 0.0), (1.0, 1.0), (0.3, 0.7)]


def pairs(shares):
    return tuple(zip(("optimizer", "parameters"), shares, strict=True))


def trained(plan):
    """Losses, norms and parameters after two steps in bf16, and of each rank what it holds and copies."""
    trial = plan.trial()

    def work(place, store, tell):
        job = Job(trial.program, trial.model, accelerated=False)
        with rank_of(job, place, store, trial.tensors()) as rank:
            results = []
            for batch in trial.batches()[:2]:
                copied = len(rank.plan.host.log)
                rank.interpreter.states.after_norm = results.append
                rank.interpreter.step(micro_batches(trial, batch, place.rank))
            parameters = [p for unit in rank.plan.all_units for p in pieces_of(unit, unit.owned)]
            own = results, parameters, held(rank), rank.plan.host.log[copied:]
            out = io.BytesIO()
            torch.save(gathered(own, place), out)
            return out.getvalue()

    everyone = torch.load(
        io.BytesIO(run_locally(work, plan.ranks, 120, lambda what, part: None)), weights_only=False
    )
    wholes = whole_tensors(piece for _, parameters, *_ in everyone for piece in parameters)
    return everyone[0][0], wholes, [of_rank[2:] for of_rank in everyone], trial.program


def held(rank):
    """Bytes of a rank's states on its device and its host, between steps, and the most of its leaving gradients."""
    if rank.plan.hosting is None:
        return None
    parts = rank.interpreter.states.optimizer.parts.items()
    moments = [(name, s.held_bytes) for name, of in parts for part in of for s in part.states.values()]
    units, found = rank.plan.offloaded_units, {}
    for side in (False, True):
        name = "host" if side else "device"
        masters = sum(unit.master.side(side).nbytes for unit in units)
        own = sum(size for part, size in moments if part.endswith(name))
        homes = [unit.home.values for unit in units if unit.home.values is not None]
        found[name, "optimizer"] = masters + own
        found[name, "parameters"] = sum(home.side(side).nbytes for home in homes)
        found[name, "sums"] = sum(unit.sums.side(side).nbytes for unit in units)
    return found, rank.plan.hosting.lots.most_bytes


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_share_gives_the_same_bits(shape):
    results, parameters, *_ = trained(SHAPES[shape])
    for shares in SHARES:
        if shares[1] and shape in ("zero1", "zero2"):
            continue
        found, own, *_ = trained(replace(SHAPES[shape], on_host=pairs(shares)))
        assert found == results, shares
        assert all(torch.equal(own[name], parameter) for name, parameter in parameters.items()), shares


HELD = {
    "one rank": Proven("llama"),
    "a pipeline": Proven("llama", pp=2, schedule="zb-h1", micro_batches=4, layers=4),
    "zero3": Proven("llama", dp_shard=2, **ZERO3),
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("shares", [(1.0, 0.0), (0.5, 0.0), (1.0, 1.0), (0.5, 0.25)], ids=str)
@pytest.mark.parametrize("shape", HELD)
def test_both_sides_hold_what_the_ledger_counts(shape, shares):
    *_, ranks, program = trained(replace(HELD[shape], on_host=pairs(shares)))
    for number, ((found, most), log) in enumerate(ranks):
        rank = program.parts.pipeline_rank(number)
        kinds = {"optimizer": "optimizer", "parameters": "parameter"}
        for name, kind in kinds.items():
            size = bytes_per_element(kind, program.stack)
            here = program.elements_on_host(rank, kind)
            assert found["device", name] == size * (program.held_elements(rank, kind) - here)
            assert found["host", name] == size * here
        own = {kind: program.elements_on_host(rank, kind) for kind in kinds.values()}
        on_host = sum(found["host", name] for name in ("optimizer", "parameters", "sums"))
        assert on_host == host_bytes(program.stack, own["optimizer"], own["parameter"])
        width = program.stack.gradient_communication_bytes
        largest = max(unit_elements(program, rank))
        vectors = (
            0 if program.pipeline_ranks == 1 else 4 * 2 * 240
        )  # those of I wait for the W of their block
        assert 0 < most <= 2 * width * shares[0] * largest + vectors
        assert copied(log, expected_copies(program, rank)) == expected_copies(program, rank)


def unit_elements(program, rank):
    """Elements of optimizer states of each block of a rank."""
    of_stage = {}
    for entry in program.states:
        if entry.kind == "optimizer" and entry.stage in {part.index for part in program.sections_of(rank)}:
            of_stage.setdefault((entry.stage, entry.layers), []).append(entry.elements)
    return [sum(elements) for elements in of_stage.values()]


def copied(log, like):
    """Logged bytes by action and direction."""
    found = {action: type(ways)(dict.fromkeys(ways, 0)) for action, ways in like.items()}
    for entry in log:
        found[entry.action if entry.action in found else STEP][entry.way] += entry.logical_bytes
    return found
