"""Join a run that is under way: take its options, and check that the plan and the data are the run's."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError, Problem
from meshwright.verbs.run.run_request import RunRequest

if TYPE_CHECKING:
    from meshwright.runtime.data.open_data import TrainingData
    from meshwright.runtime.recovery.members.rendezvous_store import ServerClient
    from meshwright.runtime.recovery.members.run_members import Shrinkable

OWN = ("output",)
"""Options of those who join; all others are the run's."""
NOT_SHARED = ("inject", "listen", "prometheus")
"""Options of the first command alone."""


def joined(request: RunRequest) -> tuple["ServerClient", RunRequest, Mapping[str, Any]]:
    """Return a connection to the run that a request joins, the request with its options, and its facts.

    Raises InputError for a wrong address or token, and for options that are the run's.
    """
    from meshwright.runtime.launch.network_address import network_address
    from meshwright.runtime.recovery.members.rendezvous_store import ServerClient
    from meshwright.runtime.recovery.members.run_token import token_to_join

    assert request.join is not None
    given = {
        **request.options,
        "precision": request.precision,
        "init": request.initial,
        "export": request.export,
    }
    problems = [
        Problem(name, str(value), "is an option of the run that is joined", "leave it out")
        for name, value in given.items()
        if name not in OWN and value is not None
    ]
    if problems:
        raise InputError(problems)
    address = network_address(request.join, "join")
    client = ServerClient(address, *token_to_join(request.output))
    facts = client.request("facts")
    options = {name: value for name, value in facts["options"].items() if name not in NOT_SHARED}
    options |= {
        "output": request.output,
        "data": tuple(options["data"]),
        **{name: Path(options[name]) for name in ("cache", "checkpoint_local") if options[name] is not None},
    }
    return client, replace(request, options=options, precision=facts["precision"]), facts


def check_same_run(
    join: str, facts: Mapping[str, Any], shrinkable: "Shrinkable", data: "TrainingData"
) -> None:
    """Raise InputError if the plan or the data are not those of the run."""
    problems = []
    own = json.loads(json.dumps(dict(data.identity)))
    problems += [
        Problem(f"data.{name}", own.get(name), f"the run has {value!r}", "the data of the run")
        for name, value in facts["data"].items()
        if own.get(name) != value
    ]
    if shrinkable.training_of(int(facts["begun_with"])).job.program.signature() != facts["program"]:
        rule = "the run has another plan"
        problems.append(Problem("join", join, rule, "the plan that the run began with"))
    if problems:
        raise InputError(problems)
