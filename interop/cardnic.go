package interop

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"gradnic/control/daemon"
	"gradnic/dataplane"
	"gradnic/wire/inet"
)

// CardRun says which card is played on an interface.
type CardRun struct {
	// Interface leads to the workers, all of them.
	Interface string
	// Protocol is native or switchml.
	Protocol string
	// MAC and IP are the card's own.
	MAC inet.MAC
	IP  inet.Addr
	// Workers, Elements and Slots are the native job's, whose number is 1.
	Workers, Elements, Slots int
	// Controller is where SwitchML's workers register, as daemon.Options.SwitchML.
	Controller string
	// Idle is CardOptions.Idle.
	Idle time.Duration
	// Ready is called when workers may come; nil: nothing.
	Ready func() error
}

// RunCard plays a card on an interface for workers that are somebody else's: a NIC of gradnic in memory answers them, and
// PlayCard stands in between.
func RunCard(ctx context.Context, o CardRun) (*Report, error) {
	isNative := o.Protocol == dataplane.ProtocolNative
	switch {
	case !isNative && o.Protocol != dataplane.ProtocolSwitchML:
		return nil, fmt.Errorf("protocol %q: legal are native and switchml", o.Protocol)
	case !isNative && o.Controller == "":
		return nil, errors.New("SwitchML's workers register at a controller: say where it answers (--controller)")
	}
	link, err := OpenLink(o.Interface)
	if err != nil {
		return nil, err
	}
	defer link.Close()
	port := dataplane.NewMemPort("card")
	ready := make(chan struct{})
	d := daemon.Options{
		NIC:   dataplane.Config{MAC: o.MAC, IP: o.IP, Wait: dataplane.Interrupt, LongestFrame: link.MTU + inet.EthernetLen},
		Ports: []dataplane.PortSpec{port}, SwitchML: o.Controller,
		Ready: func(daemon.Status) error {
			close(ready)
			if o.Ready != nil {
				return o.Ready()
			}
			return nil
		},
	}
	var sessions atomic.Uint64
	d.SwitchMLBegun = func() { sessions.Add(1) }
	if isNative {
		d.SwitchML = ""
		d.Begin = func(n *dataplane.NIC) (daemon.Function, error) {
			return daemon.Function{}, n.InstallJob(dataplane.JobSpec{
				Name: "interop", Protocol: o.Protocol, Workers: o.Workers, Elements: o.Elements, Slots: o.Slots, Native: &dataplane.NativeSpec{ID: 1},
			})
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- daemon.Run(ctx, d) }()
	select {
	case err := <-ended:
		return nil, err
	case <-ready:
	}
	r, err := PlayCard(ctx, link, port, CardOptions{Native: isNative, Idle: o.Idle, Name: "workers on " + o.Interface, Sessions: sessions.Load})
	stop()
	return r, errors.Join(err, <-ended)
}
