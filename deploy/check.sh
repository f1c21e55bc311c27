#!/usr/bin/env bash
# Checks what lies here: the alert rules by promtool, the service's hardening by systemd-analyze,
# the configuration by gradnic itself. A tool that is missing is said, and fails the check when
# GRADNIC_CHECK_ALL is set (as in CI, which installs them).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

missing() {
	echo "deploy: $1 is not installed: $2 not checked"
	[[ -z "${GRADNIC_CHECK_ALL:-}" ]]
}

if command -v promtool >/dev/null; then
	promtool check rules deploy/alerts.yml
	promtool test rules deploy/alerts_test.yml
else
	missing promtool "alert rules"
fi

if command -v systemd-analyze >/dev/null; then
	# The score is of what the unit allows, from 0 (nothing) to 10; at most 3.0. The threshold's unit is a tenth.
	systemd-analyze security --offline=true --threshold=30 --no-pager deploy/gradnic.service | tail -1
else
	missing systemd-analyze "the unit's hardening"
fi

GOFLAGS='' go run ./cmd/gradnic run -c deploy/gradnic.yaml --check
