"""What the exporter writes, the importer reads as the same facts."""

import json
from functools import cache

from export_cases import Case
from hugging_face_cases import written

from meshwright.frameworks.deepspeed.exporting.exporter import export_deepspeed
from meshwright.frameworks.deepspeed.importing.importer import import_deepspeed
from meshwright.frameworks.importing.imported_file import ImportedFile

PLANS = 80


@cache
def plans():
    """Plans with their files."""
    return list(written(export_deepspeed, PLANS, seed=11))


def facts(foreign: ImportedFile) -> dict[str, object]:
    return {path: fact.value for path, fact in foreign.facts.items() if not path.startswith("stack")}


def said(this: Case) -> dict[str, object]:
    """What of a plan the file can say: not its length, its recomputation or, but for its micro-batches, its batch
    where tp > 1."""
    layout, work = this.short.layout, this.short.workload
    dp, micro_batch = layout.dp_replicate * layout.dp_shard, this.short.pipeline.micro_batch
    sharding = this.short.sharding if layout.dp_shard > 1 else "none"
    expected: dict[str, object] = {
        "pipeline.micro_batch": micro_batch,
        "accumulation": work.global_batch // (dp * micro_batch),
        "sharding": sharding,
        "workload.precision": work.precision,
    }
    if layout.tp == 1:
        expected |= {"workload.global_batch": work.global_batch}
    else:
        expected |= {"layout.tp": layout.tp, "layout.sequence_parallel": False}
    if layout.ep > 1:
        expected |= {"layout.ep": layout.ep, "layout.etp": 1}
    if sharding != "none":
        expected["layout.dp_replicate"] = 1
    if sharding == "zero3":
        expected["gather"] = "per-layer"
    return expected


def test_plans_come_back() -> None:
    for this, export in plans():
        foreign = import_deepspeed(export.files["deepspeed/ds_config.json"])
        assert facts(foreign) == said(this)
        assert (foreign.unread, foreign.problems) == ((), ())


def test_the_plans_that_come_back_cover_what_the_target_can_say() -> None:
    cases = [this.short for this, _ in plans()]
    assert {this.layout.tp for this in cases} == {1, 2, 4}
    assert {this.layout.ep for this in cases} >= {1, 2, 4}
    assert {this.sharding for this in cases} == {"none", "zero1", "zero2", "zero3"}


def test_a_changed_number_is_seen() -> None:
    """The batch of one file under the degrees of another does not pass."""
    for this, export in written(export_deepspeed, 20, seed=12):
        data = json.loads(export.files["deepspeed/ds_config.json"])
        data["gradient_accumulation_steps"] += 1
        assert facts(import_deepspeed(json.dumps(data))) != said(this)
