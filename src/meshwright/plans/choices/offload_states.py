"""The searched choices ``offload.optimizer`` and ``offload.parameters``."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from meshwright.plans.choices.gather import GATHERS
from meshwright.plans.choices.plan_choice import Bools, Choice, ChoiceRuleInput, SearchedChoice
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.plans.forms.host_offload import Offload, Share, share_number
from meshwright.plans.forms.short import ShortPlan
from meshwright.stack.state_types import stays_on_devices

NONE: Share = "none"


def _parse(name: str, text: str) -> Share:
    """Parse a share as plans write it. Raise ValueError."""
    try:
        share: Share = text if text in ("none", "all") else float(text)  # type: ignore[assignment]
        Offload.model_validate({name: share})
    except ValueError:
        raise ValueError("must be none, all or a share from 0 to 1") from None
    return share


def _read(name: str, plan: ShortPlan) -> Share:
    share: Share | None = getattr(plan.offload, name, None)
    return NONE if share is None else share


def _leaves_devices(name: str, given: ChoiceRuleInput, own: Share) -> Iterator[tuple[str, Bools]]:
    """States leave the devices for hosts that are described, where the stack can, under shardings that allow it."""
    share, stack, nodes = share_number(own), given.setting.stack, given.setting.cluster.pools
    if not share:
        return
    facts = [
        (p.node.host_bytes_per_s, p.node.host_memory_bytes, p.node.host_memory_bytes_per_s) for p in nodes
    ]
    known = not any(None in of_node for of_node in facts)
    yield "hosts have unknown memory or links", np.full(len(given.base), known)
    if name == "optimizer":
        steps = not given.setting.workload.optimizer.kind.of_matrices
        yield "the host only steps element by element", np.full(len(given.base), steps)
    if name == "parameters":
        gathered = given.base.gather == GATHERS.index("per-layer")
        cut = np.array([sharding != "none" for sharding in SHARDINGS], dtype=np.bool_)[given.base.sharding]
        yield "parameters are not fetched from the host layer by layer", ~cut | gathered
    stays = stays_on_devices(given.setting.workload.adapter, stack, name)
    yield stays or "", np.full(len(given.base), stays is None)
    ways = [way for way in stack.state_offloads if way.has_part(name, share)]
    alone = given.base.dp_replicate * given.base.dp_shard * given.base.cp == 1
    runs = [
        [any(way.runs_with(name, alone=one) for way in ways) for name in SHARDINGS] for one in (False, True)
    ]
    able = np.array(runs, dtype=np.bool_)[alone.astype(np.int64), given.base.sharding]
    yield f"{stack.id} keeps no such share of {NAMES[name]} on the host", able


NAMES = {"optimizer": "the optimizer's states", "parameters": "parameters"}


def _choice(name: str) -> Choice:
    return Choice(
        path=f"offload.{name}",
        whole_path=True,
        parse=partial(_parse, name),
        example="all",
        write=lambda value: None if value == NONE else value,
        read=partial(_read, name),
        searched=SearchedChoice(
            usual=lambda setting: (NONE,),
            every=lambda setting: (NONE,),
            rule=partial(_leaves_devices, name),
            alone=True,
        ),
    )


offloaded_optimizer, offloaded_parameters = _choice("optimizer"), _choice("parameters")
