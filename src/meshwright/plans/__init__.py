"""The plan: short form for people, long form for code, and the laws that both must keep."""
