"""``python -m belay_core.cli`` is ``belay``."""

from belay_core.cli import main

main()
