"""`scheduling.k8s.io/v1beta1`, of Kubernetes 1.37: the PodGroup of v1alpha3.

Source: k8s.io/api 0.37.
"""

from dataclasses import replace
from typing import Final

from bindery.grouper.upstream import v1alpha3
from bindery.grouper.upstream.model import POD_GROUP, WORKLOAD

ADAPTER: Final = replace(v1alpha3.ADAPTER, version="v1beta1", kinds=(POD_GROUP, WORKLOAD))
