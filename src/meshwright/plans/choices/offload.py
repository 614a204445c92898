"""Activations that wait in host memory between their forward and backward pass."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from meshwright.plans.choices.plan_choice import Bools, Choice, ChoiceRuleInput, SearchedChoice, Values
from meshwright.plans.forms.host_offload import Offload
from meshwright.plans.rules.encoder_models import NO_OFFLOAD
from meshwright.plans.setting import Setting

SHARES: tuple[Literal["all"] | float, ...] = ("all", 0.5, 0.25)
AHEAD = (1, 2)


def _parse(text: str) -> Offload:
    """Parse a share as plans write it, with a comma the passes ahead. Raise ValueError."""
    share, comma, ahead = text.partition(",")
    try:
        given: dict[str, object] = {"activations": share if share in ("none", "all") else float(share)}
        return Offload.model_validate(given | ({"ahead": int(ahead)} if comma else {}))
    except ValueError:
        raise ValueError(
            "must be none, all or a share up to 1, with a comma how many passes ahead it comes back"
        ) from None


def _holds_activations(setting: Setting) -> bool:
    """Return true if the stack offloads activations and the cluster describes its hosts' memory and link."""
    hosts = [(pool.node.host_bytes_per_s, pool.node.host_memory_bytes) for pool in setting.cluster.pools]
    return setting.stack.offloads_activations and not any(None in host for host in hosts)


def _all(setting: Setting) -> Values:
    shares = [Offload(activations=share, ahead=ahead) for share in SHARES for ahead in AHEAD]
    return (Offload(), *(shares if _holds_activations(setting) else ()))


def _leaves_devices(given: ChoiceRuleInput, own: Offload) -> Iterator[tuple[str, Bools]]:
    """Activations leave the devices of a pipeline, for hosts that hold them."""
    if own.rule.share:
        rule = f"{given.setting.stack.id} keeps no activations on hosts like these"
        yield rule, np.full(len(given.base), _holds_activations(given.setting))
        yield NO_OFFLOAD, np.full(len(given.base), given.setting.model.architecture.encoder is None)
        yield "without a pipeline (pp = 1) no activations go out", given.base.pp > 1


offload = Choice(
    path="offload",
    parse=_parse,
    example="0.5",
    write=lambda value: None if value == Offload() else value,
    read=lambda plan: plan.offload.of_activations if plan.offload else Offload(),
    searched=SearchedChoice(
        usual=lambda setting: (Offload(),), every=_all, rule=_leaves_devices, played=True
    ),
)
