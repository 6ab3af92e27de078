from bindery.grouper.table import PodFacts, Reference, load, plan, root

TABLE = load()


def test_the_pods_of_a_job_are_one_gang_in_the_queue_that_the_job_names() -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": "default",
            "uid": "11111111-aaaa",
            "labels": {"scheduling.bindery.dev/queue": "research"},
        },
        "spec": {"parallelism": 2, "completions": 2},
    }
    controller = Reference("batch/v1", "Job", "train", "11111111-aaaa", "default")
    pods = [PodFacts(f"pod-{i}", f"train-{i}", "default", {}, {}, controller) for i in range(2)]

    found = plan({"11111111-aaaa": job}, pods, TABLE)

    assert [group.name for group in found.groups] == ["job-train-11111111"]
    assert found.groups[0].spec.queue == "research"
    assert found.groups[0].pods == ("pod-0", "pod-1")
    assert found.groups[0].sources["queue"] == "Job/train"
    assert root(pods[0], {"11111111-aaaa": job}) == controller


def test_an_owner_that_was_not_given_is_wanted_and_its_pods_wait() -> None:
    controller = Reference("batch/v1", "Job", "train", "job-1", "default")

    found = plan({}, [PodFacts("pod-0", "train-0", "default", {}, {}, controller)], TABLE)

    assert found.groups == ()
    assert [(each.kind, each.uid) for each in found.wanted] == [("Job", "job-1")]
