"""Search of pools of replicas: designs, the load that one carries, numbers of replicas, one pool or two."""
