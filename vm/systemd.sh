#!/usr/bin/env bash
# Runs the shipped service under a real systemd: a virtual machine with a small Debian, in which docs/operate.md's "As a
# service" is followed to the letter, and then what happens to services is done to it (vm/service.sh). Nothing of this machine
# is changed. It needs root for the file system's tree, qemu, cpio, mmdebstrap, and Debian's archive. Exit status as vm/run.sh's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=6.12
dir=$PWD/build/vm
tree=$dir/debian
log=$dir/service.log

missing() {
	echo "=== service: $*" >&2
	exit 77
}
vm/run.sh --fetch "$version"
command -v mmdebstrap >/dev/null || missing "mmdebstrap is not here (Debian package mmdebstrap)"
((EUID == 0)) || missing "needs root: the tree has its files' owners"

if [[ ! -e $tree/complete ]]; then
	rm -rf "$tree"
	echo "=== service: Debian's packages"
	mmdebstrap --quiet --variant=minbase --include=systemd,systemd-sysv,iproute2,kmod,ethtool \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		bookworm "$tree" || missing "Debian is not to be had"
	rm -rf "$tree"/var/cache/apt "$tree"/var/lib/apt/lists
	# The console is the test's.
	for unit in getty@tty1 serial-getty@ttyS0 systemd-logind; do
		ln -sf /dev/null "$tree/etc/systemd/system/$unit.service"
	done
	touch "$tree/complete"
fi

rm -rf "$tree"/{modules,gradnic} "$tree"/etc/{gradnic,sysusers.d/gradnic.conf,systemd/system/gradnic.service}
cp -r "$dir/$version/modules" "$tree/modules"
mkdir "$tree/gradnic"
CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -ldflags='-s -w' -o "$tree/gradnic/gradnic.new" ./cmd/gradnic
cp -r deploy docs vm/service.sh "$tree/gradnic/"
cat >"$tree/etc/systemd/system/check.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
WorkingDirectory=/gradnic
ExecStart=/bin/bash /gradnic/service.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
UNIT
mkdir -p "$tree/etc/systemd/system/multi-user.target.wants"
ln -sf ../check.service "$tree/etc/systemd/system/multi-user.target.wants/check.service"
(cd "$tree" && find . -xdev | cpio -o -H newc --quiet | gzip -1) >"$dir/service.initrd"

echo "=== service: Linux $(<"$dir/$version/release") with systemd"
begin=$SECONDS
timeout -k 5 "${GRADNIC_VM_TIMEOUT:-400}" qemu-system-x86_64 -M q35 -accel tcg,thread=single -cpu max -smp 2 -m 2G -nographic -no-reboot \
	-nodefaults -serial stdio -kernel "$dir/$version/vmlinuz" -initrd "$dir/service.initrd" \
	-append "console=ttyS0 quiet no_timer_check panic=-1 oops=panic rdinit=/sbin/init systemd.show_status=0" </dev/null 2>&1 |
	tr -d '\r' >"$log" || true
rm -f "$dir/service.initrd"
sed -n '/^service: /p' "$log"
if grep -qx 'service: all right' "$log"; then
	echo "=== service: passed in $((SECONDS - begin)) s"
	exit 0
fi
echo "=== service: FAILED in $((SECONDS - begin)) s; all of $log:"
cat "$log"
exit 1
