"""The tests' CSI driver passes Kubernetes' conformance suite of CSI drivers, csi-test.

The agent is held against this driver elsewhere, so the driver itself must be one.
"""

from pathlib import Path

import pytest

from devcluster import build
from tests.nodeagent.volumes import conformancestory
from tests.nodeagent.volumes.namespaces import require_loop_devices, require_mounts, run_alone

PASSED = 37
NOT_DECLARED = {
    "NodeGetVolume not supported",
    "NodeGetVolumeHealth not supported",
    "NodeGetStorageHealth not supported",
    "Service does not have single node multi writer capability",
}
"""Why the suite leaves out tests of the node's calls: the driver does not claim to have them."""


@pytest.mark.parametrize("access", ["mount", "block"])
def test_the_driver_passes_all_that_it_claims_to_have(tmp_path: Path, access: str) -> None:
    require_mounts()
    require_loop_devices()
    program = build.binaries(("csi-sanity",), print, build.CHECKS_MODULE)["csi-sanity"]

    found = run_alone(conformancestory.__name__, str(tmp_path), str(program), access)

    states = [state for _, state, _ in found["specs"]]
    wrong = [one for one in found["specs"] if one[1] not in ("passed", "skipped", "pending")]
    assert wrong == []
    assert states.count("passed") == PASSED
    skipped = [one for one in found["specs"] if one[1] == "skipped"]
    assert {why for name, _, why in skipped if name.startswith("Node Service")} == NOT_DECLARED
    assert all(why.endswith("not supported") or why in NOT_DECLARED for _, _, why in skipped)
    assert (found["left"], found["loops"]) == ([], 0)
