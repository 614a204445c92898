"""Search of serving plans: layouts of a replica, numbers of replicas, candidates in the order of their bounds."""
