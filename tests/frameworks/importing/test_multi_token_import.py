"""Layers that predict further tokens in files of Megatron and Megatron-Bridge: facts, refusals, the plan's model."""

import json

import pytest
from bridge_files import tree

from meshwright.frameworks.importing.imported_file import Stage
from meshwright.frameworks.megatron.importing.importer import import_megatron
from meshwright.frameworks.megatron_bridge.importing.importer import import_bridge
from meshwright.model.load import load_config, load_model
from meshwright.verbs.import_ import ImportRequest, import_text

SIZES = "--num-layers 60 --num-experts 256 --expert-model-parallel-size 16 --pipeline-model-parallel-size 4"
RUN = "--micro-batch-size 1 --global-batch-size 256 --seq-length 4096 --bf16 --use-distributed-optimizer"
ON = "h100-sxm-80gb x 64"
NEXT = "--mtp-num-layers 1"


def megatron(*options):
    return import_megatron(" ".join(["pretrain_gpt.py", RUN, *options]))


def layers_and_weight(foreign):
    return foreign.value("next_tokens.layers"), foreign.value("next_tokens.weight")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--mtp-num-layers 2"], (2, 0.1)),
        (["--mtp-num-layers 1", "--mtp-loss-scaling-factor 0.3"], (1, 0.3)),
        (["--mtp-num-layers 0", "--num-layers 4"], (0, None)),
        (["--num-layers 4"], (0, None)),
        ([], (None, None)),
    ],
)
def test_how_many_there_are_and_how_much_they_count(options, said):
    assert layers_and_weight(megatron(*options)) == said


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"mtp_num_layers": 1}, (1, 0.1)),
        ({"mtp_num_layers": 2, "mtp_loss_scaling_factor": 0.3}, (2, 0.3)),
        ({"mtp_num_layers": "null", "mtp_loss_scaling_factor": 0.3}, (0, None)),
        ({"num_layers": 4}, (None, None)),
    ],
)
def test_bridge_says_the_same_with_fields(model, said):
    assert layers_and_weight(import_bridge(tree(model=model))) == said


def test_letters_of_a_layout_stand_for_them():
    found = megatron("--mtp-num-layers 2", "--pipeline-model-parallel-size 2", LAYOUT.format("Ett|tm*2L"))
    assert not found.problems
    assert found.value("stages") == (Stage(True, 2, False), Stage(False, 1, True, 2))


