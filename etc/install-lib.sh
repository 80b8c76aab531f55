# Shared by install-agent.sh and install-coordinator.sh, which set `role` and `extras` before they
# read this file. POSIX sh. Everything is done by `run`, so that a dry run does nothing.
# shellcheck shell=sh

# What the two say before they read this; without it nothing here works.
here=${here:?}
role=${role:?}
extras=${extras?}

from=$here/..
python=python3
root=
broker=
data=
host=
manifest=
bundle=
with_broker=
start=yes
force=
dry_run=
uninstall=
purge=
changed=
work=

say() { printf '%s\n' "$*"; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

wrong_usage() {
    printf 'error: %s; --help tells more\n' "$*" >&2
    exit 2
}

# Do something, or say that it would be done.
run() {
    if [ -n "$dry_run" ]; then
        printf 'would run:'
        printf ' %s' "$@"
        printf '\n'
    else
        "$@"
    fi
}

# Options that have a value may be written as `--name value` or `--name=value`.
parse_options() {
    while [ $# -gt 0 ]; do
        option=$1
        shift
        case $option in
        --dry-run) dry_run=yes ;;
        --uninstall) uninstall=yes ;;
        --purge) purge=yes ;;
        --no-start) start= ;;
        --force) force=yes ;;
        --with-broker) with_broker=yes ;;
        -h | --help)
            usage
            exit 0
            ;;
        --*=*) set_option "${option%%=*}" "${option#*=}" ;;
        --*)
            [ $# -gt 0 ] || wrong_usage "$option: unknown, or its value is missing"
            set_option "$option" "$1"
            shift
            ;;
        *) wrong_usage "$option: unknown" ;;
        esac
    done
    [ -z "$purge" ] || [ -n "$uninstall" ] || wrong_usage '--purge: only with --uninstall'
    case $role in
    agent) [ -z "$manifest$with_broker" ] || wrong_usage '--manifest, --with-broker: not the agent'\''s' ;;
    *) [ -z "$data$host" ] || wrong_usage '--data, --host: only the agent'\''s' ;;
    esac
    for path in "$data" "$manifest"; do
        case $path in
        /home/* | /root/*) die "$path: a service cannot look into homes; move it to /srv, say" ;;
        esac
    done
}

set_option() {
    # What goes into the configuration is written between quotes there.
    case $1 in
    --broker | --data | --host | --manifest)
        case $2 in
        *[\"\\]* | *[[:cntrl:]]*) wrong_usage "$1: a quote, a backslash or a control character is in it" ;;
        esac
        ;;
    esac
    case $1 in
    --from) from=$2 ;;
    --python) python=$2 ;;
    --root) root=$2 ;;
    --broker) broker=$2 ;;
    --data) data=$(absolute "$2") ;;
    --host) host=$2 ;;
    --manifest) manifest=$(absolute "$2") ;;
    --bundle) bundle=$2 ;;
    *) wrong_usage "$1: unknown" ;;
    esac
}

absolute() {
    case $1 in
    /*) printf '%s' "$1" ;;
    *) printf '%s' "$PWD/$1" ;;
    esac
}

# Where everything goes. With --root nothing outside of it is touched: no user, no running service.
set_places() {
    if [ -n "$root" ]; then
        [ -n "$dry_run" ] || mkdir -p "$root"
        root=$(absolute "$root")
    else
        [ "$(id -u)" = 0 ] || [ -n "$dry_run" ] || die 'this needs rights: run it by sudo, or try --dry-run'
        command -v systemctl >/dev/null 2>&1 || die 'no systemd is here; docs/how-to/install.md says what to do'
    fi
    opt=$root/opt/fleet
    etc=$root/etc/fleet
    state=$root/var/lib/fleet
    units=$root/etc/systemd/system
    link=$root/usr/local/bin/fleet
    config=$etc/fleet.toml
}

as_owner() {
    if [ -n "$root" ]; then
        "$@"
    else
        runuser -u fleet -- "$@"
    fi
}

owned_by() {
    [ -n "$root" ] || run chown "$1" "$2"
}

make_user() {
    [ -z "$root" ] || return 0
    if ! id fleet >/dev/null 2>&1; then
        run useradd --system --user-group --home-dir /var/lib/fleet --no-create-home \
            --shell /usr/sbin/nologin fleet
    fi
    for group in video render; do # who may use a GPU
        if getent group "$group" >/dev/null && ! id -nG fleet 2>/dev/null | grep -qw "$group"; then
            run usermod -aG "$group" fleet
        fi
    done
}

make_folders() {
    [ -d "$state" ] || run mkdir -p "$state"
    [ "$(stat -c %a "$state" 2>/dev/null)" = 700 ] || run chmod 0700 "$state"
    owned_by fleet:fleet "$state"
    [ -d "$etc" ] || run mkdir -p "$etc"
}

# Say what would be installed: the same words, the same installation.
fingerprint() {
    printf '%s %s ' "$extras" "$("$python" -V 2>&1)"
    if [ -d "$from" ]; then
        (
            cd "$from" || exit
            find agent broker coordinator pyproject.toml -type f ! -name '*.pyc' \
                -exec sha256sum {} + | LC_ALL=C sort -k 2 | sha256sum
        )
    elif [ -f "$from" ]; then
        sha256sum <"$from"
    else
        printf '%s\n' "$from"
    fi
}

install_package() {
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        die "$python is not Python 3.11 or newer; name one by --python"
    case $("$python" -c 'import sys; print(sys.base_prefix)') in
    /home/* | /root/*)
        [ -n "$root" ] || die "$python lives in a home, where a service cannot look; name one by --python"
        ;;
    esac
    stamp=$opt/.installed-$role
    wanted=$(fingerprint)
    if [ -x "$opt/bin/fleet" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        say "the package is there already, in $opt"
        return 0
    fi
    changed=yes
    say "installing the package into $opt (with torch this takes minutes) ..."
    [ -x "$opt/bin/python" ] || run "$python" -m venv "$opt" ||
        die "$python -m venv failed; on Debian and Ubuntu: apt-get install python3-venv"
    source=$from
    if [ -d "$from" ]; then
        source=$work/source # a build leaves files behind, which have no business in a checkout
        run cp -R "$from/agent" "$from/broker" "$from/coordinator" "$from/pyproject.toml" \
            "$from/README.md" "$from/LICENSE" "$work/source"
    fi
    if [ -e "$from" ]; then
        wish=$source$extras
    else
        wish=$(printf '%s' "$from" | sed "s/^\([A-Za-z0-9._-]*\)/\1$extras/")
    fi
    # pip's own settings (PIP_INDEX_URL, PIP_CONSTRAINT, ...) hold; what Python is told does not.
    run "$opt/bin/python" -I -m pip install --quiet --disable-pip-version-check --upgrade "$wish"
    if [ -f "$from" ]; then
        # A wheel of the same version may have other code in it; pip would leave it at that.
        run "$opt/bin/python" -I -m pip install --quiet --disable-pip-version-check \
            --force-reinstall --no-deps "$wish"
    fi
    [ -n "$dry_run" ] || printf '%s\n' "$wanted" >"$stamp"
}

# Put a file in its place unless the same is there.
place() {
    if ! cmp -s "$1" "$2"; then
        changed=yes
        run mkdir -p "$(dirname "$2")"
        run install -m "$3" "$1" "$2"
    fi
}

install_config() {
    if [ -e "$config" ]; then
        say "$config is there already and stays as it is"
    elif [ -n "$dry_run" ]; then
        say "would write $config"
    else
        # Keys that are said here, where the example has them as comments.
        FLEET_URL=$broker FLEET_DATA=$data FLEET_NAME=$host FLEET_PLAN=$manifest awk '
            function said(key, value) { printf "%s = \"%s\"\n", key, value; value_said = 1 }
            { value_said = 0 }
            /^#url = / && ENVIRON["FLEET_URL"] { said("url", ENVIRON["FLEET_URL"]) }
            /^#data = / && ENVIRON["FLEET_DATA"] { said("data", ENVIRON["FLEET_DATA"]) }
            /^#host = / && ENVIRON["FLEET_NAME"] { said("host", ENVIRON["FLEET_NAME"]) }
            /^#manifest = / && ENVIRON["FLEET_PLAN"] { said("manifest", ENVIRON["FLEET_PLAN"]) }
            !value_said' "$here/fleet.toml.example" >"$work/fleet.toml"
        mode=0644 # whoever works on this machine may ask the fleet how it is
        case $broker in *@*) mode=0640 ;; esac
        install -m "$mode" "$work/fleet.toml" "$config"
        owned_by root:fleet "$config"
    fi
}

install_units() {
    for unit in "$@"; do
        place "$here/systemd/$unit" "$units/$unit" 0644
        version=$(systemctl --version 2>/dev/null | awk 'NR == 1 { print $2 + 0 }')
        if [ "${version:-0}" -ge 254 ]; then
            place "$here/systemd/backoff.conf" "$units/$unit.d/10-backoff.conf" 0644
        fi
    done
    if [ ! -e "$link" ]; then
        run mkdir -p "$(dirname "$link")"
        run ln -s "$opt/bin/fleet" "$link"
    fi
    [ -n "$root" ] || run systemctl daemon-reload
}

# The installed program, as the service will run it: whatever else is set here, is not set there.
fleet() (
    cd /
    unset XDG_CONFIG_HOME
    for name in $(env | sed -n 's/^\(FLEET_[A-Za-z0-9_]*\)=.*/\1/p'); do unset "$name"; done
    as_owner env FLEET_CONFIG="$config" XDG_STATE_HOME="$(dirname "$state")" HOME="$state" \
        "$opt/bin/fleet" "$@"
)

