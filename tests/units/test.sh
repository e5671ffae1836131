#!/bin/bash
# Lives the README under a real systemd: two containers of Debian 13, one with the
# coordinator and the collector, both workstations. The commands are the README's own.
# A table of what was done is printed and left in target/units/table.md.
set -u
repository=$(cd "$(dirname "$0")/../.." && pwd)
. "$repository/tests/units/common.sh"
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

# `cargo build` and the copy are the README's words; here they are a copy.
put_binary() {
    grep -q 'copy `target/release/glean` to `/usr/local/bin`' "$readme"
    for machine in $MACHINES; do
        all_there "$machine" >"$work/$machine/before"
        install -m 755 "$glean" "$work/$machine/root/usr/local/bin/glean"
    done
}

# lines HEADING BLOCK PATTERN: those lines of the README that match.
lines() { readme "$1" "$2" | grep -- "$3"; }

install_coordinator() { in_machine a ada "$(lines 'Install it in a lab' 1 'coordinator install')"; }
install_collector() { in_machine a ada "$(lines 'Install it in a lab' 1 'collector install')"; }

# Containers share this machine's load with everything else that runs here.
configure() {
    mkdir -p "$work/$1/root/etc/gleaner"
    cat >"$work/$1/root/etc/gleaner/agent.toml" <<END
places = 1
[criteria]
quiet = "2s"
load_idle_max = 1000.0
load_quiet = "1s"
rise_cores = 1000.0
END
}

install_agent() {
    local token
    configure "$1"
    token=$(in_machine a ada "$(lines 'Install it in a lab' 1 'token create --role agent')")
    in_machine "$1" ada "$(readme 'Install it in a lab' 2 | sed "s/glean-…/$token/")"
}

# score UNIT: what systemd says of it, and no more than MOST tenths.
score() {
    local said
    said=$(in_machine a root "systemd-analyze --no-pager --threshold=$2 security $1")
    tell "$(echo "$said" | sed -n 's/.*exposure level for [^:]*: \([0-9.]* [A-Z]*\).*/\1/p')"
}

doctor() {
    local said
    said=$(in_machine "$1" ada "sudo glean doctor --agent")
    echo "$said"
    tell "$(echo "$said" | sed -n 's/^moves *\(.*\)/moves \1/p')"
    echo "$said" | grep -q '^moves *well .*(as the agent found)'
}

use_it() {
    local token
    token=$(in_machine a ada 'sudo glean token create --role user')
    in_machine a ada '
        printf "%s\n" "import os" "open(os.environ[\"GLEAN_OUTPUT\"] + \"/it\", \"w\").write(\"x\")" "print(1)" >model.py
        printf "%s\n" "#!/bin/sh" "echo done" >simulate; chmod +x simulate'
    # The job and the workstation that this lab has.
    in_machine a ada "$(readme 'Use it' 1 | sed "s/glean-…/$token/; s/\b7\b/1/; s/ws-042/ws-b/")"
    [ "$(in_machine a ada 'ls results' | wc -l)" = 20 ]
}

# number_of SCRIPT: the job that it submits.
submit() { in_machine a ada "glean submit $1" | tail -n 1; }

job_line() { in_machine a ada "glean job $1 --json" | tail -n 1; }
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }
runs() { [ "$(job_line "$1" | field state)" = running ]; }
has_ended() { [ "$(job_line "$1" | field state)" = succeeded ]; }
has_moved() { [ "$(job_line "$1" | field moves)" -ge "$2" ]; }

# A guest that counts, and would begin again if it began again.
counting() { submit "--on-busy $1 -- sh -c 'i=0; while [ \$i -lt $2 ]; do i=\$((i+1)); echo \$i; sleep 0.2; done'"; }
has_counted() { [ "$(in_machine a ada "glean logs $1.0" | sort -n | uniq | wc -l)" = "$2" ] &&
    [ "$(in_machine a ada "glean logs $1.0" | wc -l)" = "$2" ]; }

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
    [ "$(job_line "$job" | field attempts)" -ge 1 ]
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

answers() { in_machine "$1" ada 'glean agent status' | grep -q ': connected$'; }

# The coordinator's machine boots again under a guest on the other one and with work to do.
reboot() {
    local guest job first
    guest=$(counting suspend 200)
    job=$(submit "--count 8 -- sh -c 'sleep 2; echo done'")
    until_so 30 runs "$guest"
    first=$(first_process a)
    in_machine a root 'systemctl reboot' || :
    until_so 60 booted_again a "$first"
    until_so 60 answers a
    until_so 60 answers b
    until_so 120 has_ended "$job"
    until_so 120 has_ended "$guest"
    has_counted "$guest" 200
    tell "$(in_machine a ada "glean job $job --json" | head -n 1 | field lost) of 8 lost with their workstation"
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
step - "copy the binary" put_binary
step coordinator "install it" install_coordinator
step collector "install it" install_collector
for machine in $MACHINES; do step agent "install it on ws-$machine" install_agent "$machine"; done
step coordinator "systemd-analyze security under 3" score gleaner-coordinator.service 30
step collector "systemd-analyze security under 3" score gleaner-collector.service 30
step agent "systemd-analyze security" score gleaner-agent.service 80
for machine in $MACHINES; do step agent "doctor on ws-$machine" doctor "$machine"; done
step all "the README's first commands of a user" use_it
step agent "move a guest there and back" move
step agent "doctor judges from inside the unit, which has a filter now" doctor_within
step all "reboot the coordinator's machine" reboot
step all "upgrade, with a job at work" upgrade
step all "uninstall --purge" uninstall
finish