LAYOUT = "--pipeline-model-parallel-layout '{}'"
POSITIONS = "--position-embedding-type"
BESIDE_EXCHANGES = (
    "--bf16 --num-experts 8 --expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall "
    "--num-virtual-stages-per-pipeline-rank 2"
)
WRONG = {
    "another number in the layout": ([NEXT, LAYOUT.format("Et|tL")], "--pipeline-model-parallel-layout"),
    "letters without the option": (["--num-layers 2", LAYOUT.format("Et|tmL")], "--pipeline-model-parallel-layout"),
    "a layer behind them": ([NEXT, LAYOUT.format("Etm|tL")], "--pipeline-model-parallel-layout"),
    "two stages": (["--mtp-num-layers 2", LAYOUT.format("Ettm|mL")], "--pipeline-model-parallel-layout"),
    "not the last of its rank": ([NEXT, LAYOUT.format("Et|tm||L")], "--pipeline-model-parallel-layout"),
    "learned positions": ([NEXT, f"{POSITIONS} learned_absolute"], POSITIONS),
    "positions left out": ([NEXT, "--hidden-size 64"], POSITIONS),
    "a weight of nothing": ([NEXT, "--mtp-loss-scaling-factor 0"], "--mtp-loss-scaling-factor"),
    "a weight that is no number": ([NEXT, "--mtp-loss-scaling-factor high"], "--mtp-loss-scaling-factor"),
    "a number that is none": (["--mtp-num-layers two"], "--mtp-num-layers"),
    "several beside exchanges": (
        ["--mtp-num-layers 2", "--overlap-moe-expert-parallel-comm", BESIDE_EXCHANGES],
        "--overlap-moe-expert-parallel-comm",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("options", "field"), WRONG.values(), ids=WRONG)
def test_what_megatron_refuses(options, field):
    problems = megatron("--pipeline-model-parallel-size 2", *options).problems
    assert [(p.field, p.severity) for p in problems] == [(field, "error")]


@pytest.mark.parametrize(
    "fine",
    [["--hidden-size 64", f"{POSITIONS} rope"], ["--hidden-size 64", "--use-rotary-position-embeddings"]],
)
def test_rotary_positions_are_fine(fine):
    assert not megatron(NEXT, *fine).problems


def test_a_stage_of_their_own_is_read_with_a_warning():
    found = megatron(NEXT, "--pipeline-model-parallel-size 2", LAYOUT.format("Ettm|L"))
    assert [(p.field, p.severity) for p in found.problems] == [
        ("--pipeline-model-parallel-layout", "warning")
    ]
    assert found.value("stages") == (Stage(True, 2, False, 1), Stage(False, 0, True))


def test_bridge_s_layout_is_held_to_the_same_rules():
    fields = {
        "pipeline_model_parallel_size": 2,
        "pipeline_model_parallel_layout": '"Et|tL"',
        "mtp_num_layers": 1,
    }
    (problem,) = import_bridge(tree(model=fields)).problems
    assert problem.field == "model.pipeline_model_parallel_layout"
    assert "model.mtp_num_layers 1" in problem.rule


def test_what_a_plan_has_no_word_for_is_unread():
    unread = megatron(NEXT, "--mtp-use-repeated-layer", "--mtp-detach-heads").unread
    assert {one.key for one in unread} == {"--mtp-use-repeated-layer", "--mtp-detach-heads"}


@pytest.fixture
def sixty(tmp_path):
    """A model of 60 layers with two more, whose losses count 0.3."""
    asked = {"num_nextn_predict_layers": 2, "train_nextn_predict_layers": True, "num_hidden_layers": 60}
    path = tmp_path / "sixty.json"
    path.write_text(json.dumps({**load_config("deepseek-v3"), **asked}))
    return str(path)


def imported(model, *options):
    return import_text(" ".join(["pretrain_gpt.py", RUN, *options]), ImportRequest(model=model, on=ON))


TWO = "--mtp-num-layers 2 --mtp-loss-scaling-factor 0.3"


@pytest.mark.parametrize(
    ("options", "stages"),
    [
        ([], (("embed", "0..14"), ("15..29",), ("30..44",), ("45..61", "head"))),
        (
            ["--decoder-last-pipeline-num-layers 12"],
            (("embed", "0..15"), ("16..31",), ("32..47",), ("48..61", "head")),
        ),
        ([LAYOUT.format("Et*15|t*15|t*16|t*14mmL")], None),
    ],
)
def test_they_come_behind_the_last_stage(sixty, options, stages):
    found = imported(sixty, SIZES, TWO, *options)
    assert not found.problems
    written = getattr(found.plan.pipeline, "stages", None)
    assert written == (stages or (("embed", "0..14"), ("15..29",), ("30..45",), ("46..61", "head")))


def test_layers_of_virtual_stages_are_those_of_the_main_model(sixty):
    found = imported(sixty, SIZES, TWO, "--num-layers-per-virtual-pipeline-stage 5")
    assert not found.problems
    assert len(found.plan.pipeline.placement) == 12


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ("--mtp-num-layers 1 --mtp-loss-scaling-factor 0.3", "--mtp-num-layers", 1),
        ("--mtp-num-layers 2", "--mtp-loss-scaling-factor", 0.1),
        ("", "--mtp-num-layers", 0),
    ],
)
def test_a_model_that_asks_for_others_is_another_model(sixty, options, field, value):
    found = imported(sixty, SIZES, options)
    assert (field, value, "error") in {(p.field, p.value, p.severity) for p in found.problems}
    assert found.plan is None


def test_a_released_model_gets_them_in_a_file_beside_the_plan(tmp_path):
    layout = LAYOUT.format("Et*16|t*16|t*16|t*13mL")
    found = imported("deepseek-v3", SIZES.replace("60", "61"), NEXT, layout)
    assert [(p.field, p.severity) for p in found.problems] == [("--mtp-num-layers", "warning")]
    data = found.to_json("run")
    assert data["plan"]["model"] == "run-model.json"
    (tmp_path / "run-model.json").write_text(data["beside"]["run-model.json"])
    again = load_model(str(tmp_path / "run-model.json"))
    assert again.parameters == found.model.parameters > load_model("deepseek-v3").parameters
    assert (again.architecture.next_token_layers, again.architecture.next_token_weight) == (1, 0.1)


def test_a_kind_without_them_is_planned_without_and_that_is_said():
    layout = LAYOUT.format("Et*8|t*8|t*8|t*8mL")
    sizes = "--num-layers 32 --pipeline-model-parallel-size 4"
    found = imported("llama-3.1-8b", sizes, NEXT, layout)
    (problem,) = found.problems
    assert (problem.field, problem.severity) == ("--mtp-num-layers", "warning")
    assert "without" in problem.rule
    assert found.plan.model == "llama-3.1-8b"
    assert found.own_model is None
