"""Laws of serving plans: degrees of a replica, devices of all pools, hand-overs, limits of a batch."""
