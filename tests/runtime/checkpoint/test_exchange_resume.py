"""Runs of islands that are saved and go on in new processes are those that were never interrupted, to the bit."""

import re
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from island_plans import CUTS, TWO, gradients, parameters
from raw_states import whole_states
from safetensors import safe_open

from meshwright.model.named_tensors import named_parameters
from meshwright.plans.synchronisation.periods import LearningRates
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.program.synchronisation.islands import islands
from meshwright.runtime.batch.label_counts import labels_by_replica
from meshwright.runtime.checkpoint import export_weights, restore_checkpoint, save_checkpoint
from meshwright.runtime.checkpoint.exchange_states import ANCHOR
from meshwright.runtime.checkpoint.manifest import read_manifest
from meshwright.runtime.checkpoint.shard_files import PARAMETER, stretches
from meshwright.runtime.checkpoint.whole_parameters import whole_parameters
from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.state.anchor_parameters import anchored_model
from meshwright.runtime.verify.verify_case import micro_batches
from meshwright.runtime.weights.load import load

STEPS = 8
NESTEROV = {"nesterov": {"lr": 0.4}}
STREAMING = parameters(
    every=4, fragments=2, delay=3, merge=0.5, compress={"quantise": "e3m0"}, outer=NESTEROV
)
MOMENTS = {"state": "optimizer", "over": "dp_replicate", "every": 3, "delay": 1}
FED_BACK = {"low_rank": 2, "error_feedback": True}
PLANS = {
    "streaming": ("bf16", "zero1", (STREAMING,)),
    "streaming over tp": ("fp32", "tp", (STREAMING,)),
    "eager": ("bf16", "pp", (parameters(every=3, delay=3, own="fresh", outer=NESTEROV),)),
    "co2": (
        "fp64",
        "zero3",
        (parameters(every=3, delay=3, outer={"momentum": {"lr": 1.0, "momentum": 0.5, "staleness": True}}),),
    ),
    "factors and residuals": ("fp32", "tp", (parameters(every=2, delay=1, compress=FED_BACK),)),
    "momentum of cosines": (
        "bf16",
        "zero3",
        (parameters(every=2, delay=1, compress={"dct": {"chunk": 16, "keep": 4}}, outer=NESTEROV),),
    ),
    "two loose axes": (
        "bf16",
        TWO,
        (
            parameters(every=2, delay=1, compress={"quantise": "int8", "rounding": "stochastic"}),
            parameters(over="dp_shard", every=4, keep="host", outer={"adam": {"lr": 0.01}}),
        ),
    ),
    "moments of experts": ("bf16", "ep", (parameters(every=3), MOMENTS)),
    "a rule": ("fp32", "replicas", (parameters(every={"qsr": {"base": 2, "alpha": 0.0175}}, delay=1),)),
    "factors of gradients": ("fp32", "tp", (gradients(FED_BACK),)),
    "momentum of gradients": ("bf16", "zero1", (gradients({"select": {"keep": 0.25}}),)),
    "residuals of shards": (
        "fp32",
        "zero3",
        ({**gradients({"top_k": 0.1}, error_feedback=True), "over": "dp_shard"},),
    ),
}
RATES = LearningRates(lambda step: 0.01 / step, STEPS)


def trial_of(name):
    """The case of a plan, and the precision of its run."""
    precision, cut, entries = PLANS[name]
    read = tuple(map(Synchronisation.model_validate, entries))
    return precision, replace(CUTS[cut], synchronise=read, steps=STEPS).trial()


def on_ranks(trial, precision, work):
    """What ``work(rank, take)`` returns on each rank; ``take(numbers)`` takes steps."""
    job = Job(
        trial.program, trial.model, precision, trial.options, 60.0, accelerated=False, seed=5, rates=RATES
    )
    batches = trial.batches()

    def take(rank, numbers):
        found = []
        rank.interpreter.states.after_norm = lambda result: found.append(
            (result.loss.hex(), result.norm.hex())
        )
        for number in numbers:
            batch = batches[number]
            labels = labels_by_replica(trial.program, batch.labels)
            rank.interpreter.step(
                micro_batches(trial, batch, rank.place.rank), RATES.rate(number + 1) * 100, labels
            )
        return found

    def whole_work(place, store, tell):
        with rank_of(job, place, store, trial.tensors()) as rank:
            everyone = [None] * place.ranks
            dist.all_gather_object(everyone, work(rank, lambda numbers: take(rank, numbers)))
            return everyone

    return run_locally(whole_work, trial.program.parts.ranks, 100, lambda what, part: None)


def held(rank):
    """Every bit that a rank keeps between steps."""
    rank.interpreter.states.synchroniser.settle()
    values = {
        s.name: s.values.cpu().contiguous().view(torch.uint8).numpy().tobytes() for s in stretches(rank)
    }
    return rank.interpreter.states.optimizer.step, values


def saved_at(trial, precision, folder, done):
    """A whole run that saves a checkpoint behind ``done`` steps: its folder, and results of each rank."""

    def work(rank, take):
        first = take(range(done))
        path = save_checkpoint(folder, rank, {})
        return path, first, take(range(done, STEPS)), held(rank)

    return on_ranks(trial, precision, work)


def resumed(trial, precision, path, done):
    """The rest of the run, by new processes."""

    def work(rank, take):
        restore_checkpoint(path, rank)
        return take(range(done, STEPS)), held(rank)

    return on_ranks(trial, precision, work)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("done", [3, 5])
