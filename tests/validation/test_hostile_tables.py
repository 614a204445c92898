"""Whatever a table says, the verb answers: a prediction or a reason for every row, never a traceback or a NaN."""

import json
from contextlib import suppress

from example_run_tables import COLUMNS, GOOD, row, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.validation.validate_runs import validate_runs

NUMBERS = ("0", "1", "2", "3", "7", "64", "4096", "65536", "1048576", "1e6", "16777216", "134217728", "1e18")
WORDS = (
    "",
    "nan",
    "-1",
    "x" * 300,
    '"',
    "true",
    "swiglu",
    "mla",
    "oom",
    "zero3",
    "full",
    "fsdp",
    "moe_act",
    "é\u2028",
)
NAMES = (
    "deepseek-v3",
    "gpt-oss-120b",
    "gemma-2-9b",
    "llama-3.1-8b",
    "b200",
    "GB300",
    "MI300X",
    "nvfp4",
    "fp8",
)
SCHEDULES = ("gpipe", "interleaved-1f1b", "zb-2p", "1f1b+vocab-1", "dualpipev", "torchtitan", "llm-foundry")
cells = st.sampled_from(NUMBERS + WORDS + NAMES + SCHEDULES)
changes = st.dictionaries(
    st.sampled_from([c for c in COLUMNS if c not in ("run_id", "source")]), cells, max_size=6
)
tables = settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


@tables
@given(st.lists(changes, min_size=1, max_size=4))
def test_every_row_has_an_answer(table, rows):
    found = validate_runs(write(table, [row(**change) for change in rows]))
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert len(data["rows"]) + len(data["skipped"]) == len(rows)
    for entry in data["rows"]:
        assert entry["predicted_step_time_s"] > 0
        assert entry["predicted_memory_gib"] > 0
    assert all(entry["reason"] for entry in data["skipped"])


@tables
@given(
    st.lists(
        st.fixed_dictionaries(
            {}, optional=dict.fromkeys(("layers", "hidden", "heads", "pp", "tp"), st.sampled_from(NUMBERS))
        ),
        max_size=3,
    ),
    st.integers(0, 2000),
    st.binary(max_size=6),
)
def test_bytes_anywhere(table, rows, place, junk):
    write(table, [row(**change) for change in rows] + [GOOD])
    content = table.read_bytes()
    table.write_bytes(content[:place] + junk + content[place:])
    with suppress(InputError):
        json.dumps(validate_runs(table).to_json(), allow_nan=False)
