#!/usr/bin/env bash
# Follows docs/operate.md from the build to the removal, as a new user would, in a network namespace
# of its own: certificates and tenants' commands are taken out of the page as they stand there.
# What systemd does is done by hand: the user, the three capabilities, the directories. Needs root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
page=$PWD/docs/operate.md
unit=$PWD/deploy/gradnic.service
if ((EUID != 0)); then
	echo "walkthrough: needs root, for network namespaces"
	exit 1
fi
ns=gradnic-walk-$$
dir=$(mktemp -d)
pid=""
cleanup() {
	if [[ -n $pid ]]; then kill -KILL "$pid" 2>/dev/null || true; fi
	ip netns del "$ns" 2>/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT

say() { echo "walkthrough: $*"; }
fail() {
	say "FAILED: $*"
	cat "$dir/log" 2>/dev/null || true
	exit 1
}
# expect TEXT COMMAND...: the command succeeds and prints TEXT.
expect() {
	local want=$1 got
	shift
	got=$("$@" 2>&1) || fail "$*: status $?: $got"
	grep -qF -- "$want" <<<"$got" || fail "$*: no \"$want\" in: $got"
}
# refused TEXT COMMAND...: the command fails and prints TEXT.
refused() {
	local want=$1 got
	shift
	if got=$("$@" 2>&1); then fail "$*: it was to be refused: $got"; fi
	grep -qF -- "$want" <<<"$got" || fail "$*: no \"$want\" in: $got"
}
inside() { ip netns exec "$ns" "$@"; }
# block FIRST LAST: the lines of the page from one to another, as commands.
block() { awk -v first="$1" -v last="$2" 'index($0, first) {on = 1} on {sub(/^    /, ""); print} index($0, last) && on {exit}' "$page"; }

say "build, and a machine with one interface"
CGO_ENABLED=0 go build -trimpath -o "$dir/gradnic" ./cmd/gradnic
export PATH=$dir:$PATH
ip netns add "$ns"
inside ip link set lo up
inside ip addr add 10.1.0.1/32 dev lo
inside ip link add eth1 type veth peer name worker
inside ip link set eth1 up
inside ip link set worker up

say "certificates"
cd "$dir"
block "openssl req -x509" "sign ops" >certs.sh
bash -e certs.sh >certs.log 2>&1 || fail "certificates: $(cat certs.log)"
for name in nic team-a ops; do [[ -s $name.pem && -s $name.key ]] || fail "no certificate of $name"; done

say "configuration"
mkdir -m 0750 run
mkdir -m 0700 state
sed -E -e "s,/run/gradnic,$dir/run,; s,/var/lib/gradnic,$dir/state,; s,/etc/gradnic,$dir,; s,^# (tls|quota|  - ),\1," "$OLDPWD/deploy/gradnic.yaml" >gradnic.yaml
# The unit lifts the limit of locked memory; where this script may not, few frames stay below it.
echo "frames: 512" >>gradnic.yaml
echo "feature: [rx-gro-list=on]" >>gradnic.yaml # something to be set back
export GRADNIC_STATE=$dir/run                   # the unit's is /run/gradnic
expect "the configuration is right" gradnic run -c gradnic.yaml --check
refused "did you mean lanes?" gradnic run -c <(echo "lnes: 2") --check

user=$((60000 + $$ % 5000)) # locked memory counts by user
chown -R "$user" "$dir"
chmod 0755 "$dir"
as_service() {
	exec ip netns exec "$ns" setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs --bounding-set -all,+net_raw,+net_admin,+bpf \
		--inh-caps -all,+net_raw,+net_admin,+bpf --ambient-caps +net_raw,+net_admin,+bpf "$@"
}
start() {
	: >ready
	as_service "$dir/gradnic" run -c gradnic.yaml >ready 2>>log &
	pid=$!
	for _ in {1..200}; do
		if grep -q ^ready ready; then return; fi
		kill -0 "$pid" 2>/dev/null || fail "it ended at its start"
		sleep 0.1
	done
	fail "no ready line"
}
say "start"
start
api=(--api "$dir/run/api.sock")
expect "10.50.0.254" gradnic show nic "${api[@]}"

say "first job, by its tenant"
block "export GRADNIC_TLS_CERT" "gradnic install job" >tenant.sh
expect "job train installed" inside bash -e tenant.sh
expect "team-a" gradnic show job train "${api[@]}"
tcp=(--api tcp://10.1.0.1:50051 --tls-ca ca.pem)
expect "train" inside gradnic show jobs "${tcp[@]}" --tls-cert ops.pem --tls-key ops.key
refused "is for administrators" inside gradnic show ports "${tcp[@]}" --tls-cert team-a.pem --tls-key team-a.key
refused "tenant nic has 0 of 2048: 2048 would fit" inside gradnic install job big --workers 2 --slots 4096 "${tcp[@]}" --tls-cert nic.pem --tls-key nic.key

say "watch it"
expect 'gradnic_job_workers{job="train",tenant="team-a"} 8' inside curl -sS http://127.0.0.1:9464/metrics
expect "<td>train</td>" inside curl -sS http://127.0.0.1:9464/
expect "ok" inside curl -sS http://127.0.0.1:9464/healthz
expect '"job":"train"' timeout --preserve-status -s INT 2 gradnic watch jobs -j "${api[@]}"

say "killed, and up again: the interface was set back, the job is there"
kill -KILL "$pid"
wait "$pid" 2>/dev/null || true
after=$(sed -n 's,^ExecStopPost=/usr/local/bin/,,p' "$unit")
[[ -n $after ]] || fail "the unit has no ExecStopPost"
# shellcheck disable=SC2086 # a command and its words
expect "eth1 set back: feature rx-gro-list: on, was off" as_service $after
start
expect "team-a" gradnic show job train "${api[@]}"

say "reload"
echo "log-level: debug" >>gradnic.yaml
kill -HUP "$pid"
for _ in {1..100}; do
	if grep -q '"key":"log-level"' log; then break; fi
	sleep 0.1
done
grep -q '"key":"log-level"' log || fail "SIGHUP changed nothing"

say "remove"
expect "removed" gradnic remove job train "${api[@]}"
kill -TERM "$pid"
wait "$pid" || fail "it did not end well: status $?"
pid=""
if inside ip -d link show eth1 | grep -q "prog/xdp"; then fail "its program is still on eth1"; fi
say "all of docs/operate.md's service part was followed"
