"""The one console script, `kernelwatch`: every command is loaded only when it is asked for.

A laptop, a server and a device host share this script; lazy loading keeps `kernelwatch detect` from importing Flask
and a device host from needing the database driver. Commands of `runners.cli` appear here as well.
"""

from __future__ import annotations

from importlib import import_module

import click

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module:attribute, short help)
    "detect": ("service.stats.detect_cli:main", "Find change points in series given as JSON."),
    "bisect-policy": ("service.stats.bisect_cli:bisect_policy", "Choose bisection probes over JSON lines."),
    "up": ("service.local.cli:up", "Start the whole service on this machine."),
    "demo": ("service.local.cli:demo", "Show the whole path on a planted history."),
    "doctor": ("service.local.cli:doctor", "Check every dependency and say what is missing."),
    "migrate": ("service.local.cli:migrate", "Bring the database to the newest schema."),
    "replay": ("service.detection_cli:replay_command", "Try a detector on the stored history, in shadow."),
    "policy": ("service.detection_cli:policy", "Show and set what counts as a change."),
    "repo": ("service.admin_cli:repo", "Register and list repositories."),
    "token": ("service.admin_cli:token", "Create and revoke API tokens."),
    "channel": ("service.channel_cli:channel", "Say where alerts go."),
    "fleet": ("service.fleet_cli:fleet", "Show the runners' standing; quarantine and release them."),
    "runner": ("runners.runner_cli:runner", "Measure for a service: register and serve a pool."),
    "kernels": ("runners.kernels_cli:kernels", "List, check and run the kernels of a suite."),
    "compare": ("runners.cli:compare", "Compare two commits on this machine."),
    "static": ("runners.cli:static", "Compare two commits' machine code, without a GPU or a timing."),
    "bisect": ("runners.cli:bisect", "Find the commit that changed a kernel, on this machine."),
    "measure-module": ("runners.cli:measure_module", "Measure any callable."),
    "compare-module": ("runners.cli:compare_module", "Compare two variants of any callable."),
    "tune": ("runners.cli:tune", "Show and set what makes this machine quiet."),
}


class LazyGroup(click.Group):
    """A click group that imports a command's module on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names in alphabetical order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return the command, or None if there is no such name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}:{attribute} is not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table above, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup)
@click.version_option(package_name="kernelwatch")
def main() -> None:
    """Performance-regression CI for GPU kernels."""


if __name__ == "__main__":
    main()
