# What is done in a lab, whatever its machines are: `in_machine MACHINE USER SCRIPT` runs a
# shell on one, and the coordinator is on the machine a. To be read after common.sh.

# put_binary ROOT: `cargo build` and a copy are the README's words; here it is a copy.
put_binary() {
    grep -q 'copy `target/release/glean` to `/usr/local/bin`' "$readme"
    install -m 755 "$glean" "$1/usr/local/bin/glean"
}

# lines HEADING BLOCK PATTERN: those lines of the README that match.
lines() { readme "$1" "$2" | grep -- "$3"; }

install_coordinator() { in_machine a ada "$(lines 'Install it in a lab' 1 'coordinator install')"; }
install_collector() { in_machine a ada "$(lines 'Install it in a lab' 1 'collector install')"; }

# Containers share this machine's load with everything else that runs here, and a VM
# without acceleration has some of its own.
configure() {
    mkdir -p "$1/etc/gleaner"
    cat >"$1/etc/gleaner/agent.toml" <<END
places = 1
log = "debug"
[criteria]
quiet = "${quiet:-3s}"
load_idle_max = 1000.0
load_quiet = "1s"
rise_cores = 1000.0
END
}

install_agent() {
    local token
    token=$(in_machine a ada "$(lines 'Install it in a lab' 1 'token create --role agent')")
    in_machine "$1" ada "$(readme 'Install it in a lab' 2 | sed "s/glean-…/$token/")"
}

answers() { in_machine "$1" ada 'glean agent status' | grep -q ': connected$'; }

# score UNIT MOST: what systemd says of it, and no more than MOST tenths.
score() {
    local said
    said=$(in_machine a root "systemd-analyze --no-pager --threshold=$2 security $1")
    tell "$(echo "$said" | sed -n 's/.*exposure level for [^:]*: \([0-9.]* [A-Z]*\).*/\1/p')"
}

doctor() {
    local said
    said=$(in_machine "$1" ada "sudo glean doctor --agent || :")
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

# submit WORDS: the number of a new job.
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

# explain MACHINE ..: what a failed step leaves to be read.
explain() {
    local machine
    in_machine a ada 'glean job "$(glean jobs --json | sed "s/.*\"job\":\([0-9]*\),.*/\1/" | sort -n | tail -n 1)"; glean workstations --long'
    for machine; do
        in_machine "$machine" root 'glean agent status; journalctl --no-pager --lines 60 --unit "gleaner-*"'
    done
}
