import pytest

from meshwright.api import plan
from meshwright.plans.forms.short import AdapterSpec


@pytest.mark.parametrize(
    ("adapter", "stack", "starts"),
    [
        (None, "generic", "no export takes adapters of fused matrices"),
        (AdapterSpec(), "megatron-bridge", "only export --to bridge or accelerate takes"),
        (AdapterSpec(base="nf4"), "generic", "only export --to accelerate takes"),
        (AdapterSpec(form="hd-pissa", rank=4), "generic", "no export takes"),
    ],
    ids=str,
)
def test_plan_says_at_once_which_exports_cannot_take_the_adapters(adapter, stack, starts):
    found = plan(
        "llama-3.2-1b",
        on="h100-sxm-80gb x 2",
        seq_len=512,
        global_batch=4,
        stack=stack,
        task="lora",
        adapter=adapter,
        keep=["tp=1", "cp=1", "pp=1", "micro_batch=1", "recompute=none"],
        top=1,
    )
    remarks = found.proposals[0].report.remarks
    assert any(remark.startswith(starts) for remark in remarks), remarks
