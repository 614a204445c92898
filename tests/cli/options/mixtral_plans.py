"""A question on a model with experts that few plans answer: Mixtral 8x7B with ep = 8 on 32 H100."""

from command_runs import run

QUESTION = ("plan", "mixtral-8x7b", "--on", "h100-sxm-80gb x 32", "--seq-len", "4096", "--global-batch", "64")
KEPT = ("ep=8", "etp=1", "micro_batch=1", "tp=1", "cp=1", "sharding=zero1")


def best(*options):
    """The best plan, with its prediction, as ``plan --json`` has it."""
    keep = [word for choice in KEPT for word in ("--keep", choice)]
    done = run(*QUESTION, *keep, "--top", "1", "--json", *options)
    assert done.code == 0, done.err
    return done.data["plans"][0]
