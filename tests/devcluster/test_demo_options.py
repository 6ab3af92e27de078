"""The options of the demo, without a cluster."""

from pathlib import Path

import yaml
from typer.testing import CliRunner

from devcluster.demo.__main__ import app

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_demo_accepts_only_numbers_of_nodes_that_its_examples_fit() -> None:
    files = ("gang.yaml", "elastic.yaml", "workloads/job.yaml")
    jobs = [
        body
        for file in files
        for body in yaml.safe_load_all((EXAMPLES / file).read_text())
        if body["kind"] == "Job"
    ]
    (pipeline,) = yaml.safe_load_all((EXAMPLES / "stages" / "pipeline.yaml").read_text())
    requested = [(job["spec"]["completions"], job["spec"]["template"]) for job in jobs]
    requested += [(each["size"], each["template"]) for each in pipeline["spec"]["stages"]]
    gpus = sum(
        count * container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0)
        for count, template in requested
        for container in template["spec"]["containers"]
    )
    least = -(-gpus // 8)

    done = CliRunner().invoke(app, ["run", f"--nodes={least - 1}"])

    assert done.exit_code == 2
    assert f"{least - 1} is not in the range x>={least}" in done.output
