"""``python -m orbitgp`` is the command line."""

from orbitgp.cli import main

if __name__ == "__main__":
    main()
