"""The streams of a simulated step: compute, data-parallel exchanges, links, exchanges of a vocabulary, host copies.

A pipeline rank has one stream for its passes, one for its data-parallel exchanges, one per link that it sends on, one
per kind of exchange of a spread vocabulary and one per direction to and from the host, so that nothing overlaps on a
stream.
"""

from meshwright.program.program import Program, matching_receive, message_bytes
from meshwright.schedules.action import EXCHANGES, Action, Kind
from meshwright.schedules.activation_offload import COPIES
from meshwright.simulate.simulation_result import Record

COMPUTE, DATA_PARALLEL, FIRST_LINK = 0, 1, 2


def stream_names(program: Program, rank: int) -> dict[int, str]:
    """Return the streams of a pipeline rank: number and name."""
    links = {FIRST_LINK + other: f"send to rank {other}" for other in sorted(_send_targets(program, rank))}
    exchanges = {_channel(program, kind): kind for kind in EXCHANGES if program.shares}
    copies = {
        _channel(program, kind): f"{way} the host"
        for kind, way in zip(COPIES, ("to", "from"), strict=True)
        if any(program.offloaded_bytes)
    }
    return {COMPUTE: "compute", DATA_PARALLEL: "data-parallel"} | links | exchanges | copies


def stream_of(program: Program, record: Record) -> int:
    """Return the number of the stream on which an action ran."""
    if record.stream in ("exchange", "host"):
        return _channel(program, record.action.kind)
    if record.stream == "send":
        return FIRST_LINK + receiving_rank(program, record.action)
    return DATA_PARALLEL if record.stream == "data-parallel" else COMPUTE


def receiving_rank(program: Program, send: Action) -> int:
    """Return the pipeline rank that a message goes to."""
    stage = matching_receive(send).stage
    assert stage is not None
    return program.stages[stage].rank


def logical_bytes(program: Program, action: Action) -> int:
    """Return the bytes of a message or of what another exchange moves; 0 for compute."""
    if action.kind in ("SEND_F", "SEND_B"):
        return message_bytes(program, action)
    if action.kind in COPIES:
        assert action.stage is not None
        return program.offloaded_bytes[action.stage]
    exchanged = program.collectives.get((action.stage, action.kind), ())
    return sum(int(collective.logical_bytes) for collective in exchanged)


def _send_targets(program: Program, rank: int) -> set[int]:
    sends = (action for action in program.lists[rank] if action.kind in ("SEND_F", "SEND_B"))
    return {receiving_rank(program, send) for send in sends}


def _channel(program: Program, kind: Kind) -> int:
    return FIRST_LINK + program.pipeline_ranks + (*EXCHANGES, *COPIES).index(kind)
