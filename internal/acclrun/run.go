package acclrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gradnic/dataplane"
	"gradnic/internal/acclcheck"
	service "gradnic/service/accl"
	"gradnic/wire/inet"
	"gradnic/worker/accl"
)

// Run opens the rank and makes the calls. The report is there also with an error, and says how far it came; wrong elements
// are an error.
func Run(ctx context.Context, o Options) (*Report, error) {
	r := newReport(&o)
	err := o.Validate()
	if err == nil {
		err = run(ctx, &o, r)
	}
	if n := r.wrong(); err == nil && n > 0 {
		err = fmt.Errorf("%d elements are wrong", n)
	}
	if err != nil {
		r.Error = err.Error()
	}
	r.OK = err == nil
	return r, err
}

func run(ctx context.Context, o *Options, r *Report) (err error) {
	rank, stop, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		r.count(rank.Stats())
		err = errors.Join(err, stop())
	}()
	select {
	case <-time.After(o.Settle):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, n := range o.Counts {
		if err := row(ctx, o, r, rank, n); err != nil {
			return err
		}
	}
	return nil
}

// open makes the rank by its transport. stop ends all of it.
func open(ctx context.Context, o *Options) (rank accl.Rank, stop func() error, err error) {
	if o.Transport == OverUDP {
		u, err := accl.Listen(o.Rank)
		if err != nil {
			return nil, nil, err
		}
		return u, u.Close, nil
	}
	cfg := o.Rank
	own := cfg.Ranks[cfg.Rank]
	if own.MAC = o.MAC; own.MAC.IsZero() {
		own.MAC = MAC(own.IP)
	}
	nic, err := dataplane.New(dataplane.Config{MAC: own.MAC, IP: own.IP, ChunkSize: 4096}, dataplane.XDPPort{Interface: o.Interface})
	if err != nil {
		return nil, nil, err
	}
	if err := nic.Start(ctx); err != nil {
		return nil, nil, err
	}
	halt := func() error { return nic.Stop(context.Background()) }
	join, cancel := context.WithTimeout(ctx, o.Join)
	defer cancel()
	ranks, err := service.Resolve(join, o.Interface, own, cfg.Ranks)
	if err != nil {
		return nil, nil, errors.Join(err, halt())
	}
	cfg.Ranks = ranks
	s, err := service.Attach(nic, service.Config{Config: cfg, Ports: []string{o.Interface}})
	if err != nil {
		return nil, nil, errors.Join(err, halt())
	}
	return s, func() error { return errors.Join(s.Close(), halt()) }, nil
}

// MAC is the address that a rank's NIC has unless it is given one: a local one, with the rank's IPv4 address in it.
func MAC(ip inet.Addr) inet.MAC { return inet.MAC{0x02, 0xac, ip[0], ip[1], ip[2], ip[3]} }

// together reports whether a call keeps its ranks in step: none ends before all have begun.
func together(c accl.Collective) bool {
	return c == accl.AllGather || c == accl.ReduceScatter || c == accl.AllReduce
}

func row(ctx context.Context, o *Options, r *Report, rank accl.Rank, count int) error {
	c := o.Call
	c.Count = count
	segment := o.Rank.Segment
	if segment == 0 {
		segment = accl.DefaultSegment
	}
	ranks := len(o.Rank.Ranks)
	job := acclcheck.New(c, ranks, segment, o.Seed+uint64(count))
	calls := job.Of(o.Rank.Rank)
	row := r.newRow(count, c.Type.Size(), job.Largest(o.Rank.Rank))
	one := accl.Call{Collective: accl.AllReduce, Type: accl.Int32, Count: ranks, Src: make([]byte, 4*ranks), Dst: make([]byte, 4*ranks)}
	for i := range o.Warmup + o.Iterations {
		for k := range calls {
			clear(calls[k].Dst)
		}
		begin := time.Now()
		for k := range calls {
			if err := rank.Do(ctx, calls[k]); err != nil {
				return err
			}
		}
		if i >= o.Warmup {
			row.time(time.Since(begin))
		}
		if o.Check {
			wrong, _ := job.Wrong(o.Rank.Rank)
			row.Wrong += int64(wrong)
		}
		if o.Sync && !together(c.Collective) && ranks > 1 {
			if err := rank.Do(ctx, one); err != nil {
				return fmt.Errorf("between calls: %w", err)
			}
		}
	}
	row.finish()
	r.Rows = append(r.Rows, row)
	return nil
}
