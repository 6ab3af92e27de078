"""Rules and runtime states for the tables of tests."""

from typing import Any

from bindery.nodecore.podsync.facts import (
    ContainerRules,
    PodRules,
    RuntimeContainer,
    RuntimePod,
    RuntimeSandbox,
    RuntimeState,
)

ALWAYS = "Always"
SANDBOX = RuntimeSandbox("sandbox", is_ready=True, addresses=("10.0.0.1",))


def rules(policy: str = ALWAYS, inits: str = "", apps: str = "a", **fields: Any) -> PodRules:
    """Return rules of containers with names of one letter; an init container in upper case is a
    sidecar.
    """
    return PodRules(
        tuple(ContainerRules(name) for name in apps),
        tuple(
            ContainerRules(name, restart_policy=ALWAYS if name.isupper() else None)
            for name in inits
        ),
        restart_policy=policy,
        **fields,
    )


def seen(text: str, sandbox: RuntimeSandbox | None = SANDBOX) -> RuntimePod:
    """Return a pod of the runtime from words such as "a:running b:3 c:unknown c:created".

    A number is the exit code of a container that has ended. The newest container comes first.
    """
    containers = []
    for word in text.split():
        name, _, state = word.partition(":")
        code = int(state) if state.isdigit() else 0
        kind = RuntimeState.EXITED if state.isdigit() else RuntimeState(state)
        containers.append(RuntimeContainer(f"fake://{name}", name, kind, exit_code=code))
    return RuntimePod(() if sandbox is None else (sandbox,), tuple(containers))
