"""Laws of exchanges that hold for every codec."""

import pytest
import torch
from codec_cases import CASES, CPU, STRETCHES, Group, drawn_values, name_of
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.plans.synchronisation.compression import CODECS as PLAN_CODECS
from meshwright.plans.synchronisation.compression import Compression
from meshwright.program.synchronisation.encoded_bytes import NONE, codec_ranks, stretch_bytes
from meshwright.program.synchronisation.exchange_legs import TRANSPORTS, exchange_legs, split_stretches
from meshwright.program.synchronisation.stretch import Stretch
from meshwright.runtime.synchronisation.codecs import CODECS, GATHERED, REDUCED, SCATTERED
from meshwright.runtime.synchronisation.codecs.codec import CodecSetting
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.encoded_sum import EncodedSum
from meshwright.runtime.synchronisation.leg import Leg, RunningExchange
from meshwright.runtime.synchronisation.message_fields import counted_width
from meshwright.runtime.synchronisation.pending_exchange import PendingExchange

every_case = pytest.mark.parametrize("options", CASES, ids=name_of)
EXACT = [
    {},
    {"low_rank": 12},
    {"dct": {"chunk": 8, "keep": 8}},
    {"dct": {"chunk": 400, "keep": 400, "momentum": 0.5}},
    {"select": {"keep": 1, "pattern": "stride"}},
    {"sketch": {"width": 1}},
    {"sketch": {"width": 1.2, "rows": 2}},
    {"top_k": 1.0},
    {"random_k": 1.0},
]


def test_codecs_are_those_of_the_plan_with_its_transports():
    assert {*CODECS} == {NONE, *PLAN_CODECS} - {"lsh"}
    tables = {"scattered": SCATTERED, "gathered": GATHERED, "reduced": REDUCED}
    assert {name: transport for transport, table in tables.items() for name in table} == dict(TRANSPORTS)


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_all_ranks_get_the_same_bits(options, dtype):
    group = Group.of(options | {"error_feedback": True}, dtype=dtype, weights=[0.2, 0.3, 0.5])
    for seed in range(3):
        first, *others = group.exchange(drawn_values(seed, dtype=dtype))
        for other in others:
            assert all(map(torch.equal, first, other))
    assert [len(one) for one in first] == [one.elements for one in STRETCHES]


def _fields_of(compression, stretch, dtype):
    """Return the counted bytes of what a rank packs for a stretch that is encoded."""
    setting = CodecSetting(compression, [stretch], dtype, CPU)
    (codec,) = (
        table[n](setting)
        for table in (SCATTERED, GATHERED, REDUCED)
        for n in table
        if n == _name(compression)
    )
    values = torch.randn(stretch.elements, dtype=setting.real)
    if _name(compression) in SCATTERED:
        return codec.encode(0, values, torch.Generator()).counted_bytes
    if _name(compression) in GATHERED:
        return codec.encode(0, values, DrawKey()).counted_bytes
    first = codec.first(0, values, DrawKey())
    second = codec.second(0, values, first)
    return (len(first) + (0 if second is None else len(second))) * counted_width(setting.kept)


def _name(compression):
    return compression.codec if compression.written else NONE


