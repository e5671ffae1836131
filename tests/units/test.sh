#!/bin/bash
# Lives the README under a real systemd: two containers of Debian 13, one with the
# coordinator and the collector, both workstations. The commands are the README's own.
# A table of what was done is printed and left in target/units/table.md.
set -u
repository=$(cd "$(dirname "$0")/../.." && pwd)
. "$repository/tests/units/common.sh"
. "$repository/tests/units/lab.sh"
. "$repository/tests/units/machines.sh"

mkdir -p "$work"
[ -x "$glean" ] || give_up "no $glean: cargo build --profile demo -p gleaner-cli"
packages mmdebstrap=mmdebstrap systemd-nspawn=systemd-container ip=iproute2 setpriv=util-linux
make_tree
trap clear_machines EXIT
trap 'exit 1' INT TERM
clear_machines
make_wire
for machine in $MACHINES; do make_machine "$machine"; done

# -- What is done ------------------------------------------------------------

all_there() { in_machine "$1" root 'find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp \
    -o -path /var/tmp -o -path /var/log -o -path /var/lib/systemd -o -path /home \) -prune -o -print | sort
    cut -d: -f1 /etc/passwd /etc/group | sort'; }

put_binaries() {
    for machine in $MACHINES; do
        all_there "$machine" >"$work/$machine/before"
        put_binary "$work/$machine/root"
        configure "$work/$machine/root"
    done
}

# The owner types a line into a terminal of that machine.
type_line() { in_machine "$1" root 'echo x | script -qc "head -n 1 >/dev/null" /dev/null >/dev/null'; }
typed_and_moved() { type_line "$1" && has_moved "$2" "$3"; }

# is_on JOB ..: which machine the guest is on, by its last letter.
is_on() { job_line "$1" | field workstation | sed 's/^ws-//'; }

move() {
    local job from
    job=$(counting migrate 150)
    until_so 30 runs "$job"
    from=$(is_on "$job")
    until_so 30 typed_and_moved "$from" "$job" 1
    [ "$(is_on "$job")" != "$from" ]
    # And back, where the guest is a moved one already.
    from=$(is_on "$job")
    until_so 60 typed_and_moved "$from" "$job" 2
    until_so 90 has_ended "$job"
    has_counted "$job" 150
    tell "twice, and it counted to 150 without a gap; stood still $(in_machine a ada "glean job $job --json" |
        head -n 1 | field frozen_s) s in all"
}

# A filter upon the agent's unit: nothing moves from there, and doctor, which is run outside
# of the unit, says so.
doctor_within() {
    in_machine b root 'mkdir -p /run/systemd/system/gleaner-agent.service.d
        printf "[Service]\nRestrictRealtime=yes\n" >/run/systemd/system/gleaner-agent.service.d/filter.conf
        systemctl daemon-reload; systemctl restart gleaner-agent'
    until_so 30 answers b
    local said
    said=$(in_machine b ada "sudo glean doctor --agent" || :)
    in_machine b root 'rm -r /run/systemd/system/gleaner-agent.service.d
        systemctl daemon-reload; systemctl restart gleaner-agent'
    until_so 30 answers b
    echo "$said"
    tell "$(echo "$said" | sed -n 's/^moves *\(.*\)/moves \1/p' | cut -c1-80)"
    echo "$said" | grep -q '^moves *SICK *a system call filter'
}

# A CRIU that says on its standard output, before it has a log, why it does not work: the
# agent's log and doctor say it too.
criu_within() {
    local root=$work/b/root said
    mkdir -p "$root/opt/no-criu"
    printf '%s\n' '#!/bin/sh' '[ "$1" = --version ] && echo "Version: 4.1.1" && exit' \
        'echo "Error (criu/kerndat.c:1): no such luck"; exit 1' >"$root/opt/no-criu/criu"
    chmod 755 "$root/opt/no-criu/criu"
    cp "$root/etc/gleaner/agent.toml" "$root/opt/no-criu/agent.toml"
    printf '[moves]\ncriu = "/opt/no-criu"\n' >>"$root/etc/gleaner/agent.toml"
    in_machine b root 'systemctl restart gleaner-agent'
    until_so 30 answers b
    said=$(in_machine b ada "sudo glean doctor --agent || :; sudo journalctl -u gleaner-agent")
    in_machine b root 'mv /opt/no-criu/agent.toml /etc/gleaner/; rm -r /opt/no-criu; systemctl restart gleaner-agent'
    until_so 30 answers b
    echo "$said"
    tell "$(echo "$said" | sed -n 's/.*WARN \(.*no such luck\).*/\1/p')"
    echo "$said" | grep -q '^moves *SICK .*no such luck'
    echo "$said" | grep -q 'WARN guests are not moved .*no such luck'
}

