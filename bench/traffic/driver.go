package traffic

import (
	"strings"

	"github.com/safchain/ethtool"
)

// driverLosses are a driver's own counters whose names speak of losses ("rx_queue_0_xdp_tx_errors", "tx_dropped");
// none when it has no counters of its own.
func driverLosses(name string) map[string]uint64 {
	eth, err := ethtool.NewEthtool()
	if err != nil {
		return nil
	}
	defer eth.Close()
	all, err := eth.Stats(name)
	if err != nil {
		return nil
	}
	for k := range all {
		lossy := false
		for _, word := range []string{"drop", "err", "full", "discard", "miss"} {
			lossy = lossy || strings.Contains(k, word)
		}
		if !lossy {
			delete(all, k)
		}
	}
	return all
}
