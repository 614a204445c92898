"""What the exporter writes, the importer reads as the same facts."""

from functools import cache

from export_cases import Case
from hugging_face_cases import written

from meshwright.frameworks.accelerate.exporting.exporter import export_accelerate
from meshwright.frameworks.accelerate.importing.importer import import_accelerate
from meshwright.frameworks.importing.imported_file import ImportedFile

PLANS = 60


@cache
def plans():
    """Plans with their files."""
    return list(written(export_accelerate, PLANS, seed=11))


def facts(foreign: ImportedFile) -> dict[str, object]:
    return {path: fact.value for path, fact in foreign.facts.items() if not path.startswith("stack")}


def said(this: Case) -> dict[str, object]:
    """What of a plan the file can say: not its batch and length. Two ways to keep parameters have one word."""
    layout, work = this.short.layout, this.short.workload
    expected: dict[str, object] = {"devices": this.cluster.devices, "workload.precision": work.precision}
    if layout.tp > 1:
        expected["layout.sequence_parallel"] = False
    if layout.dp_shard * layout.cp == 1 or this.short.sharding == "none":
        alone = {"layout.tp": layout.tp, "layout.dp_replicate": 1} if layout.tp > 1 else {}
        return expected | alone | {"sharding": "none"}
    kept = this.short.sharding == "zero2" or this.plan.gather == "per-micro-batch"
    expected |= {f"layout.{axis}": getattr(layout, axis) for axis in ("dp_replicate", "dp_shard", "cp", "tp")}
    expected |= {"sharding": "zero2" if kept else "zero3", "recompute": this.short.recompute}
    return expected if kept else expected | {"gather": "per-layer"}


def test_plans_come_back() -> None:
    for this, export in plans():
        foreign = import_accelerate(export.files["accelerate/config.yaml"])
        assert facts(foreign) == said(this)
        assert foreign.problems == ()
        named = {entry.key for entry in foreign.unread}
        kept = foreign.value("sharding") == "zero2"
        assert named == ({"fsdp_config.fsdp_reshard_after_forward"} if kept else set())


def test_the_plans_that_come_back_cover_what_the_target_can_say() -> None:
    cases = [this.short for this, _ in plans()]
    assert {this.layout.tp for this in cases} == {1, 2, 4}
    assert {this.layout.cp for this in cases} == {1, 2}
    assert {this.layout.dp_replicate for this in cases} == {1, 2}
    assert {this.sharding for this in cases} >= {"none", "zero2", "zero3"}
