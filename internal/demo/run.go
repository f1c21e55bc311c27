package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gradnic/dataplane"
	"gradnic/internal/gradients"
	"gradnic/wire/inet"
	"gradnic/worker"
)

const (
	// reduceDeadline bounds one all-reduce. Workers of SwitchML resend for ever; a demo says who is missing.
	reduceDeadline = 60 * time.Second
	stopDeadline   = 5 * time.Second
)

// The NIC's own address, and the workers' network.
var (
	nicMAC = inet.MAC{0x02, 0x67, 0x72, 0x61, 0x64, 0xfe}
	nicIP  = inet.Addr{10, 50, 0, 254}
)

func workerIP(rank int) inet.Addr { return inet.Addr{10, 50, 0, byte(rank + 1)} }
func workerMAC(rank int) inet.MAC { return inet.MAC{0x02, 0x67, 0x72, 0x61, 0x64, byte(rank + 1)} }

// fabric is how frames get from the workers to the NIC and back: veth pairs or memory.
type fabric interface {
	// ports are the NIC's ports, one a worker in order of rank.
	ports() []dataplane.PortSpec
	// framesPerQueue is the depth of a port, half for receive and half for transmit. Each worker has 64 in flight.
	framesPerQueue() int
	// attach completes a worker's configuration with its way to the NIC.
	attach(rank int, cfg *worker.Config) error
	// close removes the fabric; the NIC and the workers have ended.
	close() error
}

// Run runs the demo. The report is there also with an error, and says how far the run came.
// ctx ends the run early, with an error. Whatever the outcome, what Run made is gone when it returns.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.setDefaults(); err != nil {
		return &Report{Error: err.Error()}, err
	}
	r := &Report{
		Workers: o.Workers, Elements: gradients.Elements, PacketElements: o.Elements, Loss: o.Loss, Transport: "mem",
	}
	err := run(ctx, &o, r)
	r.summarise()
	if err == nil && r.Wrong > 0 {
		err = fmt.Errorf("%d results are wrong by more than the quantiser can be", r.Wrong)
	}
	if ctx.Err() != nil {
		err = interrupted(err)
	}
	if err != nil {
		r.Error = err.Error()
	}
	r.OK = err == nil
	return r, err
}

func run(ctx context.Context, o *Options, r *Report) (err error) {
	inputs, err := load(o.Workers)
	if err != nil {
		return err
	}
	check := newChecker(inputs, o.Elements)
	r.Bound = check.maxBound

	var f fabric
	if o.Transport == XDP {
		f, err = newVethFabric(o)
	} else {
		f = newMemFabric(o)
	}
	if err != nil {
		return err
	}
	defer func() {
		if e := f.close(); e != nil {
			err = errors.Join(err, fmt.Errorf("clean up: %w", e))
		}
	}()
	nic, err := dataplane.New(dataplane.Config{
		MAC: nicMAC, IP: nicIP, FramesPerQueue: f.framesPerQueue(), Seed: o.Seed, Logger: o.Logger,
	}, f.ports()...)
	if err != nil {
		return fmt.Errorf("make the NIC: %w", err)
	}
	defer func() {
		// The context of the run may have ended; stopping must not depend on it.
		ctx, cancel := context.WithTimeout(context.Background(), stopDeadline)
		defer cancel()
		if e := nic.Stop(ctx); e != nil {
			err = errors.Join(err, fmt.Errorf("stop the NIC: %w", e))
		}
		// Now nothing moves, and the accounts must balance: each frame in one place, each received one under one verdict.
		last := nic.Snapshot()
		r.NIC = last.Total
		if e := last.Check(); e != nil {
			err = errors.Join(err, fmt.Errorf("the NIC's accounts do not balance: %w", e))
		}
	}()
	if err := nic.Start(ctx); err != nil {
		return fmt.Errorf("start the NIC: %w", err)
	}
	first := nic.Snapshot().Ports[0]
	if first.Kind == "xdp" {
		r.Transport = "xdp-" + first.Mode
	}
	team, err := joinAll(ctx, o, f, nic)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, team.close()) }()
	return reduceAll(ctx, o, r, nic, team, inputs, check)
}

// reduceAll runs the all-reduces and checks their results.
func reduceAll(ctx context.Context, o *Options, r *Report, nic *dataplane.NIC, team *team, inputs [][]float32, check *checker) error {
	results := make([][]float32, o.Workers)
	for rank := range results {
		results[rank] = make([]float32, len(inputs[rank]))
	}
	for i := range 1 + o.Iterations {
		for rank := range results {
			clear(results[rank]) // what the last all-reduce left would pass the check
		}
		elapsed, resent, err := team.reduce(ctx, results, inputs)
		if err != nil {
			if ctx.Err() == nil { // else nobody is missing: all were sent away
				err = errors.Join(err, missing(nic))
			}
			return fmt.Errorf("all-reduce %d: %w", i, err)
		}
		row := row{elapsed: elapsed, resent: resent, warmup: i == 0}
		for rank := range results {
			wrong, maxErr := check.check(results[rank])
			row.wrong += wrong
			r.MaxAbsErr = max(r.MaxAbsErr, maxErr)
			if n := differing(results[0], results[rank]); n > 0 {
				return fmt.Errorf("all-reduce %d: workers 0 and %d got different sums in %d elements", i, rank, n)
			}
		}
		r.rows = append(r.rows, row)
		if i == 0 && o.Loss > 0 {
			for rank := range o.Workers {
				if err := nic.Impair(portName(rank), dataplane.Impairment{IngressLoss: o.Loss, EgressLoss: o.Loss}); err != nil {
					return fmt.Errorf("set loss of port %s: %w", portName(rank), err)
				}
			}
		}
	}
	return nil
}

func portName(rank int) string { return fmt.Sprintf("p%d", rank) }

// missing says which ranks the NIC waits for, as an error, or nil.
func missing(nic *dataplane.NIC) error {
	for _, job := range nic.Jobs() {
		if len(job.Missing) > 0 {
			return fmt.Errorf("job %s waits for ranks %v", job.Name, job.Missing)
		}
	}
	return nil
}
