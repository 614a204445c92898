import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import long_plan, long_plans, short_plan, short_plans
from serving_cases import TEXTS

from meshwright.errors import InputError
from meshwright.plans.files.plan_file import dump_plan, load_any_plan, load_plan, parse_any_plan, parse_plan
from meshwright.plans.files.yaml_text import MAX_BYTES, read_file

TEXT = """\
plan: 1
model: llama-3.1-70b
cluster: h100-sxm-80gb x 64
workload: {task: pretrain, seq_len: 8192, global_batch: 512, precision: bf16}
stack: megatron-core@0.19
layout: {pp: 4, dp_replicate: 1, dp_shard: 8, cp: 1, tp: 2, ep: 1, etp: 1, sequence_parallel: true}
sharding: zero1                # none | zero1 | zero2 | zero3
pipeline: {schedule: interleaved-1f1b, micro_batch: 1, virtual_stages: 2}
recompute: selective
"""
LONG_TEXT = """\
plan: 1
model: m
cluster: c
workload: {seq_len: 8, global_batch: 8}
stack: s
layouts: {f: {order: [tp, cp, dp_shard, dp_replicate, pp]}}
layers: {embed: {layout: f}, 0..3: {layout: f}, 4: {layout: f}, head: {layout: f, recompute: full}}
pipeline: {placement: [0], stages: [[embed, 0..3, 4, head]], schedule: {name: 1f1b}}
edges: [{from: a, to: b, carry: weights}]
"""


def problems_of(text: str) -> dict[str, str]:
    with pytest.raises(InputError) as caught:
        parse_plan(text, "p.yaml")
    return {problem.field: f"{problem.rule} | {problem.suggestion}" for problem in caught.value.problems}


@settings(max_examples=60, deadline=None)
@given(short_plans())
def test_a_short_plan_survives_its_file(plan):
    assert parse_plan(dump_plan(plan)) == plan


@settings(max_examples=36, deadline=None)
@given(long_plans())
def test_a_long_plan_survives_its_file(plan):
    assert parse_plan(dump_plan(plan)) == plan


def test_the_documented_short_plan_reads_as_written():
    plan = parse_plan(TEXT)
    assert (plan.layout.pp, plan.layout.dp_shard, plan.layout.tp) == (4, 8, 2)
    assert (plan.sharding, plan.recompute, plan.pipeline.virtual_stages) == ("zero1", "selective", 2)
    assert plan.layout.rank_order == ("tp", "cp", "dp_shard", "dp_replicate", "pp")


def test_a_long_plan_takes_single_layers_as_bare_numbers():
    plan = parse_plan(LONG_TEXT)
    assert list(plan.layers) == ["embed", "0..3", "4", "head"]
    assert plan.pipeline.stages == (("embed", "0..3", "4", "head"),)
    assert plan.edges[0].source == "a"


def test_the_written_order_is_the_documented_one_and_defaults_are_visible():
    text = dump_plan(parse_plan(TEXT))
    first, *keys, last = [line.split(":")[0] for line in text.splitlines()]
    expected = "plan model cluster workload stack layout sharding pipeline recompute"
    assert keys == expected.split()
    assert (first, last) == ("# written by meshwright", "...")
    assert "optimizer: adamw" in text
    assert "rank_order: [tp, cp, dp_shard, dp_replicate, pp]" in text


def test_notes_become_comments_and_change_nothing_else():
    plan = parse_plan(TEXT)
    notes = {
        "layout": "whole layout",
        "layout.tp": "largest degree\ninside a domain",
        "sharding": "fits",
        "pipeline": "small bubble",
    }
    text = dump_plan(plan, notes)
    assert "  tp: 2 # largest degree inside a domain\n" in text
    assert "# whole layout\nlayout:\n" in text
    assert "sharding: zero1 # fits\n" in text
    assert "virtual_stages: 2} # small bubble\n" in text
    assert parse_plan(text) == plan


def test_notes_on_a_long_plan():
    plan = long_plan()
    text = dump_plan(plan, {"layouts.main.grid.tp": "why", "layers.0..15": "all of them"})
    assert "tp: 2 # why\n" in text
    assert "recompute: none} # all of them\n" in text
    assert parse_plan(text) == plan


