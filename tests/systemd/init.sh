#!/bin/bash
# PID 1 of a new PID namespace, in cgroups of its own: builds a root and becomes systemd. Started by machine.py.
#
#   init.sh WORK STATE UNITS OPT HIERARCHY DISK ENABLE
#
# WORK: an empty directory. STATE: kept as /var/lib and /var/log; with DISK on an ext4 image in it. UNITS: its content
# becomes /etc/systemd/system. OPT: becomes /opt. HIERARCHY: hybrid or unified. ENABLE: units that the boot starts.
# The root is an overlay of the host's whose writes vanish; the network is private.
set -eu
work=$1 state=$2 units=$3 opt=$4 hierarchy=$5 disk=$6 enable=$7 r=$1/root

mount --make-rprivate /
if [ -n "$disk" ]; then mkdir -p "$state/mnt"; mount -o loop "$state/disk.img" "$state/mnt"; state+=/mnt; fi
mkdir -p "$state"/{lib,log/journal} "$work"
# The overlay's upper layer may not lie on the lower one's file system.
mount -t tmpfs -o mode=755 tmpfs "$work"
mkdir "$work"/{upper,work,root}
mount -t overlay -o lowerdir=/,upperdir="$work/upper",workdir="$work/work" overlay "$r"
mount -t proc proc "$r/proc"
mount --bind "$r/proc/sys" "$r/proc/sys"
mount -o remount,bind,ro "$r/proc/sys" # or systemd-sysctl would change the sysctls of the host
cat /proc/sys/kernel/random/uuid >"$work/boot_id" # a boot of its own, as after any reboot
chmod 444 "$work/boot_id"
mount --bind "$work/boot_id" "$r/proc/sys/kernel/random/boot_id"
mount -t sysfs -o ro sysfs "$r/sys" # read-only: udevd and its friends skip themselves
if [ "$hierarchy" = unified ]; then
  mount -t cgroup2 cgroup2 "$r/sys/fs/cgroup"
else
  mount -t tmpfs -o mode=755 tmpfs "$r/sys/fs/cgroup"
  mkdir "$r"/sys/fs/cgroup/{unified,systemd}
  mount -t cgroup2 cgroup2 "$r/sys/fs/cgroup/unified"
  mount -t cgroup -o none,name=systemd cgroup "$r/sys/fs/cgroup/systemd"
  for c in $(sed -nE 's/^[1-9][0-9]*:([a-z,_]+):.*/\1/p' /proc/self/cgroup | grep -vx cpuset); do
    mkdir "$r/sys/fs/cgroup/$c"
    mount -t cgroup -o "$c" cgroup "$r/sys/fs/cgroup/$c"
  done
fi
mount -t tmpfs -o mode=755 tmpfs "$r/dev"
for d in null zero full random urandom tty; do touch "$r/dev/$d"; mount --bind "/dev/$d" "$r/dev/$d"; done
mkdir "$r"/dev/{pts,shm}
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$r/dev/pts"
ln -s pts/ptmx "$r/dev/ptmx"
ln -s /proc/self/fd "$r/dev/fd"
mount -t tmpfs -o mode=1777 tmpfs "$r/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$r/run"
cp -p "$work/boot_id" "$r/run/boot_id" # for units that get a /proc of their own (ProtectProc=), as ours does
mount -t tmpfs -o mode=755 tmpfs "$r/etc/systemd/system" # hides the services of the host
cp -a "$units/." "$r/etc/systemd/system/"
mkdir -p "$r/opt"
mount --bind "$opt" "$r/opt"
mount --bind "$state/lib" "$r/var/lib"
mount --bind "$state/log" "$r/var/log"
mount -t tmpfs -o mode=1777 tmpfs "$r/tmp" # last: it hides what the binds above were made from
for d in getty.target systemd-logind.service systemd-user-sessions.service systemd-networkd.service \
  systemd-modules-load.service systemd-timesyncd.service systemd-resolved.service; do
  ln -sfn /dev/null "$r/etc/systemd/system/$d"
done
for d in $enable; do systemctl -q --root="$r" enable "$d"; done
echo sdtest >"$r/etc/hostname"
: >"$r/etc/fstab"
cd "$r"
mkdir -p run/old
pivot_root . run/old
umount -l run/old
rmdir run/old
mount --make-rshared / # LoadCredential= reaches services by mount propagation
systemd-sysusers /opt/onward.sysusers
exec env -i container=sdtest PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --unit=multi-user.target --show-status=no </dev/null >/dev/null 2>&1
