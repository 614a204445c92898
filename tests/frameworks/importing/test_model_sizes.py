"""Rules of frameworks on sizes that a file leaves to ``--model``, and sizes that say the same model in two ways."""

import pytest

from meshwright.frameworks.importing.imported_file import Fact, ImportedFile, OutsideFacts, completed
from meshwright.frameworks.importing.model_match import matching_zoo_models, sizes_of_model
from meshwright.model.load import load_model
from meshwright.model.zoo_names import same_sizes, zoo_names
from meshwright.verbs.import_ import ImportRequest, import_text

BATCH = "--seq-length 4096 --micro-batch-size 1 --global-batch-size 448 --bf16 --use-distributed-optimizer "
QWEN3 = (
    "--num-layers 48 --hidden-size 2048 --num-attention-heads 32 --group-query-attention --num-query-groups 4 "
    "--kv-channels 128 --num-experts 128 --moe-router-topk 8 --swiglu "
)
ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: MEGATRON_LM
num_processes: 56
mixed_precision: bf16
megatron_lm_config: {megatron_lm_tp_degree: 8, megatron_lm_pp_degree: 7}
"""


def errors(text, model, on="h100-sxm-80gb x 56"):
    found = import_text(text, ImportRequest(model=model, on=on, seq_len=4096)).problems
    return [(p.field, p.rule) for p in found if p.severity == "error"]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (
            f"pretrain_gpt.py {BATCH} --tensor-model-parallel-size 8 --pipeline-model-parallel-size 7",
            "--pipeline-model-parallel-size",
        ),
        (
            "model:\n  tensor_model_parallel_size: 8\n  pipeline_model_parallel_size: 7\n  seq_length: 4096\n",
            "model.pipeline_model_parallel_size",
        ),
        (ACCELERATE, "megatron_lm_config.megatron_lm_pp_degree"),
    ],
)
def test_layers_of_the_model_must_divide_over_stages(text, field):
    ((found, rule),) = errors(text, "llama-3.1-70b")
    assert found == field
    assert "mod 7 = 3, must be 0" in rule
    assert not errors(text.replace("7", "4"), "llama-3.1-70b", "h100-sxm-80gb x 64")


def test_an_own_number_of_layers_for_the_first_stage_makes_stages_of_the_model():
    text = f"pretrain_gpt.py {BATCH} --pipeline-model-parallel-size 7 --decoder-first-pipeline-num-layers "
    imported = import_text(text + "8", ImportRequest(model="llama-3.1-70b", on="h100-sxm-80gb x 56"))
    assert imported.plan.pipeline.stages[0] == ("embed", "0..7")
    assert errors(text + "9", "llama-3.1-70b")


def test_experts_of_the_model_are_spread_and_cut_as_megatron_does():
    text = f"pretrain_gpt.py {BATCH} --tensor-model-parallel-size 2 --expert-model-parallel-size "
    sequence = " --sequence-parallel"
    wanted = ImportRequest(model="qwen3-30b-a3b", on="h100-sxm-80gb x 32")
    assert import_text(text + "4" + sequence, wanted).plan.layout.etp == 2
    assert errors(text + "4", wanted.model, wanted.on)[0][0] == "--sequence-parallel"
    assert errors(text + "3" + sequence, wanted.model, wanted.on)[0][0] == "--expert-model-parallel-size"


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", None])
def test_a_width_that_no_layer_has_may_stand_beside_the_experts(model):
    text = f"pretrain_gpt.py {BATCH}{QWEN3}--ffn-hidden-size 6144 --moe-ffn-hidden-size 768"
    imported = import_text(text, ImportRequest(model=model, on="h100-sxm-80gb x 8"))
    assert imported.plan.model == "qwen3-30b-a3b"
    assert [field for field, _ in errors(text.replace("768", "1536"), "qwen3-30b-a3b")] == [
        "--moe-ffn-hidden-size"
    ]


def test_one_width_is_that_of_the_experts():
    text = f"pretrain_gpt.py {BATCH}{QWEN3}--ffn-hidden-size 6144"
    assert [field for field, _ in errors(text, "qwen3-30b-a3b")] == ["--ffn-hidden-size"]
    assert not errors(text.replace("6144", "768"), "qwen3-30b-a3b")


def test_a_described_model_without_experts_gets_none():
    sizes = {"model.layers": Fact(4, "--model"), "model.experts": Fact(8, "--model")}
    outside = OutsideFacts(sizes)
    told = {"model.hidden": Fact(64, "--hidden-size 64"), "model.heads": Fact(4, "--num-attention-heads 4")}
    assert set(completed(told, outside)) == {"model.layers", *told}
    assert set(completed({}, outside)) == set(sizes)
    assert completed({"model.layers": Fact(2, "--num-layers 2")}, outside)["model.layers"].value == 2


def test_of_models_with_the_same_sizes_one_stands_for_all():
    graphs = {name: load_model(name).architecture for name in zoo_names()}
    for name, arch in graphs.items():
        found = matching_zoo_models(ImportedFile(source="file", release="", facts=sizes_of_model(arch)))
        if arch.encoder is None:
            assert found == [same_sizes().get(name, name)]
        else:
            assert all(graphs[other].encoder is None for other in found)
