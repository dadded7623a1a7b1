"""`python -m training`, for launchers that start a module: the same as `lattemix-train`."""

from training.cli import main

main()