@settings(max_examples=120)
@given(
    st.sampled_from(CASES),
    st.tuples(st.integers(1, 2), st.integers(1, 30), st.integers(1, 30)),
    st.booleans(),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_messages_have_the_planned_bytes(options, shape, flat, dtype):
    count, rows, columns = shape
    stretch = Stretch("a", count * rows * columns, None if flat else shape, 1)
    compression = Compression(**options)
    if split_stretches(compression, [stretch]).encoded:
        (rank,) = codec_ranks(compression, [stretch])
        assert _fields_of(compression, stretch, dtype) == stretch_bytes(compression, stretch, rank)


@every_case
def test_legs_are_the_planned_ones(options):
    group = Group.of(options)
    seen = []
    exchanges = [one.legs(p) for one, p in zip(group.sums, group.begin(drawn_values(0)), strict=True)]

    class Recorded:
        def start(self, leg: Leg):
            seen.append((leg.kind, leg.logical_bytes))
            return lambda: _alone(leg, 3)

    RunningExchange(exchanges[0], Recorded()).finish()
    planned = exchange_legs(Compression(**options), STRETCHES, 3)
    assert seen == [(leg.kind, leg.logical_bytes) for leg in planned]


def _alone(leg, ranks):
    """Return what a rank receives if all others hold the same."""
    if leg.kind == "all-reduce":
        return leg.tensor * ranks
    if leg.kind == "all-to-all":
        return torch.cat([leg.tensor.split(list(leg.sent))[0]] * ranks)
    return torch.zeros(sum(leg.received), dtype=torch.uint8)


@pytest.mark.parametrize("options", EXACT, ids=name_of)
def test_codecs_that_keep_everything_give_the_mean(options):
    group = Group.of(options, weights=[0.2, 0.3, 0.5])
    for seed in range(3):
        values = drawn_values(seed)
        for sent, exact in zip(group.exchange(values)[0], group.exact(values), strict=True):
            torch.testing.assert_close(sent, exact, rtol=0, atol=1e-12)


FEEDBACK = [one for one in CASES if not {"dct", "select", "quantise"} & one.keys()]


@pytest.mark.parametrize("options", FEEDBACK, ids=name_of)
@pytest.mark.parametrize("weights", [[0.2, 0.3, 0.5], [1.0, 1.0, 1.0]], ids=["mean", "sum"])
def test_what_is_sent_and_the_residual_are_the_values(options, weights):
    group = Group.of(options | {"error_feedback": True}, weights=weights)
    sent, given = 0, 0
    for seed in range(4):
        values = drawn_values(seed)
        sent = sent + torch.cat(group.exchange(values)[0])
        given = given + torch.cat(group.exact(values))
    left = torch.cat(group.exact([_residuals(one) for one in group.sums]))
    torch.testing.assert_close(sent + left, given, rtol=0, atol=1e-12)


def _residuals(one):
    states = one.states()
    return [
        states.get(f"residual.{stretch.name}", torch.zeros(stretch.elements, dtype=torch.float64))
        for stretch in STRETCHES
    ]


@pytest.mark.parametrize("options", [one for one in CASES if "quantise" in one], ids=name_of)
def test_a_residual_of_quantise_is_what_the_own_message_lacks(options):
    (one,) = Group.of(options | {"error_feedback": True}, ranks=1).sums
    values, total = drawn_values(5, ranks=1)[0], drawn_values(6, ranks=1)[0]
    one.begin(values, [1.0], DrawKey())
    before = [left.clone() for left in _residuals(one)]
    pending = one.begin(total, [1.0], DrawKey(step=1))
    for number, payload in pending.messages.items():
        sent = one.messages.decode(number, payload, pending.key)
        left = _residuals(one)[number]
        torch.testing.assert_close(sent + left, total[number] + before[number], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "options", [{"dct": {"chunk": 8, "keep": 3}}, {"select": {"keep": 0.3}}], ids=name_of
)
def test_what_a_momentum_does_not_send_stays_in_it(options):
    options = {name: value | {"momentum": 1.0} for name, value in options.items()}
    group = Group.of(options)
    sent, given = 0, 0
    for seed in range(4):
        values = drawn_values(seed)
        sent = sent + torch.cat(group.exchange(values)[0])
        given = given + torch.cat(group.exact(values))
    kept = [[one.states().get(f"momentum.{s.name}", _empty()) for s in STRETCHES] for one in group.sums]
    torch.testing.assert_close(sent + torch.cat(group.exact(kept)), given, rtol=0, atol=1e-12)


def _empty():
    return torch.zeros(0, dtype=torch.float64)


@every_case
def test_an_exchange_resumes_from_its_tensors(options):
    """Two exchanges overlap, and the group is rebuilt from states while both are pending."""
    options = options | {"error_feedback": True}
    whole, saved = Group.of(options), Group.of(options)
    for group in (whole, saved):
        group.exchange(drawn_values(0))
    pending = [group.begin(drawn_values(1), copy=True) for group in (whole, saved)]
    later = [group.begin(drawn_values(2), copy=True) for group in (whole, saved)]
    resumed = Group.of(options)
    names = [stretch.name for stretch in STRETCHES]
    for new, old in zip(resumed.sums, saved.sums, strict=True):
        assert new.states().keys() == old.states().keys()
        for name, state in new.states().items():
            state.copy_(old.states()[name])
    for uninterrupted, stored in zip((pending[0], later[0]), (pending[1], later[1]), strict=True):
        expected = whole.finish(uninterrupted)
        restored = [PendingExchange.of_tensors(one.tensors(names), names) for one in stored]
        assert [one.key for one in restored] == [one.key for one in stored]
        for one, other in zip(expected, resumed.finish(restored), strict=True):
            assert all(map(torch.equal, one, other))
    for one, other in zip(whole.sums, resumed.sums, strict=True):
        assert all(torch.equal(one.states()[name], other.states()[name]) for name in one.states())


@every_case
def test_values_stay_as_they_are_and_may_change_when_copied(options):
    group, other = Group.of(options), Group.of(options)
    values = drawn_values(1)
    expected = other.exchange(drawn_values(1))
    pending = group.begin(values, copy=True)
    assert all(torch.equal(a, b) for a, b in zip(values[0], drawn_values(1)[0], strict=True))
    for one in (one for own in values for one in own):
        one.zero_()
    assert all(map(torch.equal, group.finish(pending)[0], expected[0]))


def test_a_rank_alone_gets_what_it_sent():
    for options in ({"ternary": {}}, {"top_k": 0.5}, {"quantise": "int8", "bucket": 5}):
        group = Group.of(options, ranks=1)
        values = drawn_values(0, ranks=1)
        pending = group.begin(values)
        one = group.sums[0]
        sent = [one.messages.decode(n, payload, pending[0].key) for n, payload in pending[0].messages.items()]
        got = [part for part in group.finish(pending)[0] if len(part)]
        for a, b in zip(sent, got, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_nothing_is_exchanged_of_empty_stretches():
    one = EncodedSum(Compression(top_k=0.1), [Stretch("empty", 0)], 2, torch.float32, CPU)
    pending = one.begin([torch.zeros(0)], [0.5, 0.5], DrawKey())
    (result,) = RunningExchange(one.legs(pending), None).finish()
    assert len(result) == 0


def test_draws_follow_from_every_part_of_the_key():
    keys = [DrawKey(), *(DrawKey(**{name: 1}) for name in DrawKey.__slots__), DrawKey().shared()]
    draws = {torch.rand(1, generator=key.generator(CPU, "purpose")).item() for key in keys}
    assert len(draws) == len(keys)
    again = torch.rand(1, generator=DrawKey().generator(CPU, "purpose")).item()
    assert again in draws
    assert torch.rand(1, generator=DrawKey().generator(CPU, "another")).item() not in draws
