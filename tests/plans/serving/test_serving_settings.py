"""Settings of serving plans from the command line."""

import pytest
from serving_cases import ONE_POOL, PHASES, POOLS, serving

from meshwright.errors import InputError
from meshwright.plans.serving.serving_settings import with_settings


def test_a_bare_name_is_the_key_wherever_it_lies():
    found = with_settings(serving(), ["tp=8", "max_sequences=64", "stack=sglang", "ttft_ms=500.0", "kv=fp8"])
    pool = found.pools["all"]
    assert (pool.layout.tp, pool.batching.max_sequences, pool.quantise.kv) == (8, 64, "fp8")
    assert (found.stack, found.workload.objectives.ttft_ms) == ("sglang", 500.0)


def test_keys_of_several_pools_stand_after_the_name_of_theirs():
    found = with_settings(serving(POOLS), ["fill.tp=4", "pools.write.batching.max_sequences=32"])
    assert found.pools["fill"].layout.tp == 4
    assert found.pools["write"].batching.max_sequences == 32
    with pytest.raises(InputError, match="unknown key"):
        with_settings(serving(POOLS), ["tp=4"])


@pytest.mark.parametrize(
    ("text", "setting", "gone", "kept"),
    [
        (ONE_POOL, "concurrency=8", "rate_per_s", "concurrency"),
        (POOLS, "rate_per_s=3.5", "concurrency", "rate_per_s"),
        (PHASES, "input_tokens=100", "lengths", "input_tokens"),
    ],
)
def test_a_key_that_excludes_another_one_takes_its_place(text, setting, gone, kept):
    settings = [setting, "output_tokens=10"] if gone == "lengths" else [setting]
    found = with_settings(serving(text), settings).workload
    assert getattr(found, gone) is None
    assert getattr(found, kept) is not None


def test_all_wrong_settings_come_at_once():
    with pytest.raises(InputError) as error:
        with_settings(serving(), ["tq=4", "tp", "tp=2", "tp=4", "plan=2"])
    assert len(error.value.problems) == 4


def test_a_value_of_a_wrong_type_is_refused():
    with pytest.raises(InputError, match="concurrency"):
        with_settings(serving(), ["concurrency=many"])


def test_no_setting_changes_nothing():
    for text in (ONE_POOL, POOLS, PHASES):
        assert with_settings(serving(text), []) == serving(text)
