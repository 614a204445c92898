"""Plans whose lists a solver made better: predicted, proven legal and saved as any others, never worse, repeatable."""

from itertools import pairwise

import pytest
from planning_questions import header

from meshwright import api
from meshwright.cost.closed_form.step_parts import pipeline_lengths
from meshwright.cost.memory.rank_ledgers import rank_ledgers
from meshwright.cost.schedule_solver_task import CustomSchedulePlan, solver_task, unsupported_by_solver
from meshwright.errors import InputError
from meshwright.plans.files.plan_file import parse_plan
from meshwright.schedules.solve import Effort, solve_task
from meshwright.simulate.plan_estimate import simulated_estimate
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer, setting_of
from meshwright.verbs.plan.solver_schedules import SolverOptions

STEPS = SolverOptions(seconds=600.0, steps=60)
SMALL = header("llama-3.1-8b", "a100-sxm-40gb x 8", seq_len=4096, batch=16, stack="meshwright")
KEPT = ("pp=8", "vocabulary=none", "offload=none")
"""The solver knows neither of a vocabulary that is spread nor of activations on the hosts."""
SHORT = ("pp=4", "micro_batch=1", "tp=2")


def solved(*more, solving=STEPS, schedules="auto", progress=None, kept=KEPT, **asked):
    return answer(
        PlanRequest(SMALL, (*kept, *more), schedules=schedules, solving=solving, **asked), progress=progress
    )


@pytest.fixture(scope="module")
def found():
    return solved()


def test_no_answer_is_worse_than_without(found):
    without = solved(solving=None)
    assert without.solved is None
    assert found.proposals[0].report.step_time_s < without.proposals[0].report.step_time_s
    for one in found.solved.looked_at:
        assert one.after_s <= one.before_s
    keys = [(p.plan.layout.tp, p.plan.layout.cp, p.plan.recompute) for p in found.proposals]
    assert len(set(keys)) == len(keys) == len(without.proposals)
    times = [p.report.step_time_s for p in found.proposals]
    assert all(later > earlier / 1.0011 for earlier, later in pairwise(times))


def test_a_plan_with_better_lists_is_saved_and_predicted_alike(found, tmp_path):
    best = found.proposals[0]
    files = best.files(tmp_path / "best.yaml")
    assert [path.name for path in files] == ["best.yaml", "best.csv"]
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    resolved = api.load(tmp_path / "best.yaml")
    assert resolved.long.choice.written.lines == best.plan.pipeline.choice.written.lines
    report = api.predict(tmp_path / "best.yaml")
    assert report.step_time_s == best.report.step_time_s
    assert report.memory_bytes == best.report.memory_bytes
    assert report.fits
    played = simulated_estimate(resolved.long, resolved.setting)
    assert sum(played.parts.values()) == pytest.approx(report.step_time_s, rel=0.03)
    assert parse_plan(best.to_yaml()).pipeline.choice.written.lines == best.plan.pipeline.choice.written.lines


def test_what_is_told_of_the_solver(found):
    data = found.to_json()["solved"]
    assert (data["steps_allowed"], data["seed"], data["interrupted"]) == (60, 0, False)
    (first, *_) = data["plans"]
    assert first["step_time_s"] < first["step_time_before_s"]
    assert first["pipeline_s"] == pytest.approx((1 + first["gap"]) * first["lower_bound_s"])
    assert first["search_steps"] <= 60
    assert first.keys() >= {"bound_reason", "found_by", "search_time_s"}
    for one in data["plans"]:
        assert (one["left_because"] is None) == ("pipeline_s" in one)


@pytest.mark.slow
def test_equal_seeds_and_steps_give_equal_lists(found):
    again = solved()
    assert [p.plan for p in again.proposals] == [p.plan for p in found.proposals]


