package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gradnic/dataplane"
	"gradnic/worker"
)

// team is the workers of one run.
type team struct{ workers []*worker.Worker }

// joinAll serves the controller for as long as the workers need it, and returns them in session.
func joinAll(ctx context.Context, o *Options, f fabric, nic *dataplane.NIC) (t *team, err error) {
	address, stop, err := serveController(nic, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := stop(); e != nil && t != nil {
			err = errors.Join(e, t.close())
			t = nil
		}
	}()
	return join(ctx, o, f, address)
}

// join starts the workers and waits until all are in the session.
func join(ctx context.Context, o *Options, f fabric, controller string) (*team, error) {
	ctx, cancel := context.WithTimeout(ctx, reduceDeadline)
	defer cancel()
	t := &team{workers: make([]*worker.Worker, o.Workers)}
	err := t.each(ctx, func(ctx context.Context, rank int) error {
		cfg := worker.Config{
			Rank: rank, Workers: o.Workers, Elements: o.Elements, Controller: controller,
			IP: workerIP(rank), MAC: workerMAC(rank), Port: worker.DefaultPort,
		}
		if err := f.attach(rank, &cfg); err != nil {
			return err
		}
		w, err := worker.Join(ctx, cfg)
		t.workers[rank] = w
		return err
	})
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// reduce runs one all-reduce at all workers. The time is from the common start to the end of the last.
func (t *team) reduce(ctx context.Context, dst, src [][]float32) (elapsed time.Duration, resent uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, reduceDeadline)
	defer cancel()
	stats := make([]worker.Stats, len(t.workers))
	begin := time.Now()
	err = t.each(ctx, func(ctx context.Context, rank int) (err error) {
		stats[rank], err = t.workers[rank].AllReduceFloat32(ctx, dst[rank], src[rank])
		return err
	})
	elapsed = time.Since(begin)
	for _, s := range stats {
		resent += s.Resent
	}
	return elapsed, resent, err
}

// each calls do for every rank at once. The first error ends the context of the others and is returned.
func (t *team) each(ctx context.Context, do func(ctx context.Context, rank int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for rank := range t.workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := do(ctx, rank); err != nil {
				once.Do(func() { first = fmt.Errorf("worker %d: %w", rank, err) })
				cancel()
			}
		}()
	}
	wg.Wait()
	return first
}

func (t *team) close() error {
	var errs []error
	for _, w := range t.workers {
		if w != nil {
			errs = append(errs, w.Close())
		}
	}
	return errors.Join(errs...)
}
