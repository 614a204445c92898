"""Search of serving plans: layouts of a replica, the load that it carries, replicas and pools."""
