"""The choices of a plan that arrays hold as codes, by column; a new one is a file and a line in ``CHOICES``."""

from collections.abc import Mapping

from meshwright.plans.choices.context import context
from meshwright.plans.choices.gather import gather
from meshwright.plans.choices.offload import offload
from meshwright.plans.choices.offload_states import offloaded_optimizer, offloaded_parameters
from meshwright.plans.choices.pipeline_schedule import schedule
from meshwright.plans.choices.plan_choice import Choice, SearchedChoice
from meshwright.plans.choices.rank_order import rank_order
from meshwright.plans.choices.recompute import recompute
from meshwright.plans.choices.sequence_parallel import sequence_parallel
from meshwright.plans.choices.sharding import sharding

CHOICES: Mapping[str, Choice] = {
    "sharding": sharding,
    "recompute": recompute,
    "schedule": schedule,
    "sequence_parallel": sequence_parallel,
    "context": context,
    "order": rank_order,
    "gather": gather,
    "offload": offload,
    "offloaded_optimizer": offloaded_optimizer,
    "offloaded_parameters": offloaded_parameters,
}
"""In the order of the reasons in an answer."""


def searched_choices() -> dict[str, SearchedChoice]:
    """Return what variants of a base plan choose, by column; variants that differ in the last ones stand together."""
    found = {name: choice.searched for name, choice in CHOICES.items() if choice.searched}
    return dict(sorted(found.items(), key=lambda item: not item[1].outermost))
