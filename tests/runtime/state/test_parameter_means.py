"""Means of parameters over replicas, of this step or of one before: against virtual replicas in one process."""

from dataclasses import replace

import pytest
import torch
from checkpoint_runs import FACTS, held, on_ranks
from local_plans import Small, batch, small
from tiny_models import tiny

from meshwright.cluster.load import load_cluster
from meshwright.model.named_tensors import is_matrix, named_parameters
from meshwright.program.checks.validate_program import validate
from meshwright.program.pass_items import Collective
from meshwright.runtime.batch.batch_sharding import sequence_indices
from meshwright.runtime.checkpoint import latest_checkpoint, restore_checkpoint, save_checkpoint
from meshwright.runtime.reference.decoder import reference_loss
from meshwright.runtime.state.shard_pieces import Piece, whole_tensors
from meshwright.runtime.state.step_options import StepOptions
from meshwright.runtime.weights.random_tensors import random_tensors
from meshwright.schedules.action import Action
from meshwright.simulate.memory_ledger import rank_ledger
from meshwright.workload.optimizer_choice import ADAMW

STEPS = 6
MODEL = tiny("llama", num_hidden_layers=2)
SHAPES = {
    "replicas": {"dp_replicate": 2},
    "replicas of stages": {"pp": 2, "dp_replicate": 2},
    "replicas of shards": {"dp_replicate": 2, "dp_shard": 2, "sharding": "zero1"},
}