# The coordinator's machine boots again under a guest on the other one and with work to do.
reboot() {
    local guest job first
    in_machine a ada 'sudo glean workstations drain ws-a'
    guest=$(counting suspend 200)
    until_so 30 runs "$guest"
    in_machine a ada 'sudo glean workstations undrain ws-a'
    job=$(submit "--count 8 -- sh -c 'sleep 2; echo done'")
    first=$(first_process a)
    in_machine a root 'systemctl reboot' || :
    until_so 60 booted_again a "$first"
    until_so 60 answers a
    until_so 60 answers b
    until_so 120 has_ended "$job"
    until_so 120 has_ended "$guest"
    has_counted "$guest" 200
    [ "$(job_line "$guest" | field attempts)" = 1 ]
    tell "the other one's guest went on; $(in_machine a ada "glean job $job --json" | head -n 1 | field lost) of 8 lost with their workstation"
}
booted_again() { local now; now=$(first_process "$1") && [ "$now" != "$2" ] && is_up "$1"; }

# main_program MACHINE UNIT: a hash of what the service runs.
main_program() {
    in_machine "$1" root "sha256sum </proc/\$(systemctl show --value --property MainPID $2)/exe"
}

# Another binary: an ELF file may have anything after its end.
upgrade() {
    local job new unit
    job=$(submit "--count 6 -- sh -c 'sleep 2; echo done'")
    for machine in $MACHINES; do
        { cat "$glean"; echo newer; } >"$work/$machine/root/home/ada/glean"
        chmod 755 "$work/$machine/root/home/ada/glean"
    done
    new=$(in_machine a root 'sha256sum <glean')
    in_machine a ada 'sudo ./glean coordinator install; sudo ./glean collector install'
    for machine in $MACHINES; do in_machine "$machine" ada 'sudo ./glean agent install'; done
    for unit in coordinator collector agent; do
        [ "$(main_program a "gleaner-$unit")" = "$new" ]
    done
    [ "$(main_program b gleaner-agent)" = "$new" ]
    until_so 120 has_ended "$job"
    tell "a job went on"
}

left_of() {
    all_there "$1" | diff "$work/$1/before" - | grep '^[<>]' | grep -v -e '/etc/\(passwd\|group\|g\?shadow\|sub[ug]id\)-$' || :
    in_machine "$1" root 'systemctl list-units --all --plain --no-legend "glean*"
        find /sys/fs/cgroup /run /tmp /var/tmp /var/lib/systemd -xdev -name "*glean*" 2>/dev/null
        pgrep -l glean' || :
}

uninstall() {
    local left
    in_machine b ada 'sudo glean agent uninstall --purge'
    in_machine a ada 'sudo glean agent uninstall --purge; sudo glean collector uninstall --purge
        sudo glean coordinator uninstall --purge'
    left=$(for machine in $MACHINES; do left_of "$machine"; done)
    echo "$left"
    [ -z "$left" ]
    tell "no user, file, unit, process or control group is left"
}

# -- In this order -----------------------------------------------------------

begin_table "$(uname -r)" "$(sed -n 's/^Version: //p' <(chroot "$tree" dpkg -s systemd))"
cat "$table"
for machine in $MACHINES; do step - "boot container ws-$machine" boot "$machine"; done
step - "copy the binary" put_binaries
step coordinator "install it" install_coordinator
step collector "install it" install_collector
for machine in $MACHINES; do step agent "install it on ws-$machine" install_agent "$machine"; done
step coordinator "systemd-analyze security under 3" score gleaner-coordinator.service 30
step collector "systemd-analyze security under 3" score gleaner-collector.service 30
step agent "systemd-analyze security, 7.9 at most" score gleaner-agent.service 79
for machine in $MACHINES; do step agent "doctor on ws-$machine" doctor "$machine"; done
step all "the README's first commands of a user" use_it
step agent "move a guest there and back" move
step agent "doctor judges from inside the unit, which has a filter now" doctor_within
step agent "CRIU's own words reach the agent's log and doctor" criu_within
step all "reboot the coordinator's machine" reboot
step all "upgrade, with a job at work" upgrade
step all "uninstall --purge" uninstall
finish
