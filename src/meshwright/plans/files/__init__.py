"""Plan files and the files they name: YAML text, strict types, error messages."""
