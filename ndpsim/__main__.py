"""``python -m ndpsim`` is ``ndpsim``."""

from ndpsim.cli.main import main

main()
