# What the tests of the units share: steps and their table, trees of Debian 13, and
# the README's own commands. To be read by a script that has set `repository`.

work=${UNITS_DIR:-$repository/target/units}
tree=$work/tree
glean=$repository/target/demo/glean
readme=$repository/README.md
table=$work/table.md
failures=0

# What a lab's workstation has, CRIU for moves, and a kernel for the VM.
TREE_PACKAGES=systemd,systemd-sysv,dbus,udev,libpam-systemd,sudo,iproute2,procps,kmod,python3-minimal,criu,linux-image-amd64

say() { echo "test-units: $*" >&2; }
give_up() { say "$*"; exit 2; }

[ "$(id -u)" = 0 ] || give_up "not root: containers cannot be started, nothing is tested"

# packages TOOL=PACKAGE .. installs what is missing.
packages() {
    local missing="" pair
    for pair; do command -v "${pair%%=*}" >/dev/null || missing="$missing ${pair#*=}"; done
    [ -z "$missing" ] && return
    command -v apt-get >/dev/null || give_up "missing:$missing, and no apt-get to install it"
    say "installing$missing"
    # shellcheck disable=SC2086
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends $missing; } >"$work/apt.log" 2>&1 || give_up "see $work/apt.log"
}

# One tree of Debian 13, which containers and the VM's disk begin with.
make_tree() {
    [ -e "$tree/.whole" ] && return
    say "making a tree of Debian 13"
    rm -rf "$tree"
    local mirror
    mirror=$(apt-get indextargets --format '$(SITE)' 'Origin: Debian' 'Created-By: Packages' | head -n 1)
    mmdebstrap --quiet --variant=minbase --include="$TREE_PACKAGES" \
        --aptopt='Acquire::Languages "none"' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' trixie "$tree" "$mirror" >"$work/tree.log" 2>&1 \
        || give_up "no tree of Debian 13: see $work/tree.log"
    chroot "$tree" useradd --create-home ada
    echo 'ada ALL=(ALL) NOPASSWD: ALL' >"$tree/etc/sudoers.d/ada"
    touch "$tree/.whole"
}

# begin_table KERNEL SYSTEMD begins the table; each step is a row.
begin_table() {
    of="$1 | $2"
    { echo "| kernel | systemd | unit | what was done | outcome | seconds |"
      echo "|---|---|---|---|---|---|"; } >"$table"
}

# step UNIT WHAT COMMAND .. does it and writes the row. What it prints last, on
# descriptor 4, is told in the row.
step() {
    local unit=$1 what=$2 begin outcome seconds
    shift 2
    begin=$(date +%s.%N)
    : >"$work/told"
    # Not as a condition: there the shell goes on after what fails.
    (set -euo pipefail; "$@") >"$work/step.log" 2>&1 4>"$work/told"
    case $? in
        0) outcome=passed ;;
        *) outcome=FAILED; failures=$((failures + 1)); explain $MACHINES >>"$work/step.log" 2>&1 4>&- ;;
    esac
    seconds=$(echo "$(date +%s.%N) $begin" | awk '{ printf "%.1f", $1 - $2 }')
    [ -s "$work/told" ] && outcome="$outcome: $(tail -n 1 "$work/told" | tr '|' '/')"
    echo "| $of | $unit | $what | $outcome | $seconds |" | tee -a "$table"
    case $outcome in FAILED*) sed 's/^/    /' "$work/step.log" ;; esac
}

tell() { echo "$*" >&4; }

# until_so SECONDS COMMAND .. asks until it is so.
until_so() {
    local end=$(($(date +%s) + $1))
    shift
    until "$@"; do
        [ "$(date +%s)" -lt "$end" ] || { echo "never so: $*"; return 1; }
        sleep "${pause:-0.2}"
    done
}

# readme HEADING N: the Nth shell block under a heading of the README.
readme() {
    awk -v heading="## $1" -v wanted="$2" '
        /^## / { under = $0 == heading }
        /^```$/ { inside = 0 }
        inside { print }
        under && /^```sh$/ { if (++block == wanted) inside = 1 }
    ' "$readme" | grep . || { echo "the README has no block $2 under $1"; return 1; }
}

# finish says how it went.
finish() {
    echo
    cat "$table"
    [ "$failures" = 0 ] || { say "$failures steps failed"; exit 1; }
    say "all passed"
}
