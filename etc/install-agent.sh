#!/bin/sh
# Installs this host's agent as a systemd service, or brings an installed one up to date.
set -eu

usage() {
    cat <<'HELP'
usage: install-agent.sh [options]

Installs the agent into /opt/fleet, its settings into /etc/fleet, and a service that starts with the
machine. Run it again to bring it up to date; what is as it should be is left alone.

  --broker URL      where the broker is, mqtt://HOST:PORT     (for a fleet.toml that is not there yet)
  --data DIR        folder of the prepared data               (likewise)
  --host NAME       this host's name in the fleet             (likewise)
  --bundle FILE     this host's identity, given to `fleet join`
  --from WHAT       a checkout, a wheel, or what pip is to fetch  [default: this checkout]
  --python FILE     Python 3.11 or newer                      [default: python3]
  --no-start        install, but do not start
  --force           start although `fleet doctor` says that something fails
  --dry-run         say what would be done
  --uninstall       remove it; settings and state stay
  --purge           with --uninstall: remove these too
  --root DIR        install into DIR, without a user and without starting anything
HELP
}

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
role=agent
extras='[trainers]'
# shellcheck source=etc/install-lib.sh
. "$here/install-lib.sh"
parse_options "$@"
main fleet-agent.service
