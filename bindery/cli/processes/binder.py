"""`bindery binder run`: reads the configuration, builds the plugins and runs until it is stopped.

Called by the `bindery` command; `bindery.binder.process` takes over. A configuration that cannot be
used ends with exit code 2 before anything is done.
"""

from bindery.binder import process
from bindery.binder.plugins import registry
from bindery.cli.options import LogLevel, command_group
from bindery.cli.processes import running
from bindery.observability.listening import LOOPBACK, Listening

app = command_group("Carries out the scheduler's decisions.")


@app.command()
def run(
    config: running.ConfigurationOption = None,
    kubeconfig: running.Kubeconfig = None,
    listen_address: running.ListenAddress = LOOPBACK,
    health_port: running.HealthPort = None,
    metrics_port: running.MetricsPort = None,
    identity: running.Identity = "",
    log_level: LogLevel = "info",
) -> None:
    """Carry out BindRequests: bind all pods of a gang, or none."""
    configuration, plugins = registry.load(config)
    running.prepare(process.COMPONENT, log_level)
    options = process.Options(
        configuration=configuration,
        plugins=plugins,
        kubeconfig=kubeconfig,
        identity=identity or running.new_identity(),
        listening=Listening(health_port, metrics_port, listen_address),
    )
    running.run(process.run(options))
