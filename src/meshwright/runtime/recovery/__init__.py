"""Recovery from faults: restarts, plans for the devices that remain, runs with fewer replicas."""
