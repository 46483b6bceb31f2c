"""`python -m pliant` is the `pliant` command."""

import sys

from pliant.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
