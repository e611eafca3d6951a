"""``python -m sidecar``: the same as the ``timewheel`` command."""

from sidecar.cli.main import main

main()
