"""Texts of --inject: what they mean, and what is wrong with them."""

import pytest

from meshwright.errors import InputError
from meshwright.runtime.faults.injection import MAX_STEP, Injection, injections, without_fired


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kill:rank=2,step=5", Injection(kind="kill", rank=2, step=5)),
        ("slow:rank=0,step=1,factor=2.5", Injection(kind="slow", rank=0, step=1, factor=2.5)),
        ("link:rank=0,peer=3,step=4", Injection(kind="link", rank=0, peer=3, step=4)),
        ("spike:step=7,factor=30", Injection(kind="spike", step=7, factor=30)),
    ],
)
def test_a_text_and_its_fault(text, expected):
    assert injections([text]) == (expected,)
    assert injections([str(expected)]) == (expected,)


def test_a_fault_that_has_happened_is_legal_and_never_happens_again():
    texts = ("kill:rank=1,step=3", "slow:rank=0,step=2,factor=2.5", "spike:step=4,factor=1000000")
    found = injections(without_fired(texts, [0, 1, 2]))
    assert [one.kind for one in found] == ["kill", "slow", "spike"]
    assert [one.step for one in found] == [MAX_STEP, 2, MAX_STEP]
    assert [one.factor for one in found[1:]] == [2.5, 1e6]
    assert injections(without_fired(texts, [])) == injections(texts)


def test_more_faults_than_ranks_can_keep_apart_are_refused():
    with pytest.raises(InputError, match="at most 64 faults"):
        injections(["kill:rank=0,step=1"] * 65)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("kil:rank=2,step=5", "'kil' is no kind of fault"),
        ("kill:rank=2", "kill needs step="),
        ("kill:step=2", "kill needs rank="),
        ("kill:rank=4,step=2", "the plan has 4 ranks, 0 to 3"),
        ("kill:rank=1,step=-2", "step must be a whole number"),
        ("kill:rank=1,step=2,factor=3", "kill has no setting 'factor'"),
        ("slow:rank=1,step=2,factor=0", "factor must be above 0"),
        ("link:rank=1,step=2", "link needs peer="),
        ("link:rank=1,peer=1,step=2", "a link joins two ranks"),
        ("spike:rank=1,step=2", "spike has no setting 'rank'"),
    ],
)
def test_a_wrong_text_is_named_with_its_rule(text, rule):
    with pytest.raises(InputError, match=rule) as caught:
        injections(["hang:rank=0,step=1", text], ranks=4)
    assert all(problem.suggestion for problem in caught.value.problems)
    assert all(problem.value == text for problem in caught.value.problems)
