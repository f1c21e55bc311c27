package dataplane

import (
	"time"

	"gradnic/wire/inet"
)

// conflictEvery is how often a lane may say that the NIC's address has two owners.
const conflictEvery = int64(10 * time.Second)

// sayConflict logs that another station announces the NIC's address as its own. What workers send goes to whom they have
// heard last.
func (l *lane) sayConflict(port int, mac inet.MAC) {
	if l.conflict != 0 && l.now-l.conflict < conflictEvery {
		return
	}
	l.conflict = l.now
	l.log.Warn("another station has the NIC's address", "ip", l.cfg.IP.String(), "mac", mac.String(), "port", l.ports[port].name)
}
