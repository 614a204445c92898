"""The page on serving plans: its plans are legal, its keys are those of the language, its table is printed."""

import re
from typing import get_args

from doc_pages import blocks, page
from serving_cases import serving

from meshwright.plans.files.strict_types import Strict
from meshwright.plans.serving.describe_serving import describe_serving
from meshwright.plans.serving.number_formats import KV_FORMATS, WEIGHT_FORMATS
from meshwright.plans.serving.resolve_serving import resolve_serving
from meshwright.plans.serving.serving_file import (
    BatchingSpec,
    ObjectivesSpec,
    PoolSpec,
    QuantiseSpec,
    ReplicaLayoutSpec,
    ServingFile,
    ServingWorkloadSpec,
)
from meshwright.plans.serving.serving_plan import AllReduce, Does, Overlap
from meshwright.present.serving_pools import serving_lines
from meshwright.stack.serving.serving_stack import ENGINES

NAME = "serving.md"


def test_the_plans_of_the_page_are_legal():
    texts = blocks(NAME, "yaml")
    assert len(texts) == 3
    assert [resolve_serving(serving(text)).warnings for text in texts] == [(), (), ()]


def test_the_table_of_pools_is_the_one_that_describe_prints():
    read = serving(blocks(NAME, "yaml")[0])
    lines = serving_lines(describe_serving(resolve_serving(read), read))
    assert blocks(NAME, "text")[0].splitlines() == [f"# {line}" for line in lines]


def test_the_page_names_every_key_and_every_value():
    table = page(NAME).partition("## Keys")[2].partition("## Laws")[0]
    keys = {
        f"{section}{name}"
        for section, kind in _SECTIONS.items()
        for name in kind.model_fields
        if f"{section}{name}" not in ("workload", "pools", "pools.NAME.batching", "pools.NAME.quantise")
    }
    named = set(re.findall(r"[\w.-]+", table))
    assert not keys - named
    values = {
        *ENGINES,
        *WEIGHT_FORMATS,
        *KV_FORMATS,
        *get_args(Does),
        *get_args(Overlap),
        *get_args(AllReduce),
    }
    words = {*ReplicaLayoutSpec.model_fields, *ObjectivesSpec.model_fields}
    assert not (values | words) - named


_SECTIONS: dict[str, type[Strict]] = {
    "": ServingFile,
    "workload.": ServingWorkloadSpec,
    "pools.NAME.": PoolSpec,
    "pools.NAME.batching.": BatchingSpec,
    "pools.NAME.quantise.": QuantiseSpec,
}


def test_the_defaults_of_the_page():
    table = page(NAME).partition("## Keys")[2]
    batching = BatchingSpec()
    for name in ("chunk_tokens", "block_tokens", "kv_fraction", "policy", "preempt"):
        (row,) = [line for line in table.splitlines() if line.startswith(f"| `pools.NAME.batching.{name}` ")]
        assert row.endswith(f"| `{getattr(batching, name)}` |")
