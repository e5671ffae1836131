#!/bin/bash
# The same in a virtual machine with Debian 13's own kernel, which drops an effective user at
# an exec under NoNewPrivileges, and with a PS/2 keyboard: inside-vm.sh is what is done there.
# Without acceleration it takes some minutes.
set -u
repository=$(cd "$(dirname "$0")/../.." && pwd)
. "$repository/tests/units/common.sh"

vm=$work/vm
MINUTES_MAX=25

# A disk of the tree with what is tested.
make_disk() {
    mkdir -p "$vm/upper" "$vm/scratch" "$vm/root"
    mount -t overlay overlay "$vm/root" -o "lowerdir=$tree,upperdir=$vm/upper,workdir=$vm/scratch"
    mkdir -p "$vm/root/units/repository/target/demo" "$vm/root/units/repository/tests"
    cp "$readme" "$vm/root/units/repository/"
    cp -r "$repository/tests/units" "$vm/root/units/repository/tests/"
    cp "$glean" "$vm/root/units/repository/target/demo/"
    echo ws-a >"$vm/root/etc/hostname"
    printf '127.0.0.1 localhost ws-a coordinator.lab\n' >"$vm/root/etc/hosts"
    cp "$repository"/tests/units/units* "$vm/root/etc/systemd/system/"
    ln -s ../units-test.service "$vm/root/etc/systemd/system/multi-user.target.wants/"
    mke2fs -q -t ext4 -d "$vm/root" "$vm/disk" 3G
    umount "$vm/root"
}

start_vm() {
    mkfifo "$vm/monitor.in" "$vm/monitor.out"
    # Somebody must read what it says.
    cat "$vm/monitor.out" >"$vm/monitor.log" &
    timeout $((MINUTES_MAX * 60)) qemu-system-x86_64 -machine pc -accel tcg,thread=multi -smp 2 -m 2048 -display none \
        -kernel "$tree/vmlinuz" -initrd "$tree/initrd.img" \
        -append 'root=/dev/vda rw console=ttyS0 quiet' \
        -drive "file=$vm/disk,format=raw,if=virtio,cache=unsafe" \
        -serial "file:$vm/console.log" -monitor "pipe:$vm/monitor" \
        -device virtio-serial -chardev "file,id=said,path=$vm/said" \
        -device virtserialport,chardev=said,name=units >"$vm/qemu.log" 2>&1 &
    qemu=$!
    exec 5>"$vm/monitor.in"
}

stop_vm() {
    [ -z "${qemu:-}" ] || kill "$qemu" 2>/dev/null
    mountpoint -q "$vm/root" && umount --lazy "$vm/root"
    rm -rf "$vm/disk" "$vm/upper" "$vm/scratch" "$vm/monitor.in" "$vm/monitor.out"
}

# Shows what it says, and presses a key when it asks for that. Shift types nothing: a
# terminal hears nothing of it, the keyboard does.
listen() {
    local line
    tail -n +1 --retry --follow=name --pid="$qemu" "$vm/said" 2>/dev/null | while read -r line; do
        case $line in
            PRESS) echo 'sendkey shift' >&5 ;;
            ENDED*) echo "${line#ENDED }" >"$vm/failures"; echo quit >&5; return ;;
            *) echo "$line"; case $line in "| "*) echo "$line" >>"$table" ;; esac ;;
        esac
    done
}

mkdir -p "$work"
[ -x "$glean" ] || give_up "no $glean: cargo build --profile demo -p gleaner-cli"
packages mmdebstrap=mmdebstrap qemu-system-x86_64=qemu-system-x86 mke2fs=e2fsprogs
make_tree
trap stop_vm EXIT
trap 'exit 1' INT TERM
stop_vm
rm -rf "$vm"
mkdir -p "$vm"
make_disk
table=$work/table-vm.md
: >"$table"
begin=$(date +%s)
start_vm
listen
failures=$(cat "$vm/failures" 2>/dev/null) || { failures=1; say "the VM ended, or took longer than $MINUTES_MAX min"; }
say "the VM has taken $(($(date +%s) - begin)) s; its console is in $vm/console.log"
finish
