"""The pods for which a plugin is called: all that concern it."""

from typing import cast

from bindery.binder.outcome.ports import PodView
from bindery.binder.plugins.chain import PluginChain
from bindery.binder.plugins.interface import BindContext
from bindery.kube.client import Client
from bindery.kube.objects.bindrequests import (
    CommittedStatement,
    PodBinding,
    StatementSpec,
)


class Everybody:
    """A plugin that has to do with all pods, and notes its calls."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[tuple[str, str]] = []

    async def pre_bind(self, context: BindContext) -> None:
        self.calls.append(("pre_bind", context.pod.name))

    async def rollback(self, context: BindContext) -> None:
        self.calls.append(("rollback", context.pod.name))


class Chooser(Everybody):
    """A plugin for pods for which the scheduler has handed something over."""

    def concerns(self, binding: PodBinding) -> bool:
        return self.name in binding.plugin_data


class Finisher(Chooser):
    async def post_bind(self, context: BindContext) -> None:
        self.calls.append(("post_bind", context.pod.name))


class Breaker(Everybody):
    """A plugin whose `concerns` fails."""

    def concerns(self, _binding: PodBinding) -> bool:
        raise RuntimeError("no idea")


async def carry(*plugins: Everybody, **data: object) -> tuple[bool, bool]:
    """Call all steps for one pod; return whether there was anything before, and after."""
    chain = PluginChain(
        plugins, lambda _namespace, _priority: cast("Client", None), lambda *_measured: None
    )
    binding = PodBinding(pod_name="p", pod_uid="u", selected_node="n", plugin_data=data)
    spec = StatementSpec(pods=[binding], id="s")
    view = PodView("team", "p", "u", node="", ending=False)
    contexts = chain.contexts(view, CommittedStatement(spec=spec), binding)
    assert await chain.pre_bind(contexts) is None
    assert await chain.post_bind(contexts) is None
    assert await chain.rollback(contexts) is None
    return contexts.concern.prepares, contexts.concern.finishes


async def test_no_plugin_is_called_for_a_pod_that_concerns_none() -> None:
    chooser, finisher = Chooser("devices"), Finisher("volumes")

    assert await carry(chooser, finisher) == (False, False)
    assert chooser.calls == finisher.calls == []


async def test_a_plugin_is_called_only_for_pods_that_concern_it() -> None:
    chooser, finisher = Chooser("devices"), Finisher("volumes")

    assert await carry(chooser, finisher, devices=["a"]) == (True, False)
    assert chooser.calls == [("pre_bind", "p"), ("rollback", "p")]
    assert finisher.calls == []

    assert await carry(chooser, finisher, volumes={}) == (True, True)
    assert finisher.calls == [("pre_bind", "p"), ("post_bind", "p"), ("rollback", "p")]


async def test_a_plugin_without_a_working_concerns_method_is_called_for_every_pod() -> None:
    everybody, breaker = Everybody("all"), Breaker("broken")

    assert await carry(everybody, breaker) == (True, False)
    assert everybody.calls == breaker.calls == [("pre_bind", "p"), ("rollback", "p")]
