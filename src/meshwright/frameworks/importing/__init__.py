"""Shared parts of all importers: read scripts and configurations, turn facts into a plan."""
