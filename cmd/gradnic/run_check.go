package main

import (
	"gradnic/control/daemon"
	"gradnic/dataplane"
)

// checkValues refuses values of flags that mean nothing on any machine: the command line is wrong, not what it runs on.
// Some of them are a zero that the packages below read as "the default", which nobody who writes a number means.
func checkValues(o *daemon.Options) error {
	n := &o.NIC
	switch {
	case n.Lanes < 1:
		return usageErrorf("--lanes %d: legal are 1 to %d", n.Lanes, dataplane.MaxLanes)
	case n.Spin < 0:
		return usageErrorf("--spin %v: a time from 0 (sleep at once)", n.Spin)
	case n.FramesPerQueue == 0:
		return usageErrorf("--frames 0: legal are powers of two from %d to %d", dataplane.MinFramesPerQueue, dataplane.MaxFramesPerQueue)
	case n.ChunkSize == 0:
		return usageErrorf("--chunk 0: legal are 2048 and 4096")
	case o.SwitchMLSlots < 1 || o.SwitchMLSlots > dataplane.MaxSlots:
		return usageErrorf("--switchml-slots %d: legal are 1 to %d", o.SwitchMLSlots, dataplane.MaxSlots)
	case o.StopTimeout <= 0:
		return usageErrorf("--stop-timeout %v: a time above 0", o.StopTimeout)
	}
	for _, cpu := range n.CPUs {
		if cpu < 0 {
			return usageErrorf("--cpus %d: CPUs are numbered from 0", cpu)
		}
	}
	if n.Spin == 0 {
		n.Spin = -1 // the data plane's word for not at all
	}
	if _, err := dataplane.New(*n, o.Ports...); err != nil {
		return usageErrorf("%w", err)
	}
	return nil
}
