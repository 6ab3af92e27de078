"""The adapters, the best version first."""

from typing import Final

from bindery.grouper.upstream import v1alpha2, v1alpha3, v1beta1

ADAPTERS: Final = (v1beta1.ADAPTER, v1alpha3.ADAPTER, v1alpha2.ADAPTER)