def averaged(shape, version) -> Small:
    """A plan whose replicas step by themselves and average their parameters of ``version`` steps ago."""
    case = small(MODEL, **SHAPES[shape])
    program = case.program
    collectives = {}
    for (stage, kind), items in program.collectives.items():
        left = tuple(item for item in items if "dp_replicate" not in item.axes)
        if left:
            collectives[stage, kind] = left
    for stage in program.stages:
        rows = [row for row in program.states if row.stage == stage.index and row.kind == "optimizer"]
        size = 4 * sum(row.repeat * row.elements for row in rows)
        sharded = program.parts.only.shape.shard > 1
        of_unit = (
            4 * -(-sum(r.repeat * r.elements for r in rows_of(program, stage)) // 2) if sharded else size
        )
        item = Collective("all-reduce", ("dp_replicate",), of_unit, f"stage {stage.index}", version=version)
        collectives[stage.index, "AVERAGE"] = (item,)
    lists = tuple(tuple(with_means(actions, collectives)) for actions in program.lists)
    return replace(case, program=replace(program, collectives=collectives, lists=lists))


def rows_of(program, stage):
    return [row for row in program.states if row.stage == stage.index and row.kind == "parameter"]


def with_means(actions, collectives):
    """Yield a list with a mean of each stage behind the step, and without reductions that exchange nothing."""
    stages = sorted({action.stage for action in actions if action.kind == "F"})
    for action in actions:
        if action.kind != "REDUCE" or (action.stage, "REDUCE") in collectives:
            yield action
        if action.kind == "STEP":
            yield from (Action("AVERAGE", stage) for stage in stages)


def reference(case, version):
    """Parameters of both replicas after the steps: AdamW on each one's sequences, then the delayed mean."""
    options = StepOptions(lr=1e-2, clip=None)
    values = options.for_optimizer(ADAMW, "")
    part = case.program.parts.only
    per_replica = part.replicas // 2
    rows = []
    for replica in range(2):
        found = set()
        for rank in range(case.program.parts.ranks):
            if part.grid.coordinates(rank)["dp_replicate"] == replica:
                found |= {row for rows in sequence_indices(case.program, part, rank) for row in rows}
        rows.append(sorted(found))
    assert per_replica * 2 == part.replicas
    every = []
    for _ in range(2):
        tensors = random_tensors(case.model, 0, torch.float64)
        trained = {name: tensors[name].requires_grad_() for name in named_parameters(case.model)}
        decayed = [t for name, t in trained.items() if is_matrix(name, t.shape)]
        others = [t for name, t in trained.items() if not is_matrix(name, t.shape)]
        groups = [
            {"params": decayed, "weight_decay": values["weight_decay"]},
            {"params": others, "weight_decay": 0.0},
        ]
        adam = torch.optim.AdamW(groups, lr=options.lr, betas=values["betas"], eps=values["epsilon"])
        every.append((tensors, trained, adam))
    history = []
    for number in range(1, STEPS + 1):
        tokens, labels = batch(case.model, case.global_batch, number)
        divisor = int((labels != -100).sum())
        for (tensors, _, adam), own in zip(every, rows, strict=True):
            adam.zero_grad()
            reference_loss(case.model, tensors, tokens[own], labels[own], divisor).backward()
            for group in adam.param_groups:
                group["lr"] = options.lr / number
            adam.step()
        with torch.no_grad():
            source = None
            if version == 0:
                source = [{n: t.detach().clone() for n, t in trained.items()} for _, trained, _ in every]
            elif number > version:
                source = history[number - version - 1]
            for (_, trained, _), earlier in zip(every, source or ({}, {}), strict=True):
                for name in earlier:
                    mean = (source[0][name] + source[1][name]) / 2
                    trained[name] += mean - earlier[name]
            history.append([{n: t.detach().clone() for n, t in trained.items()} for _, trained, _ in every])
    return history[-1]


def parameters(rank):
    """This rank's pieces of parameters."""
    return [
        (t.name, t.whole_shape, t.shape, t.cuts, of.start, unit.owned[here].numpy().copy())
        for unit in rank.plan.trained_units
        for t in unit.layout.tensors
        for name, of, here in unit.spans()
        if name == t.name
    ]


def run_to_end(case, after=None, folder=None):
    """Take all steps, or those ``after`` a checkpoint; save after the third one where there is a folder."""

    def work(rank, steps):
        numbers = range(1, STEPS + 1)
        if after is not None:
            restore_checkpoint(after, rank)
            steps(range(4, STEPS + 1))
        elif folder is not None:
            steps(range(1, 4))
            save_checkpoint(folder, rank, FACTS)
            steps(range(4, STEPS + 1))
        else:
            steps(numbers)
        kept = rank.interpreter.states.means.kept
        size = sum(len(value) for values in kept.values() for value in values)
        return parameters(rank), held(rank), size

    return on_ranks(case, work, options=StepOptions(lr=1e-2, clip=None))


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("version", [0, 1, 3])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_means_of_now_and_of_before_are_those_of_virtual_replicas(shape, version):
    case = averaged(shape, version)
    assert validate(case.program, case.model) == []
    expected = reference(case, version)
    grid = case.program.parts.only.grid
    everyone = run_to_end(case)
    for replica in range(2):
        ranks = [r for r in range(case.program.parts.ranks) if grid.coordinates(r)["dp_replicate"] == replica]
        pieces = [Piece(*to, torch.from_numpy(values)) for rank in ranks for *to, values in everyone[rank][0]]
        for name, whole in whole_tensors(pieces).items():
            error = (whole - expected[replica][name]).abs().max() / expected[replica][name].abs().max()
            assert error < 1e-9, (name, replica)
    first, other = expected
    assert all(torch.allclose(first[name], other[name], rtol=1e-12) for name in first) == (version == 0)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_resumed_run_has_the_parameters_that_a_mean_waits_for(shape, version, tmp_path):
    case = averaged(shape, version)
    whole = run_to_end(case, folder=tmp_path)
    again = run_to_end(case, after=latest_checkpoint(tmp_path))
    assert [found[1] for found in whole] == [found[1] for found in again]


@pytest.mark.parametrize("version", [0, 1, 3])
def test_the_ledger_counts_what_is_kept(version):
    case = averaged("replicas of stages", version)
    cluster = load_cluster("h100-sxm-80gb x 4")
    ledgers = [rank_ledger(case.program, rank, cluster) for rank in range(2)]
    counted = [ledger.get("kept", 0) for ledger in ledgers]
    assert all(counted) == (version > 0)
    everyone = run_to_end(case)
    for number, found in enumerate(everyone):
        assert 4 * found[2] == counted[case.program.parts.pipeline_rank(number)]
