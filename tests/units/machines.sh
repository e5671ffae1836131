# Workstations that are containers with a systemd of their own, on one wire.
# To be read after common.sh.

MACHINES="a b"

# The program that holds a container, and its first process; others once it has booted again.
holder() { pgrep --parent "$(cat "$work/$1/pid")"; }
first_process() { pgrep --parent "$(holder "$1")"; }

# in_machine MACHINE USER SCRIPT runs a shell there, in the user's home.
in_machine() {
    local user=$2
    nsenter --target "$(first_process "$1")" --all env --ignore-environment \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin USER="$user" HOME=/home/ada \
        setpriv --reuid "$user" --regid "$user" --init-groups \
        sh -ec "cd /home/ada; $3" </dev/null
}

is_up() {
    case $(in_machine "$1" root 'systemctl is-system-running || :' 2>/dev/null) in
        running | degraded) ;;
        *) return 1 ;;
    esac
}

make_wire() {
    ip netns add units-a
    ip netns add units-b
    ip -n units-a link add lab0 type veth peer name lab0 netns units-b
    ip -n units-a address add 10.77.0.1/24 dev lab0
    ip -n units-b address add 10.77.0.2/24 dev lab0
    for machine in $MACHINES; do
        ip -n "units-$machine" link set lo up
        ip -n "units-$machine" link set lab0 up
    done
}

# A tree of its own over the common one.
make_machine() {
    local home=$work/$1
    rm -rf "$home"
    mkdir -p "$home/upper" "$home/scratch" "$home/root"
    mount -t overlay overlay "$home/root" \
        -o "lowerdir=$tree,upperdir=$home/upper,workdir=$home/scratch"
    echo "ws-$1" >"$home/root/etc/hostname"
    printf '127.0.0.1 localhost ws-%s\n10.77.0.1 coordinator.lab\n' "$1" >"$home/root/etc/hosts"
}

# With a control group hierarchy of the second version, whatever this machine has, and no
# filter of the container's own: what is filtered cannot be written down.
boot() {
    local home=$work/$1
    MACHINE=$1 HOME_OF=$home setsid unshare --mount sh -ec '
        umount --recursive --lazy /sys/fs/cgroup
        mount -t cgroup2 cgroup2 /sys/fs/cgroup
        mkdir -p "/sys/fs/cgroup/units-$MACHINE"
        echo $$ >"/sys/fs/cgroup/units-$MACHINE/cgroup.procs"
        export SYSTEMD_SECCOMP=0 SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
        # Told to restart: it has been told to reboot.
        code=133
        while [ $code = 133 ]; do code=0; systemd-nspawn --quiet --boot --register=no --keep-unit --console=pipe \
            --directory="$HOME_OF/root" --machine="units-$MACHINE" --capability=all \
            --network-namespace-path="/run/netns/units-$MACHINE" || code=$?; done
    ' </dev/null >"$home/console.log" 2>&1 4>&- &
    echo $! >"$home/pid"
    until_so 120 is_up "$1"
}

# Also what a run before this one has left.
clear_machines() {
    local machine pid groups
    for machine in $MACHINES; do
        if pid=$(holder "$machine" 2>/dev/null) && grep -qs nspawn "/proc/$pid/cmdline"; then
            kill -TERM "$pid"
            until_so 30 test ! -e "/proc/$pid" || kill -KILL "$pid"
        fi
        rm -f "$work/$machine/pid"
        mountpoint -q "$work/$machine/root" && umount --lazy "$work/$machine/root"
        ip netns delete "units-$machine" 2>/dev/null
        until_so 10 without_groups "units-$machine"
    done
}

# Wherever this machine has its hierarchy.
without_groups() {
    local groups
    for groups in "/sys/fs/cgroup/$1" "/sys/fs/cgroup/unified/$1"; do
        [ ! -d "$groups" ] || find "$groups" -depth -type d -exec rmdir {} + 2>/dev/null || return 1
    done
}
