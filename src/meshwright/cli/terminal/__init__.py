"""Standard output and error: JSON or text, files, progress, usage errors, exit codes."""
