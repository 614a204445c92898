"""Sequence parallelism: whether tp cuts sequences between matrix products."""

from collections.abc import Iterator

from meshwright.plans.choices.plan_choice import Bools, Choice, ChoiceRuleInput, SearchedChoice, Values
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.rules.degrees import experts_need_sequences
from meshwright.plans.rules.encoder_models import encoder_rows
from meshwright.plans.setting import Setting


def _cuts_sequences(plan: ShortPlan) -> bool:
    given = plan.layout.sequence_parallel
    return plan.layout.tp > 1 if given is None else given


def _usual(setting: Setting) -> Values:
    return (setting.stack.sequence_parallel,)


def _all(setting: Setting) -> Values:
    return (True, False) if setting.stack.chooses_sequence_parallelism else _usual(setting)


def _sequences_are_cut(given: ChoiceRuleInput, cut: bool) -> Iterator[tuple[str, Bools]]:
    """Sequences can be cut over tp, or left whole."""
    base, seq_len = given.base, given.setting.workload.seq_len
    if cut:
        stack = given.setting.stack
        yield f"{stack.id} has no sequence parallelism", (base.tp == 1) | stack.sequence_parallel
        whole = (base.tp == 1) | (seq_len % (base.cp * base.tp) == 0)
        yield f"cp·tp does not divide seq_len = {seq_len}", whole
        rows = encoder_rows(given.setting.workload, given.setting.model.architecture)
        for field, (count, together) in rows.items():
            yield f"tp·{together} does not divide {count} of {field}", count % (base.tp * together) == 0
        return
    if True in given.values["sequence_parallel"]:
        yield "equal to a plan with sequence parallelism: tp = 1", base.tp > 1
    if given.setting.model.architecture.moe is not None:
        yield experts_need_sequences(), base.tp == 1


sequence_parallel = Choice(
    path="layout.sequence_parallel",
    known=(False, True),
    read=_cuts_sequences,
    searched=SearchedChoice(
        usual=_usual,
        every=_all,
        rule=_sequences_are_cut,
        concerned=lambda base: base.tp > 1,
        outermost=True,
    ),
)
