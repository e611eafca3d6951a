"""Destinations as a unit test has them."""

from connectors.contract import TopicNames
from sidecar.dispatch.outages import Outages
from sidecar.intake.copies import Copies


def no_outages() -> Outages:
    """All destinations take what is due for them."""
    return Outages(TopicNames(), lambda topic: {}, lambda: Copies(b""), lambda: 0)
