"""How a plugin is tested: its rule by itself, and its scheduler's half by a scenario."""

from bindery_image_policy.binder import Arguments, ImagePolicy

POD = {"spec": {"containers": [{"name": "a", "image": "registry.example.com/a"}]}}
OTHER = {"spec": {"containers": [{"name": "a", "image": "docker.io/a"}]}}


def test_images_of_trusted_registries_pass() -> None:
    plugin = ImagePolicy(Arguments(registries=("registry.example.com",)))

    assert plugin.validate(POD) == []
    assert plugin.validate(OTHER) == [
        "image 'docker.io/a' is from no trusted registry (registry.example.com)"
    ]


def test_pods_are_changed_by_a_copy() -> None:
    plugin = ImagePolicy(Arguments(registries=("registry.example.com",)))

    assert plugin.mutate(POD)["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    assert "imagePullPolicy" not in POD["spec"]["containers"][0]
