"""Where the agent does something else than a kubelet, and why: data for `sidebyside`."""

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """A difference between kubelet and agent.

    Attributes:
        fact: a pattern of the whole path of a fact of a pod.
        why: the reason, as in docs/node-agent.md.
        case: a pattern of the whole names of cases.
        by_chance: whether it is not seen every time.
    """

    fact: str
    why: str
    case: str = ".*"
    by_chance: bool = False

    def covers(self, case: str, path: str, kubelet: Any, agent: Any) -> bool:
        """Return whether this is the difference. `path`: number of the pod/path of the fact."""
        del kubelet, agent
        fact = path.partition("/")[2]
        return bool(re.fullmatch(self.fact, fact) and re.fullmatch(self.case, case))


DIFFERENCES = (
    Difference(
        r"status/resources/(requests|limits)/(cpu|memory)",
        "a kubelet writes what the pod's cgroup has, when it writes the status of a pod that runs "
        "once more; on cgroup v1, no limit of memory is 9007199254740988Ki, and of a cgroup that "
        "is removed nothing is known",
        by_chance=True,
    ),
    Difference(
        r"phases|status/(conditions|(init)?[cC]ontainerStatuses)/.*",
        "it depends on the load how far the containers are when the deadline comes",
        r"ending: a deadline( with .*)?",
        by_chance=True,
    ),
    Difference(
        r"phases",
        "a pod that lives for a few seconds is sometimes not seen Running",
        r"ending: .*|stopping: .*",
        by_chance=True,
    ),
    Difference(
        r"files/volumes/kubernetes.io~\w+(-\w+)?/v/..TIME/annotations",
        "a kubelet adds to a pod's annotations when and from where it got the pod",
        r"volumes, files: (all of the pod|sources with modes)",
    ),
    Difference(
        r"status/containerStatuses/main/volumeMounts",
        "what is mounted below a mount that is read only stays writable, which `IfPossible` allows",
        r"volumes, shared directories: read only with all below it",
    ),
    Difference(
        r"files/(volumes|plugins)",
        "a kubelet's volumes can come before the directories of their pod, and then make them with "
        "mode 0755",
        by_chance=True,
    ),
    Difference(
        r"status/(init)?[cC]ontainerStatuses/\w+/(state|lastState|restartCount|started|user).*",
        "it depends on the moment whether the container runs, has ended or waits",
        "init containers: an init container that fails again and again|"
        "configuration: an image that nobody serves",
        by_chance=True,
    ),
    Difference(
        r"status/containerStatuses/main/state/waiting/message",
        "the agent has one sentence for all wrong names of images",
        "configuration: a name that is no image",
    ),
)