def test_every_problem_comes_at_once_with_its_place_rule_and_suggestion():
    text = TEXT.replace("tp: 2", "tp: '2'").replace("micro_batch: 1", "micro_batch: 0")
    text = text.replace("selective", "[mlp, mop]").replace("zero1 ", "zero4 ") + "modle: 3\ntp: 3\n"
    assert problems_of(text) == {
        "layout.tp": "must be a whole number | write 2",
        "pipeline.micro_batch": "must be at least 1 | write 1",
        "recompute.1": "must be 'core_attn', 'layernorm', 'mlp', 'moe', 'moe_act', 'mla_up_proj' or "
        "'shared_experts' | did you mean moe or mlp?",
        "sharding": "must be 'none', 'zero1', 'zero2' or 'zero3' | did you mean zero3 or zero2 or zero1?",
        "modle": "unknown key | did you mean model?",
        "tp": "unknown key | did you mean layout.tp?",
    }


@pytest.mark.parametrize(
    ("old", "new", "field", "expected"),
    [
        ("plan: 1", "plan: true", "plan", "must be a whole number"),
        ("plan: 1", "plan: 2", "plan", "must be at most 1"),
        ("plan: 1\n", "", "plan", "is required | add `plan: 1`"),
        ("pp: 4", "pp: 4.0", "layout.pp", "must be a whole number | write 4"),
        ("pp: 4", "pp: 99999999999999999999", "layout.pp", "must be at most 1048576"),
        ("pp: 4", "pp: -1", "layout.pp", "must be at least 1"),
        ("sequence_parallel: true", "sequence_parallel: yes", "layout.sequence_parallel", "write true"),
        ("selective", "[]", "recompute", "must not be empty"),
        ("selective", "half", "recompute", "must be 'none', 'selective' or 'full'"),
        ("model: llama-3.1-70b", "model: 70", "model", "must be text"),
        ("workload: {", "workload: 3 #", "workload", "must be a mapping"),
        ("seq_len: 8192, ", "", "workload.seq_len", "is required | add `seq_len: 8192`"),
        ("seq_len: 8192", "<name>: 8192", "workload.<name>", "unknown key"),
    ],
)
def test_single_mistakes(old, new, field, expected):
    assert old in TEXT
    assert expected in problems_of(TEXT.replace(old, new))[field]


@pytest.mark.parametrize(
    ("old", "new", "field", "expected"),
    [
        ("order: [tp", "grid: {tpp: 3}, order: [tp", "layouts.f.grid.tpp", "did you mean tp?"),
        ("order: [tp", "experts: {ee: 3}, order: [tp", "layouts.f.experts.ee", "did you mean ep?"),
        ("placement: [0]", "placement: []", "pipeline.placement", "must not be empty"),
        ("placement: [0]", "placement: [-1]", "pipeline.placement.0", "must be at least 0"),
        ("name: 1f1b", "nam: 1f1b", "pipeline.schedule.nam", "did you mean name?"),
        ("name: 1f1b", "memory_limit: 0", "pipeline.schedule.memory_limit", "must be more than 0"),
        ("from: a", "form: a", "edges.0.form", "did you mean from?"),
        ("stages: [[embed, 0..3, 4, head]]", "stages: even", "pipeline.stages", "must be 'balanced'"),
        ("0..3, 4, head]]", "0..3, true]]", "pipeline.stages.0.2", "must be text"),
        ("layouts:", "layout: {}\nlayouts:", "p.yaml", "a plan has one of them"),
        ("layouts:", "#", "layout", "is required"),
    ],
)
def test_single_mistakes_of_the_long_form(old, new, field, expected):
    assert old in LONG_TEXT
    assert expected in problems_of(LONG_TEXT.replace(old, new))[field]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("- 1", "must be a mapping"),
        ("just text", "must be a mapping"),
        ("a: &x [1]\nb: *x", "anchors and aliases"),
        ("a: !!binary aaaa", "tags are not used"),
        ("!!python/object:os.system {a: 1}", "tags are not used"),
        ("a: 2020-01-01", "must be text, a number"),
        ("model: a\nmodel: b", "duplicate key"),
        ("5: a\n'5': b", "duplicate key"),
        ("[" * 90000, "maximum depth"),
        ("a: 0x" + "f" * 5000, "more than 40 digits"),
        ("? [1]\n: 2", "a key must be text"),
        ("a: 1\n---\nb: 2", "another document"),
        ('a: "\\ud800"', "printable text"),
        ("a: |\n  two\n  lines\n", "printable text"),
        ("\ta: 1", "cannot start any token"),
        ("a: b: c", "line 1, column 5"),
        ("a: " + "x" * MAX_BYTES, "more than"),
    ],
)
def test_what_is_no_plan_text_is_refused(text, expected):
    assert expected in problems_of(text)["p.yaml"]


