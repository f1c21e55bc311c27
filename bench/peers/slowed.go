package peers

import (
	"time"
)

// slowed is rings that dawdle: a device that is known to be slow, for tests of the bench.
func startSlowed(on Target) (Peer, error) {
	p, err := newRings(on)
	if err != nil {
		return nil, err
	}
	const each = 20 * time.Microsecond
	p.start(on.CPU, func() error {
		before := p.sum.Received
		if err := p.reflect(); err != nil {
			return err
		}
		for until := time.Now().Add(time.Duration(p.sum.Received-before) * each); time.Now().Before(until); {
		}
		return nil
	})
	return p, nil
}
