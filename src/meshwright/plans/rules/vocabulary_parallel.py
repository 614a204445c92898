"""Rules on a vocabulary spread over the pipeline ranks."""

from collections.abc import Iterator

from meshwright.errors import Problem, nearest
from meshwright.plans.layers.layer_assignment import stage_layers, stage_problems
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.schedules.choice import ScheduleChoice, known_kind
from meshwright.schedules.vocabulary import FORMS

FIELD = "pipeline.schedule.vocabulary"


def vocabulary_parallel_pipeline(case: RuleInput) -> Iterator[Problem]:
    """There are several pipeline ranks, the schedule can have the form, and every stage has layers."""
    choice, pipeline, layers = case.plan.choice, case.plan.pipeline, case.arch.layers
    yield from _in_lists(choice)
    if choice.form is None:
        return
    if case.pp == 1:
        rule = "embedding and head are spread over pp ranks, and pp = 1"
        yield Problem(FIELD, choice.vocabulary, rule, "pp: 2, or take it out")
    if pipeline.chains > 1:
        rule = (
            f"micro-batches end on {pipeline.chains} ranks, and a vocabulary is spread behind one last stage"
        )
        yield Problem(FIELD, choice.vocabulary, rule, "take it out, or another schedule")
    if choice.form.only not in (None, choice.name):
        rule = f"this form is laid out for {choice.form.only} only"
        yield Problem(FIELD, choice.vocabulary, rule, f"another form, or schedule: {choice.form.only}")
    if stage_problems(pipeline, layers):
        return
    for index, stage in enumerate(stage_layers(pipeline, layers)):
        if stage.count == 0:
            rule = "a stage without layers, and embedding and head are in no stage"
            yield Problem(f"pipeline.stages.{index}", index, rule, "give it a layer")


def _in_lists(choice: ScheduleChoice) -> Iterator[Problem]:
    """Require custom lists to have the passes of the plan's form of vocabulary parallelism, and no others."""
    kind, form = known_kind(choice), choice.form
    if choice.written is None or kind is None:
        return
    fitting = [name for name, other in FORMS.items() if other.barriers in kind.barriers and not other.only]
    if form is None:
        if kind.barriers:
            rule = f"{choice.name} has passes of a vocabulary that is spread"
            yield Problem(FIELD, None, rule, f"vocabulary: {fitting[0]}")
    elif not kind.barriers:
        rule = f"{choice.name} has no passes of a vocabulary that is spread"
        yield Problem(FIELD, choice.vocabulary, rule, "take it out, or a schedule by name")
    elif form.barriers not in kind.barriers:
        rule = f"with its {form.barriers} barriers the ranks of {choice.name} wait for each other"
        yield Problem(FIELD, choice.vocabulary, rule, f"vocabulary: {fitting[0]}")


def vocabulary_parallel_states(case: RuleInput) -> Iterator[Problem]:
    """Tables are trained, and whole while a step runs."""
    choice, plan = case.plan.choice, case.plan
    if choice.form is None:
        return
    if case.arch.next_token_layers:
        rule = "layers that predict further tokens read whole tables"
        yield Problem(FIELD, choice.vocabulary, rule, "take it out")
    if plan.workload.task == "lora":
        rule = "frozen tables that are spread are not supported yet"
        yield Problem(FIELD, choice.vocabulary, rule, "take it out")
    if plan.sharding == "zero3" and plan.gather != "per-step":
        rule = f"tables that are spread and gathered {plan.gather} are not supported yet"
        yield Problem("gather", plan.gather, rule, "gather: per-step")


def vocabulary_parallel_stack(case: RuleInput) -> Iterator[Problem]:
    """Refuse a form of vocabulary parallelism that the stack does not have."""
    choice, stack = case.plan.choice, case.stack
    if choice.vocabulary is not None and choice.form and choice.vocabulary not in stack.vocabularies:
        rule = f"{stack.id} does not spread the vocabulary over pipeline ranks this way"
        hint = nearest(choice.vocabulary, stack.vocabularies) or "take it out"
        yield Problem(FIELD, choice.vocabulary, rule, hint)


VOCABULARY_RULES: tuple[Rule, ...] = (
    vocabulary_parallel_pipeline,
    vocabulary_parallel_states,
)
