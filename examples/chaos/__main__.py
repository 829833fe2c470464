"""``python -m examples.chaos``: see the package's text."""

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main())
