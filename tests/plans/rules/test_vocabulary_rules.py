"""What a plan may say of a vocabulary that is spread over the pipeline ranks."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from plan_cases import DENSE, STACK, changed, cluster, graph, long_plan, short_plan, short_plans

from meshwright.plans.forms.conversion import expand, shorten
from meshwright.plans.forms.long import SPREAD
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.rules.not_in_this_release import unsupported
from meshwright.schedules.vocabulary import DEFAULT_FORM, FORMS

ABLE = replace(STACK, vocabularies=tuple(FORMS), schedules=("1f1b", "v-half", "gpipe"))
FIELD = "pipeline.schedule.vocabulary"
MAIN = {"layout": "main"}
SPREAD_RULE = MAIN | {"vocabulary": SPREAD}


def spread(form="vocab-1", name="1f1b", **keys):
    pipeline = {
        "schedule": {"name": name, "vocabulary": form},
        "virtual_stages": 2 if name == "v-half" else 1,
    }
    return short_plan(pipeline=pipeline, **keys)


def errors(short, stack=ABLE, devices=64, arch=DENSE):
    found = check_plan(expand(short, arch), graph(arch), cluster(devices), stack)
    return [(p.field, p.rule) for p in found if p.severity == "error"]


@pytest.mark.parametrize("form", FORMS)
def test_the_short_form_spreads_embedding_and_head_and_comes_back(form):
    long = expand(spread(form), DENSE)
    assert long.layers["embed"].vocabulary == long.layers["head"].vocabulary == SPREAD
    assert long.choice.vocabulary == form
    assert expand(shorten(long), DENSE) == long
    assert errors(spread(form)) == []


@given(short_plans())
@settings(max_examples=30, deadline=None)
def test_every_plan_that_spreads_its_vocabulary_can_be_said_in_short(short):
    schedule = {"name": short.pipeline.choice.name, "vocabulary": "vocab-2"}
    data = short.model_dump(exclude_none=True, by_alias=True)
    long = expand(
        type(short).model_validate(data | {"pipeline": data["pipeline"] | {"schedule": schedule}}), DENSE
    )
    assert expand(shorten(long), DENSE) == long


def test_a_long_plan_that_does_not_say_how_means_two_barriers():
    silent = changed(long_plan(), layers={"embed": SPREAD_RULE, "0..15": MAIN, "head": SPREAD_RULE})
    assert silent.choice.vocabulary == DEFAULT_FORM == "vocab-1"
    assert unsupported(silent) == []
    assert shorten(silent).pipeline.choice == silent.choice
    assert long_plan().choice.vocabulary is None


@pytest.mark.parametrize("alone", ["embed", "head"])
def test_one_of_embedding_and_head_alone_is_refused_by_name(alone):
    other = {"embed": "head", "head": "embed"}[alone]
    plan = changed(long_plan(), layers={"embed": MAIN, "0..15": MAIN, "head": MAIN} | {alone: SPREAD_RULE})
    (problem,) = unsupported(plan)
    assert problem.field == f"layers.{other}.vocabulary"
    assert "one alone" in problem.rule
    assert plan.choice.vocabulary is None


@pytest.mark.parametrize("key", ["embed", "0..15"])
def test_other_axes_and_other_layers_are_refused(key):
    rules = {"embed": SPREAD_RULE, "0..15": MAIN, "head": SPREAD_RULE}
    axes = ("tp", "pp") if key == "embed" else SPREAD
    found = unsupported(changed(long_plan(), layers=rules | {key: MAIN | {"vocabulary": axes}}))
    assert f"layers.{key}.vocabulary" in [problem.field for problem in found]


@pytest.mark.parametrize(
    ("form", "spread_rules", "rule", "suggestion"),
    [
        ("vocab-3", True, "unknown form", "vocab-1"),
        ("vocab-2", False, "no layer's vocabulary is spread over pp", "[pp, tp]"),
    ],
)
def test_a_form_is_a_known_one_and_has_something_to_say(form, spread_rules, rule, suggestion):
    end = SPREAD_RULE if spread_rules else MAIN
    pipeline = {"placement": (0, 1, 2, 3), "schedule": {"name": "1f1b", "vocabulary": form}}
    layers = {"embed": end, "0..15": MAIN, "head": end}
    (problem,) = unsupported(changed(long_plan(), layers=layers, pipeline=pipeline))
    assert (problem.field, problem.rule) == (FIELD, rule)
    assert suggestion in problem.suggestion


def test_several_ranks_are_needed():
    layout = {"pp": 1, "dp_shard": 8, "tp": 8}
    assert errors(spread(layout=layout)) == [
        (FIELD, "embedding and head are spread over pp ranks, and pp = 1")
    ]


def test_a_form_for_one_schedule_is_refused_for_others():
    assert errors(spread("vocab-1", "v-half")) == []
    assert errors(spread("interlaced", "v-half")) == [(FIELD, "this form is laid out for 1f1b only")]


def test_every_stage_needs_a_layer():
    long = expand(spread(), DENSE)
    pipeline = long.pipeline.model_dump() | {"stages": (("embed",), ("0..7",), ("8..15",), ("head",))}
    found = check_plan(changed(long, pipeline=pipeline), graph(DENSE), cluster(64), ABLE)
    assert [p.field for p in found if p.severity == "error"] == ["pipeline.stages.0", "pipeline.stages.3"]


def test_tables_are_trained_and_whole_while_a_step_runs():
    assert [field for field, _ in errors(spread(workload={"task": "lora"}))] == [FIELD]
    assert errors(spread(sharding="zero3")) == []
    assert [field for field, _ in errors(spread(sharding="zero3", gather="per-layer"))] == ["gather"]


def test_the_stack_has_to_have_the_form():
    able = replace(ABLE, vocabularies=("vocab-2",))
    assert errors(spread("vocab-2"), stack=able) == []
    ((field, rule),) = errors(spread("vocab-1"), stack=able)
    assert (field, "does not spread the vocabulary" in rule) == (FIELD, True)
    assert [field for field, _ in errors(spread(), stack=replace(ABLE, vocabularies=()))] == [FIELD]


def test_padding_counts_the_ranks_of_the_pipeline():
    narrow = replace(DENSE, vocab=3000)
    plan = expand(spread(), narrow)
    stack = replace(ABLE, vocab_multiple=512)
    (problem,) = [p for p in check_plan(plan, graph(narrow), cluster(64), stack) if "padded" in p.rule]
    assert "padded to 4096, a multiple of vocab_multiple·pp·tp = 4096" in problem.rule


def test_layers_that_predict_further_tokens_need_whole_tables():
    further = replace(DENSE, next_token_layers=1)
    assert errors(spread(), arch=further) == [(FIELD, "layers that predict further tokens read whole tables")]
    assert errors(short_plan(), arch=further) == []
