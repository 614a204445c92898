"""Pipelines whose peers leave and join: seeded events, and three ways of routing micro-batches around lost peers."""
