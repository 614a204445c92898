"""The verb ``probe``: short jobs whose logs calibrate a cluster."""