@pytest.mark.parametrize("name", PLANS)
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, name, done):
    precision, trial = trial_of(name)
    uninterrupted = on_ranks(trial, precision, lambda rank, take: (take(range(STEPS)), held(rank)))
    saved = saved_at(trial, precision, tmp_path, done)
    again = resumed(trial, precision, saved[0][0], done)
    for (results, state), (_, first, rest, kept), (own_rest, own_state) in zip(
        uninterrupted, saved, again, strict=True
    ):
        assert results == first + rest == first + own_rest
        assert state == kept == own_state


def names_of(path):
    """The names of stretches in each rank's file."""
    found = []
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, framework="pt") as handle:
            found.append(list(handle.keys()))
    return found


def test_islands_save_what_differs_and_the_first_what_all_have_alike(tmp_path):
    precision, trial = trial_of("streaming")
    path = saved_at(trial, precision, tmp_path, 5)[0][0]
    first, second = islands(trial.program.parts[0].grid, trial.program.loose)
    names = names_of(path)
    for rank in (*first, *second):
        alike = [name for name in names[rank] if re.match(r"anchor/|.*\.(outer_first|mean\.0)/", name)]
        assert {name.partition("/")[0].rpartition(".")[2] for name in alike} == (
            {"anchor", "outer_first", "0"} if rank in first else set()
        )
        assert any(name.startswith("parameter/") for name in names[rank])
    assert "synchronise.0.1/labels/whole/0-4" in names[0]


@pytest.mark.parametrize("name", ["streaming over tp", "co2", TWO])
def test_whole_parameters_and_exports_are_those_of_the_anchor(tmp_path, name):
    _, trial = trial_of(name)

    def work(rank, take):
        take(range(5))
        before = held(rank)
        path = save_checkpoint(tmp_path, rank, {})
        export_weights(tmp_path / "weights", rank, trial.model)
        with anchored_model(rank.interpreter.states):
            anchored = {s.name: s.values.clone() for s in stretches(rank) if s.state == PARAMETER}
        assert held(rank) == before
        anchors = {s.name: s.values for s in stretches(rank) if s.state == ANCHOR}
        same = all(
            torch.equal(of, anchors[key.replace(PARAMETER, ANCHOR, 1)]) for key, of in anchored.items()
        )
        return path, same and len(anchors) == len(anchored)

    found = on_ranks(trial, "fp64", work)
    assert all(same for _, same in found)
    path = found[0][0]
    whole = whole_parameters(path)
    exported = load(tmp_path / "weights", trial.model, dict.fromkeys(whole, ()))
    assert whole.keys() == named_parameters(trial.model).keys()
    assert all(torch.equal(whole[key], exported[key].double()) for key in whole)


def test_another_plan_begins_at_the_anchor(tmp_path):
    precision, path = "fp32", saved_at(alike("zero1", STREAMING), "fp32", tmp_path / "first", 5)[0][0]
    manifest = read_manifest(path)
    before = whole_states(path, manifest, (PARAMETER, ANCHOR, *MOMENTS_OF_ADAM, *OUTER))
    anchors = {name: whole for (state, name), whole in before.items() if state == ANCHOR}
    assert anchors.keys() == whole_parameters(path).keys()
    for name, (cut, entries, same) in OTHERS.items():
        end = goes_on_at_once(alike(cut, *entries), precision, path, tmp_path / name)
        after = whole_states(end, read_manifest(end), (PARAMETER, ANCHOR, *MOMENTS_OF_ADAM, *OUTER))
        for tensor, whole in anchors.items():
            assert torch.equal(after[PARAMETER, tensor], whole)
            assert torch.equal(after.get((ANCHOR, tensor), whole), whole)
            assert all(torch.equal(after[of, tensor], before[of, tensor]) for of in MOMENTS_OF_ADAM)
            assert all(torch.equal(after[of, tensor], before[of, tensor]) for of in OUTER if same)
            assert all(not after[of, tensor].any() for of in OUTER if entries and not same)


OUTER = ("synchronise.0.parameter.outer_first",)
MOMENTS_OF_ADAM = ("first_moment", "second_moment")
OTHERS = {
    "without entries": ("replicas", (), False),
    "other entries": ("zero1", ({**STREAMING, "every": 8},), False),
    "another cut": ("tp", (STREAMING,), True),
    "a pipeline": ("pp", (STREAMING,), True),
}
"""Plans to go on under: how they are cut, their entries, and whether those are the same."""


def alike(cut, *entries):
    """A case of the same model and batch in any cut."""
    read, of = tuple(map(Synchronisation.model_validate, entries)), CUTS[cut]
    return replace(of, synchronise=read, steps=STEPS, layers=4, micro_batches=4 // of.dp_shard).trial()


def goes_on_at_once(trial, precision, path, folder):
    """A checkpoint of what a plan reads from one of another plan."""

    def work(rank, take):
        restore_checkpoint(path, rank)
        return save_checkpoint(folder, rank, {})

    return on_ranks(trial, precision, work)[0]


def test_islands_go_on_from_a_plan_without_entries(tmp_path):
    precision, trial = "fp32", alike("zero1", STREAMING)
    path = saved_at(alike("replicas"), precision, tmp_path / "first", 3)[0][0]

    def work(rank, take):
        restore_checkpoint(path, rank)
        return save_checkpoint(tmp_path / "at once", rank, {}), take(range(3, STEPS))

    end = on_ranks(trial, precision, work)[0][0]
    wanted = whole_parameters(path)
    assert same(whole_parameters(end), wanted)
    parameters = whole_states(end, read_manifest(end), (PARAMETER,))
    assert same({name: whole for (_, name), whole in parameters.items()}, wanted)


def same(found, expected):
    """True if whole tensors are equal, to the bit."""
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)
