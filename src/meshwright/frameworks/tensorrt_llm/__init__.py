"""Serving plans as commands and configuration files of TensorRT-LLM."""
