"""Serving plans as commands of SGLang."""
