package demo

import (
	"fmt"
	"net"

	"gradnic/dataplane"
	"gradnic/internal/netlab"
	"gradnic/worker"
	"gradnic/xdp"
)

// labPrefix starts the names of the demo's namespaces, and bounds what the next run sweeps after one was killed.
const labPrefix = "gradnicdemo"

// xdpModes are the modes by the names that Options.Mode takes.
var xdpModes = map[string]xdp.Mode{"auto": xdp.Auto, "native": xdp.Native, "generic": xdp.Generic}

// vethFabric is a namespace a worker, one for the NIC, and veth pairs between.
type vethFabric struct {
	lab     *netlab.Lab
	nic     *netlab.NS
	workers []*netlab.NS
	mode    xdp.Mode
}

func newVethFabric(o *Options) (f *vethFabric, err error) {
	lab, err := netlab.New(labPrefix)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lab.Close()
		}
	}()
	f = &vethFabric{lab: lab, mode: xdpModes[o.Mode]}
	if f.nic, err = lab.Namespace("nic"); err != nil {
		return nil, err
	}
	for rank := range o.Workers {
		ns, err := lab.Namespace(fmt.Sprintf("w%d", rank))
		if err != nil {
			return nil, err
		}
		f.workers = append(f.workers, ns)
		if err := lab.Veth(
			netlab.End{NS: ns, Name: "eth0", MAC: workerMAC(rank).String(), Addr: workerIP(rank).String() + "/24"},
			netlab.End{NS: f.nic, Name: portName(rank)},
		); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *vethFabric) ports() []dataplane.PortSpec {
	specs := make([]dataplane.PortSpec, len(f.workers))
	for rank := range specs {
		specs[rank] = dataplane.XDPPort{Interface: portName(rank), Namespace: f.nic.Do, Mode: f.mode}
	}
	return specs
}

// framesPerQueue leaves room for frames that are sent again.
func (f *vethFabric) framesPerQueue() int { return 1024 }

// attach opens the worker's socket in its namespace.
func (f *vethFabric) attach(rank int, cfg *worker.Config) error {
	return f.workers[rank].Do(func() (err error) {
		ip := workerIP(rank)
		cfg.Conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: ip[:], Port: cfg.Port})
		return err
	})
}

func (f *vethFabric) close() error { return f.lab.Close() }
