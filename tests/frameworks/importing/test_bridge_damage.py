"""Whatever a file for Megatron-Bridge holds, it is read or refused with problems."""

from contextlib import suppress

import pytest
from bridge_files import tree
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.frameworks.megatron_bridge.importing.importer import import_bridge
from meshwright.frameworks.option_names import option_names
from meshwright.plans.files.yaml_text import MAX_BYTES


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello world",
        "\x00\x01",
        "- 1\n- 2\n",
        "a: 1\n",
        "model:\n\t- a\n",
        "model: {" * 40,
        "&a model: *a\n",
        "5",
    ],
)
def test_what_is_no_file_for_bridge_is_refused(text):
    with pytest.raises(InputError):
        import_bridge(text)


@pytest.mark.slow
def test_endless_text_is_refused():
    with pytest.raises(InputError):
        import_bridge("model:\n" + "  a: 1\n" * MAX_BYTES)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "text",
    [
        "model.a_layers=[ " * 8000,
        "run.py " + "a_pretrain" * 12000,
        "run.py " + "a_" * 60000,
        "".join(f"model.layers_{i}={i} " for i in range(5000)),
        "train:\n" + "".join(f"  batch_{i}: {i}\n" for i in range(6000)),
        "model.pipeline_model_parallel_layout='" + "(t*99999|)*99999" * 50 + "'",
        "model:\n  pipeline_model_parallel_layout: [" + "[decoder], " * 9000 + "[loss]]\n",
    ],
)
def test_much_of_one_thing_is_read_or_refused(text):
    with suppress(InputError):
        assert len(import_bridge(text).problems) < 100


PATHS = sorted(name for name in option_names("megatron-bridge", "0.6.2") if "." in name and "*" not in name)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text("abE|tL*(), []{}:'\"$\\", max_size=12),
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(PATHS), VALUES, min_size=1, max_size=12))
def test_any_values_of_known_fields_give_facts_or_problems_and_nothing_else(fields):
    words = " ".join(f"{path}={value}" for path, value in fields.items())
    sections = {}
    for path, value in fields.items():
        section, _, name = path.partition(".")
        sections.setdefault(section, {})[name] = value
    for text in (words, tree(**sections)):
        try:
            foreign = import_bridge(text)
        except InputError:
            continue
        assert all(problem.field and problem.rule for problem in foreign.problems)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    for prefix in ("", "model.tensor_model_parallel_size=2 ", "model:\n  sequence_parallel: true\n  "):
        with suppress(InputError):
            assert import_bridge(prefix + text).source == "bridge"
