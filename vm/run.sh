#!/usr/bin/env bash
# Runs the tests of vm/guest and xdp's socket tests on other kernels: run.sh [--fetch] [VERSION...], as in run.sh 6.1 6.12.
# --fetch only sees to it that tools and kernels are there.
# Each kernel is Debian's, fetched by apt-get download and kept in build/vm, and boots under software emulation with
# an initramfs of two static test binaries, gradnic, a shell and the drivers. Nothing is installed and no rights are needed. Exit status
# 0: every test passed on every kernel; 1: something failed; 77: a tool or a kernel cannot be had here, nothing was run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PATH:/usr/sbin:/sbin
dir=$PWD/build/vm
mkdir -p "$dir"

# The tests of xdp that ask something of the kernel. Left out: those on pure memory, and those that need tools or much
# memory of the host, and those that bound how long things take.
readonly socket_tests='^Test(OneKickSendsAll|RecycledAddresses|OpenAndClose|HeldQueue|SocketsKeep|RingsOfDifferent|LossIsCounted|ModesOfOne|Anchor|MultiBuffer|LiveSockets|Attach|ForeignProgram|QueuesShare|UMEMWithoutAnchor|InterfaceDown|HugePages|Verdicts|NothingIsTaken|Ports|BindChecks|BudgetsCharge|BudgetsChange|BudgetsFollow|ReflectedFrame|Account$|AnswersAre|SumVerdicts|SumsNeed|SumOver)'
# Modules besides those they need.
readonly modules=(virtio_pci virtio_net vmxnet3 e1000e veth pktgen)

missing() {
	echo "=== VM: $*" >&2
	exit 77
}

# newest VERSION: the package of the newest kernel of that version; its modules are in it.
newest() {
	apt-cache pkgnames "linux-image-$1." | grep -E "^linux-image-${1//./\\.}\.[0-9][^ ]*-amd64\$" |
		grep -vE -- '-(cloud|rt)-amd64$' | sort -V | tail -1
}

