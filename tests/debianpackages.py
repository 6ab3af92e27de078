"""Whether this machine can have the packages that the image is made of."""

from devcluster.errors import BuildError
from devcluster.image.build import cache_directory
from devcluster.image.packages import Packages
from tests.required import lacking


def require_packages() -> None:
    """Skip the running test, or fail it where required, if the packages cannot be had."""
    try:
        Packages(cache_directory()).download(print)
    except BuildError as error:
        lacking(str(error), part="realnode")
