"""A live cluster as a scenario: `bindery.scenario.objects` in the other direction.

`cluster` puts the scenario together from the parts that the other modules return. All are pure.
"""

from bindery.scenario.capture.cluster import capture

__all__ = ["capture"]
