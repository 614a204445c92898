"""``plan --keep`` and ``--forbid``: sets of operators, orders, sequences; and what is wrong with them."""

import json

import pytest
from command_runs import refused, run
from encoder_cases import CONFIGS

QUESTION = ("plan", "llama-3.1-8b", "--on", "h100-sxm-80gb x 16", "--seq-len", "4096", "--global-batch", "64")


def best(*options):
    done = run(*QUESTION, "--top", "1", *options, "--json")
    assert done.code == 0, done.err
    return done.data


def test_a_set_of_operators_an_order_and_whole_sequences_are_kept():
    order = "tp,cp,pp,dp_shard,dp_replicate"
    keep = ["recompute=mlp,layernorm", f"rank_order={order}", "sequence_parallel=false", "pp=2", "tp=2"]
    plan = best(*(word for text in keep for word in ("--keep", text)))["plans"][0]["plan"]
    assert set(plan["recompute"]) == {"layernorm", "mlp"}
    assert plan["layout"]["rank_order"] == order.split(",")
    assert plan["layout"]["sequence_parallel"] is False


@pytest.mark.slow
def test_what_is_forbidden_is_in_no_plan_and_counted():
    first = best()["plans"][0]["plan"]
    tp, sharding = first["layout"]["tp"], first["sharding"]
    data = best("--keep", "cp=1", "--forbid", f"tp={tp}", "--forbid", f"sharding={sharding}")
    other = data["plans"][0]["plan"]
    assert other["layout"]["tp"] != tp
    assert other["sharding"] != sharding
    assert data["rejected"][f"tp = {tp}, as asked"] > 0


def test_documents_are_in_the_plan_and_make_it_quicker():
    question = ("--stack", "generic", "--keep", "cp=2", "--keep", "pp=1", "--keep", "sharding=zero1")
    whole, packed = (best(*question, *words)["plans"][0] for words in ((), ("--documents", "900, 60")))
    assert packed["plan"]["workload"]["documents"] == [900, 60]
    assert packed["predict"]["step_time_s"] < whole["predict"]["step_time_s"]


@pytest.mark.parametrize("said", ["900,x", "", "0", "-1", "9" * 30, "1.5"])
def test_lengths_of_documents_that_are_none_are_refused(said):
    done = run(*QUESTION, "--documents", said)
    assert done.code == 2
    assert "workload.documents" in done.err


@pytest.mark.parametrize(
    ("name", "option", "said", "workload"),
    [
        ("t5", "--encoder-tokens", "1k", {"encoder_tokens": 1024}),
        ("vl", "--images", "2 x 1024", {"images": {"per_sequence": 2, "tokens": 1024}}),
    ],
)
def test_inputs_of_encoders_are_in_the_plan(name, option, said, workload, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIGS[name]), encoding="utf-8")
    question = (
        "plan",
        file,
        *QUESTION[2:],
        "--stack",
        "generic",
        "--keep",
        "pp=1",
        "--keep",
        "sharding=zero1",
    )
    done = run(*question, option, said, "--top", "1", "--json")
    assert done.code == 0, done.err
    found = done.data["plans"][0]["plan"]["workload"]
    assert {key: found[key] for key in workload} == workload
    without = run(*question)
    assert without.code == 2
    assert f"{option} " in without.err


@pytest.mark.parametrize("said", ["2", "2x", "x1024", "2x3x4", "-1x4", "1.5x4", "", "2xmany"])
def test_images_that_are_no_two_numbers_are_refused(said):
    done = run(*QUESTION, "--images", said)
    assert done.code == 2
    assert "workload.images" in done.err


@pytest.mark.parametrize(
    ("option", "field", "hint"),
    [
        ("--forbid tp=big", "forbid.tp", "tp=8"),
        ("--forbid memory_limit=1", "forbid", ""),
        ("--keep in_flight=0", "keep.in_flight", "in_flight=8"),
        ("--keep recompute=mpl", "keep.recompute", "mlp"),
        ("--keep rank_order=tp,cp,pp", "keep.rank_order", "tp,cp,dp_shard,dp_replicate,pp"),
        ("--keep sequence_parallel=perhaps", "keep.sequence_parallel", "true"),
    ],
)
def test_a_wrong_wish_is_named_with_what_would_do(option, field, hint):
    text = refused(*QUESTION, *option.split())
    assert field in text
    assert hint in text


def test_all_wrong_wishes_are_told_at_once():
    text = refused(*QUESTION, "--keep", "tp=0", "--forbid", "speed=1", "--forbid", "ep=no")
    assert all(field in text for field in ("keep.tp", "speed=1", "forbid.ep"))
