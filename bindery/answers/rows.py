"""The type of the rows of a list, in a module of its own so that printing a table imports
little.
"""

from collections.abc import Mapping

Row = Mapping[str, object]
"""One row of a list, by the keys of its JSON form."""
