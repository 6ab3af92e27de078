"""The error of records that cannot be read."""


class RecordError(ValueError):
    """The text is not a record that this version can read."""
