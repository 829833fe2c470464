"""``python -m makegood`` is ``makegood``."""

from makegood.cli import main

if __name__ == "__main__":
    main()
