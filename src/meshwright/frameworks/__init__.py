"""Training frameworks: reading their configuration files as plans, and writing plans as their files."""
