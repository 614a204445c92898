"""Plans whose sequences are packed with documents: told, or refused where documents would attend to each other."""

import pytest
from export_cases import case, problem_fields

PACKED = {"documents": (900, 4000)}


@pytest.mark.parametrize("target", ["megatron", "bridge"])
def test_pre_training_whose_documents_would_attend_to_each_other_is_refused(target: str) -> None:
    this = case(layout={"dp_shard": 16}, sharding="zero1", workload=PACKED)
    assert problem_fields(this, target) == {"workload.documents"}


@pytest.mark.parametrize("target", ["megatron", "bridge", "torchtitan", "deepspeed", "accelerate"])
def test_who_keeps_documents_apart_is_told(target: str) -> None:
    this = case(layout={"dp_shard": 16}, sharding="zero3", workload={**PACKED, "task": "sft"})
    told = {refusal.key: refusal for refusal in this.to(target).refused}
    assert told["workload.documents"].value == "[900, 4000]"


@pytest.mark.parametrize("target", ["deepspeed", "accelerate"])
def test_documents_over_which_a_state_would_go_on_are_refused(target: str) -> None:
    layout = {"dp_shard": 16}
    plain = case("minimax-text-01", layout=layout, sharding="zero3", gather="per-layer")
    assert plain.to(target).files
    packed = case(
        "minimax-text-01",
        layout=layout,
        sharding="zero3",
        gather="per-layer",
        workload={**PACKED, "task": "sft"},
    )
    assert problem_fields(packed, target) == {"workload.documents"}


def test_torchtitan_needs_no_word_for_it() -> None:
    plain, packed = (
        case(stack_name="torchtitan", sharding="zero3", workload=work).to("torchtitan")
        for work in ({}, PACKED)
    )
    assert packed.files == plain.files
    assert [refusal.key for refusal in packed.refused] == ["workload.documents"]
