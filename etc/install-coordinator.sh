#!/bin/sh
# Installs the coordinator as a systemd service, or brings an installed one up to date.
set -eu

usage() {
    cat <<'HELP'
usage: install-coordinator.sh [options]

Installs the coordinator into /opt/fleet, its settings into /etc/fleet, and a service that starts with
the machine. Run it again to bring it up to date; what is as it should be is left alone.

  --broker URL      where the broker is, mqtt://HOST:PORT     (for a fleet.toml that is not there yet)
  --manifest FILE   the plan                                  (likewise)
  --with-broker     run the embedded broker as a service, too
  --bundle FILE     the coordinator's identity, given to `fleet join`
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
role=coordinator
extras=
# shellcheck source=etc/install-lib.sh
. "$here/install-lib.sh"
parse_options "$@"
if [ -n "$with_broker$uninstall" ]; then
    main fleet-broker.service fleet-coordinator.service
else
    main fleet-coordinator.service
fi
