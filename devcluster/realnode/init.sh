#!/bin/sh
# The first process of a real node: makes its mounts, then keeps its services running.
# usage: init.sh NODE_DIRECTORY PROGRAMS; run by `node` in new mount, PID and network namespaces.
set -eu
control=$1 programs=$2
disk=$control/disk root=$control/disk/root
kept="vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops
kernel/keys/root_maxkeys kernel/keys/root_maxbytes"

mkdir -p "$disk"
mount -t tmpfs -o size=6g,mode=0755 node "$disk"
mkdir "$disk/upper" "$disk/work" "$root" "$disk/containerd" "$disk/kubelet" "$disk/log"
# Paths that programs have built in are private: nothing stays on the machine.
mount -t overlay -o "lowerdir=/,upperdir=$disk/upper,workdir=$disk/work" node "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs run "$root/run"
mkdir -p "$root/run/cni"
# containerd's snapshots cannot lie on an overlay.
for name in containerd kubelet; do
    mkdir -p "$root/var/lib/$name"
    mount --bind "$disk/$name" "$root/var/lib/$name"
done
mount --bind "$disk/log" "$root/var/log"
mount --make-rshared "$root/var/lib/kubelet"
mkdir -p "$root/opt/cni/bin" "$root/etc/cni/net.d" "$root/node"
mount --bind "$programs" "$root/opt/cni/bin"
mount --bind "$control" "$root/node"
# The kubelet sets these for the whole machine, were they not covered.
number=0
for name in $kept; do
    number=$((number + 1))
    cat "/proc/sys/$name" >"$disk/setting-$number"
    mount --bind "$disk/setting-$number" "$root/proc/sys/$name"
done
cp "$control/cni.conflist" "$root/etc/cni/net.d/10-bindery.conflist"

# Not chroot alone: commands that are run in containers would see the machine's own root, as that of
# the mount namespace stays what it was when runc pivots below a chroot.
mkdir "$root/machine"
cd "$root"
pivot_root . machine
exec chroot . /bin/sh -c '
umount -l /machine
keep() {
    while :; do
        if [ ! -e "/node/hold/$1" ]; then
            sh "/node/services/$1" >>"/node/logs/$1.log" 2>&1 || true
        fi
        sleep 0.2
    done
}
for service in /node/services/*; do
    keep "${service##*/}" &
done
# Processes whose parents have ended become children of this one.
while :; do wait; sleep 1; done
'
