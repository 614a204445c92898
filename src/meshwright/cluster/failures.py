"""How often nodes fail: published rates, for the few devices of which somebody said so.

Only a rate that was measured on the same device family is used; for every other device the answer is None.
The counts differ in what they hold (all interruptions, or device errors only): the table's notes say so.
"""

from meshwright.cluster.catalog import device_id
from meshwright.cluster.graph import Sourced
from meshwright.cluster.tables import read_table


def usual_failures(name: str) -> Sourced | None:
    """Failures per 1000 node-days of nodes with this device, with its source; None where nobody has said."""
    known = device_id(name)
    for row in read_table("reliability"):
        if known in row["usual_for"].split():
            source = f"{row['system']}, {row['devices']} devices: {row['source']} ({row['confidence']})"
            return Sourced(float(row["failures_per_1000_node_days"]), source, row["date"])
    return None
