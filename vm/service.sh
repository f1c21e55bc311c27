#!/bin/bash
# The guest's part of vm/systemd.sh: installs the service as docs/operate.md says, and does to it what happens to services.
set -euo pipefail
page=docs/operate.md
unit=gradnic.service

finish() {
	local status=$?
	if ((status != 0)); then
		systemctl status --no-pager -l "$unit" || true
		journalctl --no-pager -u "$unit" | tail -60
		echo "service: FAILED"
	fi
	systemctl poweroff --force --force
}
trap finish EXIT

say() { echo "service: $*"; }
fail() {
	say "$*"
	exit 1
}
# within SECONDS COMMAND...: the command succeeds sooner or later.
within() {
	local until=$((SECONDS + $1))
	shift
	until "$@" >/tmp/said 2>&1; do
		((SECONDS < until)) || fail "$*: $(cat /tmp/said)"
		sleep 0.5
	done
}
# expect TEXT COMMAND...: the command succeeds and prints TEXT.
expect() {
	local want=$1 got
	shift
	got=$("$@" 2>&1) || fail "$*: status $?: $got"
	grep -qF -- "$want" <<<"$got" || fail "$*: no \"$want\" in: $got"
}
machine() {
	ip link add eth1 type veth peer name w0 address 02:00:00:00:00:01
	ip link set w0 netns worker
	ip link set eth1 up
	ip -n worker addr add 10.50.0.1/24 dev w0
	ip -n worker link set w0 up
}
answers() { gradnic show nic; }
up() { gradnic show port eth1 | grep -q '^state *up'; }
gro() { ethtool -k eth1 | grep -q "^generic-receive-offload: $1"; }
train() {
	expect " 0" timeout 120 ip netns exec worker gradnic worker --protocol native --nic 10.50.0.254 --number 1 --rank 0 --workers 1 --ip 10.50.0.1 \
		--random 4096 --check --timeout 90s
}
main() { systemctl show -p MainPID --value "$unit"; }

for module in /modules/*.ko; do
	insmod "$module"
done
ip link set lo up
ip netns add worker
machine

say "installed as the page says"
awk '/^## As a service/ {on = 1} /^## / && !/As a service/ {on = 0} on && /^    / {sub(/^    /, ""); print}' "$page" >steps
grep -q '^CGO_ENABLED=0 go build .*-o /usr/local/bin/gradnic ' steps || fail "the page builds something else: $(cat steps)"
install gradnic.new /usr/local/bin/gradnic # built elsewhere
sed -i '/^CGO_ENABLED=0 go build/d' steps
(($(wc -l <steps) >= 5)) || fail "few steps: $(cat steps)"
gro off || fail "a new veth has GRO"
sed -i 's,^gradnic run .*--check$,echo "feature: [gro=on]" >>/etc/gradnic/gradnic.yaml\n&,' steps
bash -euxo pipefail steps || fail "a step failed"
within 60 answers
within 60 up
gro on || fail "the interface was not set"

say "its rights"
status() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$(main)/status"; }
[[ $(status Uid | cut -f1) == "$(id -u gradnic)" ]] || fail "it runs as $(status Uid)"
for set in CapPrm CapEff CapBnd; do
	[[ $(status $set) == 0000008000003000 ]] || fail "$set is $(status $set), not net_admin, net_raw and bpf"
done
[[ $(status Seccomp) == 2 ]] || fail "system calls are not filtered"

say "it works: a job of its own protocol, one that the kernel adds up"
expect "job train installed" gradnic install job train --protocol native --number 1 --workers 1
train
expect "installed" gradnic install job sums --in-kernel --workers 1 --member 0=02:00:00:00:00:09,10.50.0.9,eth1
expect "nothing is missing" gradnic doctor eth1

say "reloaded"
echo "log-level: debug" >>/etc/gradnic/gradnic.yaml
before=$(main)
systemctl reload "$unit"
within 30 bash -c "journalctl -u $unit | grep -q '\"key\":\"log-level\"'"
[[ $(main) == "$before" ]] || fail "it was restarted"

say "killed: back with its jobs"
kill -KILL "$before"
within 60 answers
within 60 up
[[ $(main) != "$before" ]] || fail "it was not killed"
expect "train" gradnic show jobs
expect "sums" gradnic show jobs
train

say "its interface is made again"
ip link del eth1
within 30 bash -c "! (gradnic show port eth1 | grep -q '^state *up')"
machine
within 60 up
train

say "killed for good: nothing is left"
mkdir -p /run/systemd/system/gradnic.service.d
printf '[Service]\nRestart=no\n' >/run/systemd/system/gradnic.service.d/once.conf
systemctl daemon-reload
gro on || fail "the interface made again was not set"
kill -KILL "$(main)"
within 30 systemctl is-failed "$unit"
gro off || fail "the interface is still set after a kill"
if ip -d link show eth1 | grep -q xdp; then fail "a program is left"; fi

say "stopped: nothing is left"
systemctl reset-failed "$unit"
systemctl start "$unit"
within 60 up
gro on || fail "the interface was not set again"
systemctl stop "$unit"
expect "inactive" bash -c "systemctl is-active $unit || true"
gro off || fail "the interface is still set after a stop"
if ip -d link show eth1 | grep -q xdp; then fail "a program is left"; fi
say "all right"
