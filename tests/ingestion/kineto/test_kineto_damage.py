import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_events import COMPUTE, collective, event, kernel, step, trace_text, written

from meshwright.errors import InputError
from meshwright.ingestion.kineto import event_stream
from meshwright.ingestion.kineto.collective_axes import OTHER
from meshwright.ingestion.kineto.event_stream import stream_trace
from meshwright.ingestion.kineto.rank_trace import read_trace
from meshwright.ingestion.kineto.trace_breakdown import read_kineto

TRACES = Path(__file__).parent / "traces"
GOOD = [*step(1, 0, 100), *kernel(COMPUTE, 0, 80, launch=0)]


def refused(path, content):
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_kineto(path)
    return error.value.problems


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_packed_and_plain_are_the_same(tmp_path, name):
    assert read_kineto(written(tmp_path, GOOD, name)).seconds["compute"] == pytest.approx(80e-6)


def test_the_array_alone_and_a_byte_order_mark_are_read(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode())
    assert read_kineto(path).seconds["compute"] == pytest.approx(80e-6)


def test_values_are_whole_wherever_the_file_is_cut_into_pieces(tmp_path, monkeypatch):
    path = written(tmp_path, GOOD, world=12345678, text="\\u00e9 \\n é", nested=[[1.5e3], {"a": None}])
    whole = list(stream_trace(path))
    for size in (1, 2, 3, 7, 64):
        monkeypatch.setattr(event_stream, "CHUNK", size)
        assert list(stream_trace(path)) == whole
    assert ("world", 12345678) in whole


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("packed", [True, False])
def test_truncated_files_are_refused(tmp_path, share, packed):
    sample = (TRACES / "mi250_one_rank.json.gz").read_bytes()
    content = sample if packed else gzip.decompress(sample)
    assert refused(tmp_path / "trace", content[: int(len(content) * share)])


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "expected {"),
        (b"not json at all", "expected {"),
        (bytes(range(256)) * 40, "expected {"),
        (b"\x1f\x8b" + bytes(range(256)), "gzip"),
        (b"{}", "no traceEvents"),
        (b'{"traceEvents": []}', "no traceEvents"),
        (b'{"traceEvents": {}}', "expected ["),
        (b'{"traceEvents": 3}', "expected ["),
        (b'{"traceEvents": [] "more": 1}', "expected ,"),
        (b'{"traceEvents": []} trailing', "after its end"),
        (b'{"traceEvents": [{"ph": "X",}]}', "JSON"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "cannot be read"),
        (
            b'{"traceEvents": [{"ph": "X", "cat": "user_annotation", "name": "a", "ts": 1, "dur": 1}]}',
            "no kernel",
        ),
    ],
)
def test_damage_is_named(tmp_path, content, rule):
    problems = refused(tmp_path / "trace.json", content)
    assert rule in problems[0].rule
    assert problems[0].field == "trace"


def test_files_that_are_none_are_refused(tmp_path):
    for path in (tmp_path / "absent.json", tmp_path, "bad\0name"):
        with pytest.raises(InputError):
            read_kineto(path)


def test_a_file_that_is_too_large_is_refused_before_it_is_read_to_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(event_stream, "MAX_BYTES", 10_000)
    bomb = gzip.compress(trace_text(GOOD * 500).encode())
    assert "too large" in refused(tmp_path / "trace.json.gz", bomb)[0].rule


def test_a_value_that_never_ends_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(event_stream, "MAX_VALUE", 1000)
    monkeypatch.setattr(event_stream, "CHUNK", 500)
    assert refused(tmp_path / "trace.json", b'{"a": "' + b"x" * 100_000)


def test_all_wrong_types_are_listed(tmp_path):
    wrong = [
        event("kernel", COMPUTE, "0", 1, 0, 7),
        event("kernel", COMPUTE, 0, -1, 0, 7),
        event("kernel", COMPUTE, 0, True, 0, 7),
        event("kernel", COMPUTE, 1e300, 0, 0, 7),
        event("kernel", 5, 0, 1, 0, 7),
        event("kernel", COMPUTE, 0, 1, 0, 7, ["args"]),
        "an event",
    ]
    problems = refused(tmp_path / "trace.json", trace_text([*GOOD, *wrong]).encode())
    fields = [problem.field.partition(".")[2] for problem in problems]
    assert fields == ["ts", "dur", "dur", "ts", "name", "args", ""]
    assert problems[0].field == f"traceEvents[{len(GOOD)}].ts"


def test_a_file_of_nothing_but_errors_stops_early(tmp_path):
    problems = refused(tmp_path / "trace.json", trace_text(["x"] * 10_000).encode())
    assert len(problems) < 50


def test_odd_headers_and_arguments_are_passed_over(tmp_path):
    said = collective("allreduce", "8", description=7) | {"Process Group Ranks": {"a": 1}}
    events = [*step(1, 0, 100), *kernel("ncclDevKernel_AllReduce", 0, 80, launch=0, **said)]
    events += [*step("9" * 5000, 0, 1), event("kernel", "k", 0, 1, [], {}, {"correlation": 2**80})]
    header = {"distributedInfo": [1], "deviceProperties": {"name": 1}}
    found = read_kineto(written(tmp_path, events, **header), {"tp": [[0, 1]]})
    assert (found.rank, found.device, found.seconds[OTHER] > 0) == (None, "", True)
    world = {"rank": "3", "world_size": 2.5, "pg_config": [{"pg_name": "0", "ranks": [0, 1, "x"]}, 5]}
    trace = read_trace(written(tmp_path, events, distributedInfo=world))
    assert (trace.rank, trace.world_size) == (3, None)
    assert trace.collectives[0].ranks == (0, 1)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("ph", "cat", "name", "ts", "dur", "pid", "tid", "args")


@settings(max_examples=150, deadline=None)
@given(key=st.sampled_from(KEYS), value=JSON_VALUES, which=st.integers(0, 2))
def test_any_value_in_any_place_is_read_or_refused(tmp_path_factory, key, value, which):
    events = [dict(entry) for entry in GOOD]
    events[which][key] = value
    try:
        found = read_kineto(written(tmp_path_factory.mktemp("t"), events))
    except InputError:
        return
    assert sum(found.seconds.values()) == pytest.approx(found.step_s)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_byte_may_be_wrong(tmp_path_factory, data):
    content = bytearray((TRACES / "gloo_rank_34_of_300_cut.json.gz").read_bytes())
    plain = bytearray(gzip.decompress(bytes(content)))
    chosen = data.draw(st.sampled_from([content, plain]))
    chosen[data.draw(st.integers(0, len(chosen) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("t") / "trace"
    path.write_bytes(bytes(chosen))
    try:
        found = read_kineto(path)
    except InputError:
        return
    assert sum(found.seconds.values()) == pytest.approx(found.step_s)
