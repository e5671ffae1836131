#!/bin/bash
# What is done inside of the VM, and again after its reboot. Two agents: the machine's own,
# and one more under a copy of its unit, which has no owner.
set -u
repository=/units/repository
export UNITS_DIR=/units/work
. "$repository/tests/units/common.sh"
. "$repository/tests/units/lab.sh"
mkdir -p "$work"
exec 3>&1
MACHINES=a
# A move takes some seconds here, and is called off when the owner has gone again.
quiet=20s
# Asking takes a core of the two, slow as they are.
pause=4

# There is one machine here.
in_machine() {
    local user=$2
    env --ignore-environment PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        USER="$user" HOME=/home/ada setpriv --reuid "$user" --regid "$user" --init-groups \
        sh -ec "cd /home/ada; $3" </dev/null
}

prepare() { put_binary /; configure /; }

# Another agent under the same restrictions: places, users and directories of its own.
second_agent() {
    local token unit=/etc/systemd/system/gleaner-agent.service
    token=$(in_machine a ada "$(lines 'Install it in a lab' 1 'token create --role agent')")
    glean enrol --coordinator coordinator.lab:4433 --name ws-b --token "$token" --identity /etc/gleaner/agent-b
    configure /units/b
    { printf '%s\n' 'identity = "/etc/gleaner/agent-b"' 'data = "/var/lib/gleaner/agent-b"' 'runtime = "/run/gleaner-b"'
      cat /units/b/etc/gleaner/agent.toml
      printf '%s\n' 'required = ["load"]' '[sensors]' 'terminals = []' 'input = "/none"' 'sessions = false' \
          '[guests]' 'uid_base = 62000'
    } >/etc/gleaner/agent-b.toml
    sed -e 's|/etc/gleaner/agent.toml|/etc/gleaner/agent-b.toml|' -e 's|=gleaner/agent$|=gleaner/agent-b|' \
        -e 's|^RuntimeDirectory=gleaner$|RuntimeDirectory=gleaner-b|' "$unit" >"${unit%.service}-b.service"
    systemctl daemon-reload
    systemctl enable --now gleaner-agent-b
    until_so 120 b_answers
}
b_answers() { glean agent status --socket /run/gleaner-b/agent.sock | grep -q ': connected$'; }

status() { glean agent status --json; }

controllers() {
    status
    [ "$(status | grep -c 'cgroup controller')" = 0 ]
    tell "memory, pids and cpu controllers; $(glean agent status | grep -c 'well$') sensors are well"
}

press() { echo PRESS >&3; }

# A key that no terminal hears.
pressed_and_busy() { press; glean agent status | grep '^busy: ' | tee "$work/verdict" | grep -q -v -e tty -e pts -e idle; }

sees_a_key() {
    glean agent status | grep -q '^sensor input well'
    until_so 120 is_idle
    until_so 60 pressed_and_busy
    tell "$(head -n 1 "$work/verdict")"
}
is_idle() { glean agent status | grep -q '^idle'; }

pressed_and_moved() { press; has_moved "$1" 1; }

# A guest leaves the machine when its owner presses a key, and comes back when the other
# agent is paused.
move() {
    local job
    until_so 120 is_idle
    in_machine a ada 'sudo glean workstations drain ws-b'
    job=$(counting migrate 300)
    until_so 60 runs "$job"
    in_machine a ada 'sudo glean workstations undrain ws-b'
    until_so 240 pressed_and_moved "$job"
    job_line "$job" | grep '"workstation":"ws-b"'
    until_so 120 is_idle
    glean agent pause 10min --socket /run/gleaner-b/agent.sock
    until_so 240 has_moved "$job" 2
    glean agent resume --socket /run/gleaner-b/agent.sock
    until_so 300 has_ended "$job"
    has_counted "$job" 300
    tell "there by a key and back by a pause, and it counted to 300 without a gap; stood still $(
        in_machine a ada "glean job $job --json" | head -n 1 | field frozen_s) s in all"
}

before_reboot() {
    until_so 120 is_idle
    submit "--count 6 -- sh -c 'sleep 5; echo done'" >"$work/job"
    until_so 60 runs "$(cat "$work/job")"
}

after_reboot() {
    until_so 180 answers a
    until_so 60 b_answers
    until_so 300 has_ended "$(cat "$work/job")"
}

left() {
    systemctl list-units --all --plain --no-legend 'glean*'
    find / -xdev \( -path /units -o -path /proc -o -path /var/log -o -path /home \) -prune -o -name '*glean*' -print
    find /sys/fs/cgroup /run -name '*glean*'
    grep glean /etc/passwd /etc/group
    pgrep -l glean
    :
}

uninstall() {
    systemctl disable --now gleaner-agent-b
    rm -r /etc/systemd/system/gleaner-agent-b.service /etc/gleaner/agent-b* /var/lib/gleaner/agent-b
    in_machine a ada 'sudo glean agent uninstall --purge; sudo glean coordinator uninstall --purge'
    [ -z "$(left | tee /dev/stderr)" ]
}

of="$(uname -r) | $(dpkg-query --show --showformat '${Version}' systemd)"
if [ ! -e "$work/booted" ]; then
    begin_table "${of% | *}" "${of#* | }"
    cat "$table"
    step - "copy the binary" prepare
    step coordinator "install it" install_coordinator
    step agent "install it" install_agent a
    step agent "all controllers" controllers
    step coordinator "systemd-analyze security under 3" score gleaner-coordinator.service 30
    step agent "systemd-analyze security, 7.9 at most" score gleaner-agent.service 79
    step agent "doctor" doctor a
    step agent "a key of a PS/2 keyboard is seen" sees_a_key
    step agent "a second agent under a copy of the unit" second_agent
    in_machine a ada "glean enrol --coordinator coordinator.lab:4433 --token $(sudo glean token create --role user)"
    step agent "move a guest there and back" move
    step all "submit a job and reboot" before_reboot
    echo "$failures" >"$work/booted"
    systemctl reboot
else
    failures=$(cat "$work/booted")
    step all "after the reboot the agents come back and the job ends" after_reboot
    step all "uninstall --purge" uninstall
    echo "ENDED $failures" >&3
fi
