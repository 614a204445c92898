"""Messages of ranks: every trained element in one fragment, and bytes of its stretches by the codec's formula."""

from dataclasses import replace

import pytest
from island_plans import CUTS, SYSTEMS, island_plan, parameters

from meshwright.model.named_tensors import named_parameters
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.program.synchronisation.islands import islands
from meshwright.program.synchronisation.rank_exchanges import RankExchanges

FRAGMENTS = replace(CUTS["replicas"], layers=4)


def lowered(of, *entries):
    """The Program of a plan with these entries, and its model."""
    return replace(of, synchronise=tuple(map(Synchronisation.model_validate, entries))).lowered()


@pytest.mark.parametrize("cut", ["replicas", "pp", "zero1", "zero3"])
def test_an_island_sends_every_trained_element_once(cut):
    entry = parameters(every=4, fragments=2, outer={"sgd": {"lr": 1.0}})
    program, model = lowered(CUTS[cut], entry)
    (first, second) = islands(program.parts[0].grid, program.loose)
    elements = [
        sum(
            message.elements
            for rank in island
            for fragment in (0, 1)
            for message in RankExchanges(program, rank).messages(0, fragment)
        )
        for island in (first, second)
    ]
    trained = sum(parameter.elements for parameter in named_parameters(model).values() if parameter.trained)
    assert elements == [trained, trained]


def test_layers_take_turns_and_ends_belong_to_the_first_and_last_fragment():
    program, _ = lowered(FRAGMENTS, parameters(every=4, fragments=3))
    exchanges = RankExchanges(program, 0)
    held = [{h.tensor for m in exchanges.messages(0, f) for h in m.held} for f in range(3)]
    layers = [{int(name.split(".")[1]) for name in names if name.startswith("layers.")} for names in held]
    assert layers == [{0, 3}, {1}, {2}]
    assert any(name.startswith("embed.") for name in held[0])
    assert any(name.startswith("head.") for name in held[2])


@pytest.mark.parametrize(
    ("codec", "bytes_of"),
    [
        (None, lambda k: 4 * k),
        ({"quantise": "int8"}, lambda k: k + 8),
        ({"quantise": "e3m0"}, lambda k: -(-k // 2) + 4),
        ({"random_k": 0.25}, lambda k: -(-k // 4) * 4),
    ],
)
def test_bytes_are_those_of_the_codec_for_every_stretch(codec, bytes_of):
    program, _ = lowered(CUTS["tp"], parameters(every=2, compress=codec))
    (message,) = RankExchanges(program, 1).messages(0, 0)
    encoded = sum(bytes_of(stretch.elements) for stretch in message.stretches)
    legs = [int(leg.logical_bytes) for leg in message.collectives]
    gathered = 2 if codec and "random_k" in codec else 1
    assert set(legs) == {gathered * encoded}
    assert {leg.axes for leg in message.collectives} == {("dp_replicate",)}


def test_experts_have_messages_of_their_own_and_moments_one_of_each_state():
    program, _ = lowered(
        CUTS["ep"], parameters(every=2), {"state": "optimizer", "over": "dp_replicate", "every": 2}
    )
    exchanges = RankExchanges(program, 0)
    assert [message.axes for message in exchanges.messages(0, 0)] == [("dp_replicate",), ("edp_replicate",)]
    states = [message.state for message in exchanges.messages(1, 0)]
    assert states == ["first_moment"] * 2 + ["second_moment"] * 2


@pytest.mark.parametrize("system", [name for name, of in SYSTEMS.items() if of.loose])
def test_members_of_a_group_have_equal_legs(system):
    program, _ = (
        island_plan(system, "zero3").lowered()
        if not SYSTEMS[system].of_matrices
        else island_plan(system, "tp").lowered()
    )
    for group in program.parts[0].grid.groups(("dp_replicate",)):
        found = [
            [message.collectives for message in RankExchanges(program, int(rank)).messages(0, 0)]
            for rank in group
        ]
        assert all(found)
        assert found == [found[0]] * len(found)