def test_numbers_that_are_not_finite_are_refused_with_their_key():
    assert "must be finite" in problems_of("plan: .inf")["p.yaml: plan"]


def test_a_file_of_the_largest_size_is_read(tmp_path):
    largest = tmp_path / "largest"
    largest.write_bytes(b"#" * MAX_BYTES)
    assert len(read_file(largest, "plan", "")) == MAX_BYTES


def test_unreadable_paths_are_refused(tmp_path):
    binary, large = tmp_path / "binary", tmp_path / "large"
    binary.write_bytes(b"\x7fELF\xff\xfe")
    large.write_bytes(b"#" * (MAX_BYTES + 1))
    cases = {
        tmp_path / "absent.yaml": "No such file",
        tmp_path: "directory",
        "\0": "null byte",
        binary: "is not text",
        large: "too large",
    }
    for path, expected in cases.items():
        with pytest.raises(InputError, match=expected):
            load_plan(path)


def test_a_file_is_read_whatever_its_byte_order_mark(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert load_plan(path) == parse_plan(TEXT)


MUTATIONS = ("drop", "number", "type", "insert", "truncate", "noise", "swap")


def mutated(text: str, kind: str, seed: int) -> bytes:
    dice = random.Random(seed)
    lines = text.splitlines(keepends=True)
    at = dice.randrange(len(lines))
    place = dice.randrange(len(text))
    values = (
        "-1",
        "1e999",
        "10000000000000000000000",
        "null",
        "{}",
        "[]",
        "true",
        "'4'",
        "~",
        "0x1F",
        ".nan",
        "",
    )
    words = text.split(": ")
    match kind:
        case "drop":
            lines.pop(at)
        case "number" | "type":
            word = dice.randrange(1, len(words))
            words[word] = dice.choice(values) + words[word].lstrip("0123456789abcdefghijklmnopqrstuvwxyz-")
            lines = [": ".join(words)]
        case "insert":
            lines.insert(
                at, dice.choice(("tpp: 3\n", "? x\n", "  a: 1\n", "- b\n", "<<: {a: 1}\n", "\t\n", "!x y\n"))
            )
        case "truncate":
            lines = [text[:place]]
        case "noise":
            noise = bytes(dice.randrange(256) for _ in range(dice.randrange(1, 6)))
            return text[:place].encode() + noise + text[place:].encode()
        case "swap":
            other = dice.randrange(len(text))
            first, second = sorted((place, other))
            lines = [text[:first], text[second:], text[first:second]]
    return "".join(lines).encode()


def loaded(path):
    try:
        return load_any_plan(path)
    except InputError as error:
        return error


@settings(max_examples=150, deadline=None)
@given(
    text=st.sampled_from((TEXT, LONG_TEXT, dump_plan(short_plan()), dump_plan(long_plan()), *TEXTS)),
    kinds=st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
)
def test_a_damaged_file_gives_a_plan_or_problems_and_nothing_else(tmp_path_factory, text, kinds, seed):
    path = tmp_path_factory.mktemp("damaged") / "plan.yaml"
    raw = text.encode()
    for step, kind in enumerate(kinds):
        readable = raw.decode("utf-8", errors="replace")
        raw = mutated(readable, kind, seed + step) if len(readable) > 1 and ": " in readable else raw
    path.write_bytes(raw)
    outcome = loaded(path)
    if isinstance(outcome, InputError):
        assert outcome.problems
        assert all(problem.rule and problem.to_json() for problem in outcome.problems)
    else:
        assert parse_any_plan(dump_plan(outcome)) == outcome