join() {
    [ -n "$bundle" ] || return 0
    [ -r "$bundle" ] || die "--bundle $bundle: cannot be read"
    if [ -n "$dry_run" ]; then
        say "would join with $bundle"
        return 0
    fi
    fleet join --help >/dev/null 2>&1 || die "--bundle: this version has no 'fleet join'"
    # The owner of the state reads a copy that nobody else can; it does not outlive this.
    private=$state/.joining
    install -m 0600 "$bundle" "$private"
    owned_by fleet:fleet "$private"
    fleet join "$private" || die "fleet join refused $bundle"
    rm -f "$private"
}

check() {
    if [ -n "$with_broker" ] && [ -z "$root" ]; then
        run systemctl --quiet enable --now fleet-broker.service
    fi
    if [ -n "$dry_run" ]; then
        say "would check this machine: fleet doctor --role $role"
    elif ! fleet doctor --role "$role"; then
        [ -n "$force" ] ||
            die "not started, since something fails; mend it and run this again, or add --force"
        say 'started all the same, as --force has it'
    fi
}

enable_units() {
    if [ -z "$start" ]; then
        say "installed; start it by: systemctl enable --now $*"
    elif [ -n "$root" ]; then
        if command -v systemctl >/dev/null 2>&1; then
            run systemctl --quiet --root="$root" enable "$@"
        fi
    else
        run systemctl --quiet enable "$@"
        if [ -n "$changed" ]; then
            run systemctl restart "$@"
        else
            run systemctl start "$@"
        fi
        say "started; what it says: journalctl -u $1 -f"
    fi
}

