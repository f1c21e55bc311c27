package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gradnic/dataplane"
	"gradnic/internal/gradients"
	"gradnic/worker/native"
)

// Series is what reports of sums over the native protocol, one for each of many types or codecs, have in common.
type Series struct {
	OK        bool    `json:"ok"`
	Error     string  `json:"error,omitempty"`
	Workers   int     `json:"workers"`
	Elements  int     `json:"elements"`
	Transport string  `json:"transport"` // xdp-native, xdp-generic or mem
	Loss      float64 `json:"loss"`
}

// seriesNIC is the running NIC of a series, and what its workers have to sum.
type seriesNIC struct {
	o      *Options
	nic    *dataplane.NIC
	f      fabric
	inputs [][]float32
}

// conduct makes the NIC and calls body with it. runs is how often each sum by rank is repeated; total gets the NIC's counters.
func (s *Series) conduct(ctx context.Context, o *Options, runs int, total *dataplane.Counters, body func(n *seriesNIC) error) error {
	s.Transport = "mem"
	err := o.setDefaults()
	if err == nil && runs < 1 {
		err = fmt.Errorf("%d runs: at least 1", runs)
	}
	if err == nil {
		s.Workers, s.Elements, s.Loss = o.Workers, gradients.Elements, o.Loss
		err = s.over(ctx, o, total, body)
	}
	if ctx.Err() != nil {
		err = interrupted(err)
	}
	if err != nil {
		s.Error = err.Error()
	}
	s.OK = err == nil
	return err
}

func (s *Series) over(ctx context.Context, o *Options, total *dataplane.Counters, body func(n *seriesNIC) error) error {
	inputs, err := load(o.Workers)
	if err != nil {
		return err
	}
	nic, f, stop, err := startNIC(ctx, o)
	if err != nil {
		return err
	}
	if first := nic.Snapshot().Ports[0]; first.Kind == "xdp" {
		s.Transport = "xdp-" + first.Mode
	}
	if err = impairAll(nic, o); err == nil {
		err = body(&seriesNIC{o, nic, f, inputs})
	}
	return errors.Join(err, stop(total))
}

// load is the gradients of so many workers.
func load(workers int) (inputs [][]float32, err error) {
	inputs = make([][]float32, workers)
	for rank := range inputs {
		if inputs[rank], err = gradients.Load(rank % gradients.Workers); err != nil {
			return nil, err
		}
	}
	return inputs, nil
}

// with installs a job, brings its workers together, calls f with them and takes everything away again. resent gets what the
// workers sent again.
func (n *seriesNIC) with(ctx context.Context, job dataplane.JobSpec, resent *uint64, f func(ctx context.Context, ws []*native.Worker) error) (err error) {
	if err := n.nic.InstallJob(job); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.nic.RemoveJob(job.Name)) }()
	ctx, cancel := context.WithTimeout(ctx, reduceDeadline)
	defer cancel()
	ws, leave, err := joinNative(ctx, n.o, n.f, job)
	defer func() { err = errors.Join(err, leave(resent)) }()
	if err != nil {
		return err
	}
	return f(ctx, ws)
}

// heading writes what a report's table begins with.
func (s *Series) heading(p *printer, how string) {
	over := "memory inside the process, no AF_XDP (that needs root)"
	if mode, ok := strings.CutPrefix(s.Transport, "xdp-"); ok {
		over = fmt.Sprintf("AF_XDP %s mode, %d veth pairs between network namespaces", mode, s.Workers)
	}
	p.f("# gradnic demo: the gradients of %d workers, %s, summed in the network\n#\n", s.Workers, how)
	p.f("#   transport  %s\n", over)
	p.f("#   protocol   native over UDP, frames of 1500 bytes\n")
	p.f("#   gradients  %d elements a worker\n", s.Elements)
	if s.Loss > 0 {
		p.f("#   loss       %.3g %% of the frames, in each direction of each port\n", 100*s.Loss)
	}
}
