package demo

import (
	"gradnic/dataplane"
	"gradnic/worker"
)

// memFabric is a port in memory for each worker.
type memFabric struct{ wires []*dataplane.MemPort }

func newMemFabric(o *Options) *memFabric {
	f := &memFabric{}
	for rank := range o.Workers {
		f.wires = append(f.wires, dataplane.NewMemPort(portName(rank)))
	}
	return f
}

func (f *memFabric) ports() []dataplane.PortSpec {
	specs := make([]dataplane.PortSpec, len(f.wires))
	for rank, wire := range f.wires {
		specs[rank] = wire
	}
	return specs
}

// framesPerQueue keeps eight ports below the 8 MiB that an unprivileged process may lock by default.
func (f *memFabric) framesPerQueue() int { return 256 }

func (f *memFabric) attach(rank int, cfg *worker.Config) error {
	cfg.Link = f.wires[rank]
	return nil
}

func (f *memFabric) close() error { return nil } // the NIC has closed its ports