# fetch VERSION: build/vm/VERSION gets vmlinuz and modules.tar, once. A newer kernel is taken after `make clean`.
fetch() {
	local to=$dir/$1 package deb work
	[[ -s $to/release ]] && return
	package=$(newest "$1")
	[[ -n $package ]] || return 1
	rm -rf "$to"
	mkdir -p "$to"
	work=$(mktemp -d "$dir/fetch.XXXXXX")
	# Without this apt says that it downloads as root.
	(cd "$work" && apt-get download -q -o APT::Sandbox::User=root "$package") >&2 || { rm -rf "$work"; return 1; }
	deb=("$work"/*.deb)
	dpkg-deb --fsys-tarfile "${deb[0]}" | tar -x -C "$work" --wildcards './boot/vmlinuz-*' './lib/modules/*/modules.*' \
		'*/kernel/drivers/net/*' '*/kernel/drivers/virtio/*' '*/kernel/drivers/ptp/*' '*/kernel/drivers/pps/*' '*/kernel/net/core/*' \
		'*/kernel/drivers/dca/*'
	local release=${package#linux-image-}
	depmod -b "$work" "$release" 2>/dev/null
	# The order in which they are to be loaded, each once.
	local module path n=0
	mkdir "$to/modules"
	for module in "${modules[@]}"; do
		modprobe -d "$work" -S "$release" --show-depends "$module" | awk '$1 == "insmod" {print $2}'
	done | awk '!seen[$0]++' | while read -r path; do
		module=$(basename "$path")
		n=$((n + 1))
		if [[ $path == *.xz ]]; then
			xz -dc "$path" >"$to/modules/$(printf %02d $n)-${module%.xz}"
		else
			cp "$path" "$to/modules/$(printf %02d $n)-$module"
		fi
	done
	cp "$work"/boot/vmlinuz-* "$to/vmlinuz"
	rm -rf "$work"
	echo "$release" >"$to/release"
}

# fetch_shell: build/vm/busybox, once: the shell that runs scripts in the guest.
fetch_shell() {
	[[ -x $dir/busybox ]] && return
	local work deb
	work=$(mktemp -d "$dir/fetch.XXXXXX")
	(cd "$work" && apt-get download -q -o APT::Sandbox::User=root busybox-static) >&2 || { rm -rf "$work"; return 1; }
	deb=("$work"/*.deb)
	dpkg-deb -x "${deb[0]}" "$work"
	# In bin, or in usr/bin since Debian 13.
	install "$(find "$work" -name busybox -type f -perm -u+x | head -1)" "$dir/busybox"
	rm -rf "$work"
}

# nics: on each of three hubs, a virtio NIC that generates (role 01) and the NIC under test (role 02).
nics() {
	local hub=0 device
	for device in virtio-net-pci vmxnet3 e1000e; do
		printf '%s\n' -netdev "hubport,id=gen$hub,hubid=$hub" -netdev "hubport,id=nut$hub,hubid=$hub" \
			-device "virtio-net-pci,netdev=gen$hub,mac=52:54:00:00:0$hub:01,romfile=" \
			-device "$device,netdev=nut$hub,mac=52:54:00:00:0$hub:02,romfile="
		hub=$((hub + 1))
	done
}

# boot VERSION: runs the tests; judged by what the guest's init says, since a panic of the guest ends qemu with 0.
boot() {
	local at=$dir/$1 log=$dir/$1.log begin=$SECONDS root
	root=$(mktemp -d "$dir/root.XXXXXX")
	mkdir "$root"/{modules,proc,sys,dev,run,tmp,var,bin}
	cp "$at"/modules/* "$root/modules/"
	cp "$dir/guest.test" "$root/init"
	cp "$dir/xdp.test" "$dir/gradnic" "$root/"
	cp "$dir/busybox" "$root/bin/"
	local tool
	for tool in sh sed grep sleep; do
		ln -s busybox "$root/bin/$tool"
	done
	(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$at/initrd"
	rm -rf "$root"
	local -a net
	mapfile -t net < <(nics)
	echo "=== VM: Linux $(<"$at/release")"
	# The init gets what follows "--" as its arguments.
	timeout --foreground -k 5 "${GRADNIC_VM_TIMEOUT:-600}" qemu-system-x86_64 -M q35 -accel tcg,thread=single -cpu max -smp 2 -m 1G -nographic -no-reboot \
		-nodefaults -serial stdio -kernel "$at/vmlinuz" -initrd "$at/initrd" "${net[@]}" \
		-append "console=ttyS0 quiet no_timer_check panic=-1 oops=panic -- -test.v -sockets=$socket_tests" </dev/null 2>&1 |
		tr -d '\r' >"$log" || true
	sed -n -E '/^ *(--- |AF_XDP )/p; /^ok /p' "$log"
	local passed failed skipped
	skipped=$(grep -cE '^ *--- SKIP' "$log" || true)
	passed=$(grep -cE '^ *--- PASS' "$log" || true)
	failed=$(grep -cE '^ *--- FAIL' "$log" || true)
	if grep -qx 'gradnic-vm: all passed' "$log" && ((failed == 0 && skipped == 0 && passed > 30)); then
		echo "=== VM: Linux $(<"$at/release"): $passed passed in $((SECONDS - begin)) s"
		return
	fi
	echo "=== VM: Linux $(<"$at/release"): FAILED, $passed passed, $failed failed, $skipped skipped in $((SECONDS - begin)) s; all of $log:"
	cat "$log"
	return 1
}

for tool in qemu-system-x86_64=qemu-system-x86 cpio=cpio xz=xz-utils depmod=kmod apt-get=apt dpkg-deb=dpkg go=golang; do
	command -v "${tool%%=*}" >/dev/null || missing "${tool%%=*} is not here (Debian package ${tool#*=})"
done
[[ $(uname -m) == x86_64 ]] || missing "kernels and binaries are for x86-64, this is $(uname -m)"
fetch_only=
if [[ ${1:-} == --fetch ]]; then
	fetch_only=1
	shift
fi
(($# > 0)) || set -- 6.1 6.12
for version in "$@"; do
	fetch "$version" || missing "Debian's kernel $version is not to be had (apt-get update?)"
done
fetch_shell || missing "Debian's busybox-static is not to be had (apt-get update?)"
[[ -z $fetch_only ]] || exit 0
CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go vet -tags vm ./vm/guest
CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go test -c -tags vm -o "$dir/guest.test" ./vm/guest
CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go test -c -o "$dir/xdp.test" ./xdp
CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -ldflags='-s -w' -o "$dir/gradnic" ./cmd/gradnic
# All at once: each takes one CPU. Jobs of their own process groups, so that Ctrl-C ends them with their machines.
set -m
declare -A machine
# shellcheck disable=SC2317 # by the trap
end() {
	local pid
	for pid in "${machine[@]}"; do
		kill -- "-$pid" 2>/dev/null || true
	done
}
trap end EXIT
for version in "$@"; do
	boot "$version" >"$dir/$version.out" 2>&1 &
	machine[$version]=$!
done
status=0
for version in "$@"; do
	failed=0
	wait "${machine[$version]}" || failed=1
	unset "machine[$version]"
	cat "$dir/$version.out"
	((failed == 0)) && continue
	# A machine that gets no CPU for seconds fails tests that are right: what failed once may pass the second time, and is said
	# to be flaky. A kernel's panic, which is rare and never right, is not forgiven.
	if grep -q 'Kernel panic' "$dir/$version.log"; then
		status=1
		continue
	fi
	cp "$dir/$version.log" "$dir/$version.failed.log"
	echo "=== VM: Linux $(<"$dir/$version/release"): once more"
	if boot "$version"; then
		echo "=== VM: Linux $(<"$dir/$version/release"): FLAKY: failed first, passed then; the failure is in $dir/$version.failed.log"
	else
		status=1
	fi
done
exit "$status"
