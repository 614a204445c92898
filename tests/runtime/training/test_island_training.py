"""Runs of plans with islands: what is reported, how they end, and whose weights they evaluate and export."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

pytest.importorskip("torch")

from island_plans import parameters
from plan_cases import DENSE, short_plan
from test_training_resume import signals_after
from training_runs import SEQ_LEN, SEQUENCES, small_run

from meshwright.errors import RunError
from meshwright.plans.forms.conversion import expand
from meshwright.plans.synchronisation.periods import Periods
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.runtime.training.loop import Loop
from meshwright.runtime.training.options import TrainingOptions
from meshwright.verbs.run.anchor_step import anchor_remark

DILOCO = parameters(every=3, outer={"nesterov": {"lr": 0.7}})
STREAMING = parameters(every=4, fragments=2, delay=3, merge=0.5)


def island_run(folder, *entries, **keys):
    """Two islands, of two ranks each unless ``keys`` say otherwise; each takes its sequences at once."""
    return small_run(
        folder,
        ranks=keys.pop("ranks", 4),
        layout={"dp_replicate": 2, **keys.pop("layout", {"tp": 2})},
        synchronise=list(entries),
        pipeline={"micro_batch": SEQUENCES // 2},
        **keys,
    )


def steps_of(run, output):
    return [line for line in run.metrics(output) if "loss" in line]


def test_the_first_island_reports_and_all_do_at_an_exchange(tmp_path):
    run = island_run(tmp_path, STREAMING)
    run.train("run", 9)
    lines = steps_of(run, "run")
    entry = Synchronisation.model_validate(STREAMING)
    due = {t for one in Periods(entry).exchanges(9) for t in (one.begin, one.end) if t <= 9}
    assert {line["step"] + 1 for line in lines if "loss_islands" in line} == due
    for line in lines:
        if "loss_islands" in line:
            assert len(set(line["loss_islands"])) == 2
            assert line["loss_islands"][0] == line["loss"]
        assert line["tokens"] == (line["step"] + 1) * SEQ_LEN * SEQUENCES


def test_plans_without_islands_report_one_loss(tmp_path):
    run = small_run(tmp_path, ranks=2, layout={"dp_replicate": 2})
    run.train("run", 2)
    assert not [line for line in steps_of(run, "run") if "loss_islands" in line]


def test_all_islands_stop_after_the_same_step_and_go_on(tmp_path):
    run = island_run(tmp_path, STREAMING)
    whole = run.train("whole", 24)
    sender = signals_after(run, "run", 3)
    stopped = run.train("run", 24)
    sender.join()
    assert stopped.outcome.stopped
    rest = run.train("run", 24)
    assert stopped.outcome.losses + rest.outcome.losses == whole.outcome.losses


def test_evaluations_change_nothing_and_are_of_the_exported_weights(tmp_path):
    run = island_run(tmp_path, DILOCO)
    alone = run.train("alone", 7)
    found = run.train("run", 7, evaluate_every=7, export=str(tmp_path / "weights"))
    assert found.outcome.losses == alone.outcome.losses
    (held_out,) = found.outcome.held_out
    frozen = {"lr": 1e-30, "weight_decay": 0.0}
    one = small_run(tmp_path / "one")
    again = one.train("run", 1, initial=str(tmp_path / "weights"), evaluate_every=1, **frozen)
    assert again.outcome.held_out[0].loss == pytest.approx(held_out.loss, rel=1e-9)
    assert any("is that of step 6, not of step 7" in remark for remark in found.remarks)


@pytest.mark.parametrize(
    ("entry", "steps", "words"),
    [
        (DILOCO, 6, None),
        (DILOCO, 7, "is that of step 6, not of step 7: synchronise.0 ends no later exchange"),
        (DILOCO, 2, "has the initial weights"),
        (parameters(every=3, delay=2), 7, "is that of step 3, not of step 7"),
        (STREAMING, 9, "is that of steps 4 to 6 by fragment, not of step 9"),
        (parameters(every={"qsr": {"base": 4, "alpha": 1.0}}), 9, None),
        (parameters(every={"qsr": {"base": 4, "alpha": 1e-6}}), 9, "is that of step 8, not of step 9"),
        (None, 7, None),
    ],
)
def test_a_run_whose_last_steps_no_exchange_brings_to_the_anchor_says_so(entry, steps, words):
    entries = () if entry is None else (entry,)
    plan = expand(short_plan({"dp_replicate": 64}, synchronise=entries, sharding="none"), DENSE)
    remarks = list(anchor_remark(plan, TrainingOptions(steps=steps, lr=1e-2).rates))
    assert len(remarks) == (words is not None)
    assert all(words in remark for remark in remarks), remarks


def test_a_loss_that_is_not_finite_on_one_island_ends_all_with_its_message(tmp_path, monkeypatch):
    refuse = Loop._refuse_what_is_not_finite

    def late(loop, result):
        second = loop.rank.place.rank in (2, 3)
        refuse(loop, replace(result, loss=math.nan) if second and loop._unknown == 4 else result)

    monkeypatch.setattr(Loop, "_refuse_what_is_not_finite", late)
    run = island_run(tmp_path, DILOCO)
    with pytest.raises(RunError, match="step 4: the loss is nan"):
        run.train("run", 12)


def test_rules_follow_the_rates_of_the_run(tmp_path):
    rule = {"qsr": {"base": 2, "alpha": 3e-4}}
    options = {"lr": 3e-4, "schedule": "linear", "lr_floor": 0.0, "warmup_steps": 2}
    run = island_run(tmp_path, parameters(every=rule), ranks=2, layout={})
    run.train("run", 14, **options)
    entry = Synchronisation.model_validate(parameters(every=rule))
    rates = TrainingOptions(steps=14, **options).rates
    due = [one.begin for one in Periods(entry, rates).exchanges(14)]
    assert len({after - before for before, after in pairwise(due)}) > 1
    assert [line["step"] + 1 for line in steps_of(run, "run") if "loss_islands" in line] == due


def test_rates_count_steps_from_one():
    options = TrainingOptions(steps=8, warmup_steps=3)
    assert options.rates.rate(1) == options.learning_rate(0)
    assert (options.rates.steps, options.rates.warm_up) == (8, 3)
