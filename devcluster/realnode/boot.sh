#!/bin/sh
# The first process of a virtual machine's node, on the files of the host (read-only, by 9p).
# usage: boot.sh NODE_DIRECTORY PROGRAMS ADDRESS GATEWAY; becomes init.sh.
set -eu
control=$1 programs=$2 address=$3 gateway=$4
export PATH=/usr/sbin:/usr/bin:/sbin:/bin

# Without a cache: the launcher and the node both write there.
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none node "$control"
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t devpts -o ptmxmode=0666 pts /dev/pts
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
done
# Programs in Go collect garbage less often: memory is plenty, and computing is slow.
export GOGC=400 GOMAXPROCS=2
ip link set lo up
ip address add "$address/24" dev eth0
ip link set eth0 up
ip route add default via "$gateway"
echo 1 >/proc/sys/net/ipv4/ip_forward
exec /bin/sh "${0%/*}/init.sh" "$control" "$programs"
