"""``python -m elman``: the command line, where a Python is named and not a program."""

from elman.cli.main import run

if __name__ == "__main__":
    run()
