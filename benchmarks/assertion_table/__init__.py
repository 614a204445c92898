"""Assertions of the frameworks' argument checks: read from their sources, with our answer to each."""