remove() {
    for unit in "$@"; do
        if [ -e "$units/$unit" ]; then
            if [ -n "$root" ]; then
                run rm -f "$units/multi-user.target.wants/$unit"
            else
                run systemctl --quiet disable --now "$unit"
            fi
            run rm -rf "$units/$unit" "$units/$unit.d"
        fi
    done
    [ -n "$root" ] || run systemctl daemon-reload
    run rm -f "$opt/.installed-$role"
    others=
    for unit in "$units"/fleet-*.service; do
        case " $* " in *" ${unit##*/} "*) continue ;; esac
        [ ! -e "$unit" ] || others=yes
    done
    if [ -n "$others" ]; then
        say "other services of the fleet are here: $opt, $etc and $state stay"
        return 0
    fi
    run rm -rf "$opt"
    [ ! -L "$link" ] || run rm -f "$link"
    if [ -n "$purge" ]; then
        run rm -rf "$etc" "$state"
        if [ -z "$root" ] && id fleet >/dev/null 2>&1; then
            run userdel fleet
        fi
    else
        say "$etc and $state stay; --purge removes them, results that wait there too"
    fi
}

# main UNIT...: what both installers do.
main() {
    umask 022 # the service's user has to read what is installed
    set_places
    if [ -n "$uninstall" ]; then
        remove "$@"
        return 0
    fi
    [ -e "$from" ] || case $from in training?fleet*) ;; *) die "--from $from: is not there" ;; esac
    work=$(mktemp -d)
    trap 'rm -rf "$work" "$state/.joining"' EXIT
    trap 'exit 130' INT TERM
    mkdir "$work/source"
    make_user
    make_folders
    install_package
    install_config
    install_units "$@"
    join
    check
    enable_units "$@"
}
