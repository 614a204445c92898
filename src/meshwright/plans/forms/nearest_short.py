"""The short plan nearest to a legal long one, and the differences between the two.

Names of layouts and groups, the way ranges of layers are cut and axes of degree 1 carry no meaning: plans that differ
only in them are the same. What each stage holds stands beside the short plan, for much can be said of a plan whose
stages alone are written out; everything else that the short form has no word for is a problem by its key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from meshwright.errors import Problem
from meshwright.model.architecture import Architecture
from meshwright.plans.forms.conversion import MAIN, ZERO_STATES, expand, short_of_only_layout
from meshwright.plans.forms.long import DeviceGroup, LayerRule, LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.layer_assignment import chain_layers
from meshwright.plans.rules.not_in_this_release import zero_name


@dataclass(frozen=True, slots=True)
class NearestShort:
    """A short plan, the layers of every stage where they are not the usual ones, and what neither says."""

    short: ShortPlan
    stage_layers: tuple[int, ...] | None
    beyond: tuple[Problem, ...]


def nearest_short(long: LongPlan, architecture: Architecture) -> NearestShort:
    """Return the short plan with the choices of ``long``, a plan without problems (``plans/rules/check_plan.py``)."""
    plain = _plainly(long, architecture.layers)
    short = short_of_only_layout(plain)
    usual = expand(short, architecture)
    held = _layers_held(long, architecture)
    (name,) = long.layouts
    beyond = tuple(
        replace(problem, field=problem.field.replace(f"layouts.{MAIN}", f"layouts.{name}", 1))
        for problem in _differences("", _without_stages(plain), _without_stages(usual))
    )
    return NearestShort(short, None if held == _layers_held(usual, architecture) else held, beyond)


def _plainly(long: LongPlan, layers: int) -> LongPlan:
    """Return the same plan in the spelling of ``expand``."""
    (layout,) = long.layouts.values()
    shared = None if layout.state_share == "even" else layout.state_share
    sharding = zero_name(long, layout)
    rules = {key: _plain_rule(rule) for key, rule in long.layers.items()}
    inner = {rule for key, rule in rules.items() if key not in ("embed", "head")}
    if len(inner) == 1 and {"embed", "head"} <= rules.keys():
        rules = {"embed": rules["embed"], f"0..{layers - 1}": inner.pop(), "head": rules["head"]}
    return long.model_copy(
        update={
            "groups": {"all": DeviceGroup()},
            "layouts": {MAIN: layout.model_copy(update={"on": "all", "state_share": shared})},
            "states": ZERO_STATES[sharding] if sharding else long.states,
            "layers": rules,
        }
    )


def _plain_rule(rule: LayerRule) -> LayerRule:
    vocabulary = None if rule.vocabulary == ("tp",) else rule.vocabulary
    return rule.model_copy(update={"layout": MAIN, "vocabulary": vocabulary})


def _layers_held(long: LongPlan, architecture: Architecture) -> tuple[int, ...]:
    return tuple(stage.count for stage in chain_layers(long.pipeline, architecture.layers))


def _without_stages(long: LongPlan) -> Mapping[str, object]:
    return long.model_copy(
        update={"pipeline": long.pipeline.model_copy(update={"stages": "balanced"})}
    ).to_data()


def _differences(path: str, ours: object, usual: object) -> Iterator[Problem]:
    """One problem for every innermost key whose value the short form would mean otherwise."""
    if isinstance(ours, Mapping) and isinstance(usual, Mapping):
        for key in (*ours, *(key for key in usual if key not in ours)):
            inner = f"{path}.{key}" if path else str(key)
            yield from _differences(inner, ours.get(key), usual.get(key))
    elif ours != usual:
        yield Problem(path, ours, f"a plan in short means {usual} here and has no word for this", str(usual))
