"""`scheduling.k8s.io/v1beta1`, of Kubernetes 1.37: the PodGroup of v1alpha3.

Source: k8s.io/api 0.37.
"""

from typing import Final

from bindery.grouper.upstream import v1alpha3
from bindery.grouper.upstream.model import POD_GROUP, WORKLOAD, Adapter

ADAPTER: Final = Adapter(
    version="v1beta1",
    kinds=(POD_GROUP, WORKLOAD),
    read=v1alpha3.read,
    scheduled=v1alpha3.SCHEDULED,
    is_latched=True,
    demands_one_priority=True,
)
