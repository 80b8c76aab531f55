"""`fleet completion`."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_FLEET_COMPLETE"


@click.command("completion")
@click.argument("shell", metavar="|".join(SHELLS), type=click.Choice(SHELLS))
def completion_command(shell: str) -> None:
    """Print a script that has the shell complete verbs, options, and names of jobs and hosts.

    Names are asked of the coordinator; one that does not answer in 0.3 s is done without.

    \b
    bash, in ~/.bashrc:    source <(fleet completion bash)
    zsh, in ~/.zshrc:      source <(fleet completion zsh)
    fish, once:            fleet completion fish > ~/.config/fish/completions/fleet.fish

    Example: source <(fleet completion bash)
    """  # noqa: D301 - \b is click's
    from click.shell_completion import get_completion_class

    from coordinator.cli import fleet

    made = get_completion_class(shell)
    if made is None:  # no shell of `SHELLS`
        raise click.BadParameter(shell)
    click.echo(made(fleet, {}, "fleet", VARIABLE).source())
