"""Run the command line as ``python -m meshwright``."""

from meshwright.cli.main import main

if __name__ == "__main__":
    main()
