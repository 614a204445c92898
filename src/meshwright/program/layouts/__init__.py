"""Rank meshes, tensor layouts, re-sharding, and hops between nodes."""
