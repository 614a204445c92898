"""Exchanges of a step in closed form: those of a plan with a short form, without lowering it."""

from collections.abc import Iterator

from meshwright.cost.closed_form.plan_group import PlanGroup
from meshwright.cost.synchronisation.exchanges_in_steps import (
    ExchangeItem,
    StepExchanges,
    one_number,
    repetitions,
)
from meshwright.program.lowering.optimizer_post_validation import norm_axes
from meshwright.program.lowering.step_collectives import step_sums


def group_exchanges(group: PlanGroup) -> StepExchanges | None:
    """Return the exchanges of the one plan of a group; None with exchanges by unit and with a spread vocabulary."""
    if group.by_unit or group.share is not None:
        return None
    sums = step_sums(group.setting.stack, norm_axes(group.steps_overlap))
    micro_batches = int(group.micro_batches[0])

    def size(axes: tuple[str, ...], part: int) -> int:
        return int(one_number(group.parts[part].mesh.group(axes)[0]))

    return StepExchanges(
        [list(_items(group, rank)) for rank in range(group.ranks)],
        size,
        group.prices.collective,
        lambda state: repetitions((part.mode for part in group.parts), micro_batches, state),
        one_number(group.prices.collective(sums)),
    )


def _items(group: PlanGroup, rank: int) -> Iterator[ExchangeItem]:
    visits = int(group.visits[0])
    for stage in group.stages_at[:, rank].tolist():
        of = int(group.kind_of[stage])
        elements = group.kind_elements[of]
        for part, blocks in elements.items():
            for item in group.gathers_of(group.parts[part], blocks):
                yield ExchangeItem(item, 1, gathers=True)
        for kind in group.pass_kinds:
            for segment in group.bodies(kind)[of]:
                for item in segment.overlapped:
                    yield ExchangeItem(item, visits * segment.count)
        for part, blocks in elements.items():
            for item in group.reductions_of(group.parts[part], blocks):
                yield ExchangeItem(item, 1)
