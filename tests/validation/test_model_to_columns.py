"""Models of one's own in a table of runs: columns of a model, its folder before them, and what no column says."""

import json

import pytest
from example_run_tables import GOOD, run_of

from meshwright.model.load import load_config, load_model
from meshwright.model.operators.blocks import build_graph
from meshwright.model.zoo_names import zoo_names
from meshwright.stack.load import load_stack
from meshwright.validation.model_to_columns import SHAPE, facts_without_column, model_columns
from meshwright.validation.read_run_table import COLUMNS
from meshwright.validation.run_model import architecture, is_absent, local_model

STACK = load_stack("meshwright")
SAID = {"llama-3.1-8b", "llama-2-70b", "mistral-7b-v0.3", "mixtral-8x7b"}
"""Models of which the columns say everything."""
UNSAID = {
    "qwen3-8b": {"qk_norm"},
    "gpt-oss-20b": {"attention_sinks", "windows"},
    "deepseek-v3": {"latent"},
    "gpt-3-175b": {"positions"},
}


@pytest.fixture
def folder(tmp_path):
    """Makes a folder with a configuration of the zoo; returns its whole path."""

    def made(name, called="one-of-ours"):
        path = tmp_path / called
        path.mkdir(exist_ok=True)
        config = {key: value for key, value in load_config(name).items() if not key.startswith("_")}
        (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return str(path)

    return made


def given(path, name, columns):
    """What a table says that has these columns of a model and no others."""
    shape = {column: columns.get(column, "") for column in SHAPE}
    return run_of(path, model=name, **shape, seq_len=64).given


def same_operators(ours, theirs):
    """Whether two models cost the same: their blocks and how often each comes."""
    one, other = build_graph(ours), build_graph(theirs)
    return (one.blocks, one.chain) == (other.blocks, other.chain)


@pytest.mark.parametrize("name", zoo_names())
def test_a_model_in_a_folder_is_that_of_its_configuration(tmp_path, folder, name):
    known = load_model(folder(name)).architecture
    columns = model_columns(known)
    assert set(columns) <= set(SHAPE) <= set(COLUMNS)
    assert architecture(given(tmp_path / "t.csv", folder(name), columns), STACK) == known


@pytest.mark.parametrize("name", zoo_names())
def test_what_no_column_says_is_named_exactly_where_columns_make_another_model(tmp_path, name):
    known = load_model(name).architecture
    if known.latent is not None:
        assert facts_without_column(known)
        return
    stack = load_stack("megatron-lm-2022") if known.dropout else STACK
    built = architecture(given(tmp_path / "t.csv", "/nowhere/ours", model_columns(known)), stack)
    assert same_operators(built, known) == (not facts_without_column(known))


def test_plain_models_are_said_and_others_are_named():
    assert {name: facts_without_column(load_model(name).architecture) for name in SAID} == dict.fromkeys(
        SAID, ()
    )
    for name, facts in UNSAID.items():
        assert facts <= set(facts_without_column(load_model(name).architecture)), name


def test_a_folder_called_like_a_release_is_read_and_not_taken_for_it(tmp_path, folder):
    path = folder("qwen3-8b", called="llama-3.1-8b")
    found = architecture(given(tmp_path / "t.csv", path, {}), STACK)
    assert same_operators(found, load_model("qwen3-8b").architecture)


def test_columns_stand_where_the_folder_is_gone_or_broken(tmp_path, folder):
    path = folder("llama-3.1-8b")
    known = load_model(path).architecture
    for text in ("no configuration", "[]", ""):
        (tmp_path / "one-of-ours" / "config.json").write_text(text, encoding="utf-8")
        assert local_model(path) is None
        found = architecture(given(tmp_path / "t.csv", path, model_columns(known)), STACK)
        assert same_operators(found, known)
    (tmp_path / "one-of-ours" / "config.json").unlink()
    assert is_absent(path)
    assert same_operators(architecture(given(tmp_path / "t.csv", path, model_columns(known)), STACK), known)


def test_columns_of_the_run_win_over_a_configuration_that_has_changed(tmp_path, folder):
    columns = model_columns(load_model(folder("qwen3-8b")).architecture) | {"layers": 3}
    found = architecture(given(tmp_path / "t.csv", folder("qwen3-8b"), columns), STACK)
    assert (found.layers, found.qk_norm) == (3, True)


@pytest.mark.parametrize(
    "name", ["nobody/model-7b", "../..", "/dev/null", "/", "~nobody/x", "a\0b/c", "x" * 5000]
)
def test_names_that_are_no_configurations_are_only_names(tmp_path, name):
    assert local_model(name) is None
    columns = {column: GOOD.get(column, "") for column in SHAPE}
    if "\0" not in name:
        assert architecture(given(tmp_path / "t.csv", name, columns), STACK).layers == 8