def test_the_solver_sees_the_times_and_the_memory_of_the_plan(found):
    """Its span is that of the plan's closed form, and what it says a rank holds is the ledger's."""
    setting = setting_of(SMALL)
    for proposal in [p for p in found.proposals if unsupported_by_solver(p.plan) is None][:2]:
        listed = CustomSchedulePlan(proposal.plan)
        task = solver_task(listed, setting)
        solution = solve_task(task, Effort(seconds=60.0, steps=5, method="local"))
        group = listed.group(setting, solution.lists)
        (length,) = pipeline_lengths([group])
        assert float(length.seconds[0]) == pytest.approx(solution.makespan, rel=1e-9)
        assert task.goal == "latency"
        ledgers = rank_ledgers(group)
        capacity = setting.cluster.pool.device.memory_bytes * 0.94
        assert float(sum(ledgers.values()).max()) <= capacity


def test_a_limit_that_is_kept_holds_for_better_lists():
    found = solved("memory_limit=0.75", kept=SHORT, schedules="zero-bubble")
    assert any(one.solution is not None for one in found.solved.looked_at)
    for proposal in found.proposals:
        choice = proposal.plan.pipeline.choice
        assert choice.memory_limit == 0.75
        assert choice.written is None or not choice.written.beyond(0.75)


def test_stages_that_were_cut_anew_keep_their_cut(tmp_path):
    found = solved(kept=SHORT, stages="time", schedules="zb-h1")
    best = found.proposals[0]
    assert best.long is not None
    for path, text in best.files(tmp_path / "cut.yaml").items():
        path.write_text(text, encoding="utf-8")
    assert api.predict(tmp_path / "cut.yaml").step_time_s == best.report.step_time_s
    (one, *_) = found.solved.looked_at
    assert best.report.step_time_s <= one.before_s


@pytest.mark.parametrize(
    ("kept", "why_not"),
    [
        (("pp=1", "tp=1", "micro_batch=1"), None),
        (("pp=4", "tp=2"), "goes two ways through the model"),
    ],
)
def test_plans_that_a_solver_does_not_see(kept, why_not):
    small = header("llama-3.2-1b", "a100-sxm-40gb x 8", batch=16, stack="meshwright")
    schedules = "1f1b" if why_not is None else "dualpipe"
    found = answer(PlanRequest(small, kept, schedules=schedules, solving=STEPS))
    assert [one.why_not for one in found.solved.looked_at] == (
        [] if why_not is None else [f"dualpipe {why_not}"]
    )


def test_it_tells_the_best_so_far():
    told = []
    solved(kept=SHORT, progress=lambda what, part: told.append((what, part)), schedules="zb-h1")
    assert all(0 <= part <= 1 for _, part in told)
    assert "none below" in told[0][0]


def test_an_interrupt_returns_the_best_so_far():
    told = []

    def interrupt(what, part):
        told.append(what)
        if len(told) == 3:
            raise KeyboardInterrupt

    found = solved(solving=SolverOptions(seconds=600.0, steps=10**9), progress=interrupt)
    assert len(told) == 3
    assert found.interrupted
    assert found.solved.interrupted
    (one,) = found.solved.looked_at
    assert found.proposals[0].report.step_time_s == one.after_s < one.before_s


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seconds": 0.0}, "solve = 0.0: must be above 0"),
        ({"steps": 0}, "solve-steps = 0: must be at least 1"),
        ({"seed": -1}, "seed = -1: must be from 0"),
        ({"kept": ("schedule=zb-h1",)}, "and --keep schedule=zb-h1"),
        ({"stack": "megatron-core"}, "runs schedules by name, not lists of one's own"),
    ],
)
def test_what_a_solver_is_not_asked(changes, message):
    kept, stack = changes.pop("kept", ()), changes.pop("stack", "meshwright")
    question = SMALL.model_copy(update={"stack": stack})
    with pytest.raises(InputError) as caught:
        answer(PlanRequest(question, kept, solving=SolverOptions(**{"seconds": 60.0} | changes)))
    assert message in str(caught.value)
