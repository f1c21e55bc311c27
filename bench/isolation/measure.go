package isolation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gradnic/bench/report"
	"gradnic/worker/native"
)

// Options say what is measured. Zero values are documented with each.
type Options struct {
	Lanes  int     // 0: 1
	Rate   float64 // of the flood, frames a second; 0: 200,000
	Budget uint64  // frames a second of B, and of strays; 0: nobody is bounded
	Length int     // float32 of A's vectors; 0: 1<<20
	Rounds int     // 0: 7
	CPU    int     // the generator's
}

func (o *Options) setDefaults() {
	if o.Lanes == 0 {
		o.Lanes = 1
	}
	if o.Rate == 0 {
		o.Rate = 200_000
	}
	if o.Length == 0 {
		o.Length = 1 << 20
	}
	if o.Rounds == 0 {
		o.Rounds = 7
	}
}

// Result is what one kind of flood did.
type Result struct {
	Kind Kind
	// Flooded and Beside are the seconds of each round's all-reduce while B floods, and while the same generator hits
	// the netdev beside the NIC.
	Flooded, Beside []float64
	// Sent is what B sent to the NIC in all, Over what of that was above its budget, Taken what came to a lane.
	Sent, Over, Taken uint64
	// Resent is how many packets A's workers sent again while B flooded, and the NIC received.
	Resent uint64
}

// Ratio is the median over the rounds of the time under the flood over the time beside it.
func (r *Result) Ratio() float64 {
	ratios := make([]float64, len(r.Flooded))
	for i := range ratios {
		ratios[i] = r.Flooded[i] / r.Beside[i]
	}
	return report.Median(ratios)
}

// Measure runs all kinds of floods. Every sum of A is checked: one wrong element is an error.
func Measure(ctx context.Context, o Options) (_ []Result, err error) {
	o.setDefaults()
	r, err := newRig(ctx, o.Lanes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.budgets(o.Budget); err != nil {
		return nil, err
	}
	results := make([]Result, len(Kinds))
	for round := -1; round < o.Rounds; round++ { // the first one warms up
		for i, k := range Kinds {
			res := &results[i]
			res.Kind = k
			ways := []string{"flood", "beside"}
			if round%2 != 0 { // whoever is second has the warmer machine
				slices.Reverse(ways)
			}
			for _, way := range ways {
				if err := r.turn(ctx, way, round, o, res); err != nil {
					return nil, fmt.Errorf("%s, %s, round %d: %w", k, way, round, err)
				}
			}
		}
	}
	return results, nil
}

// turn is one all-reduce of one round, and what is to be known of it.
func (r *rig) turn(ctx context.Context, way string, round int, o Options, res *Result) error {
	before := r.nic.Snapshot().Ports[workers]
	took, sent, resent, err := r.underFlood(ctx, way, res.Kind, o)
	if err != nil || round < 0 {
		return err
	}
	after := r.nic.Snapshot().Ports[workers]
	if way == "beside" {
		res.Beside = append(res.Beside, took.Seconds())
		return nil
	}
	res.Flooded = append(res.Flooded, took.Seconds())
	res.Sent += sent
	res.Resent += resent
	res.Taken += after.Received - before.Received
	res.Over += after.Steering["over-budget"] - before.Steering["over-budget"]
	return nil
}

// underFlood is one all-reduce of A while the generator runs.
func (r *rig) underFlood(ctx context.Context, iface string, k Kind, o Options) (took time.Duration, sent, resent uint64, err error) {
	stop, err := r.flood(ctx, iface, k.options(o.Rate), o.CPU)
	if err != nil {
		return 0, 0, 0, err
	}
	time.Sleep(60 * time.Millisecond) // a live run takes the kernel some 20 ms to set up
	took, resent, err = r.allReduce(ctx, o.Length)
	sent, stopErr := stop()
	if sent == 0 && err == nil && stopErr == nil {
		err = errors.New("the generator has sent nothing")
	}
	return took, sent, resent, errors.Join(err, stopErr)
}

// allReduce sums n float32 of A's workers and returns how long the slower one took. Rank i has (i+1)(j mod 1000) at j.
func (r *rig) allReduce(ctx context.Context, n int) (time.Duration, uint64, error) {
	src, dst := make([][]float32, workers), make([][]float32, workers)
	for i := range workers {
		src[i], dst[i] = make([]float32, n), make([]float32, n)
		for j := range n {
			src[i][j] = float32((i + 1) * (j % 1000))
		}
	}
	before, err := r.again()
	if err != nil {
		return 0, 0, err
	}
	took := make([]time.Duration, workers)
	if err := each(workers, func(i int) error {
		if _, err := native.Barrier(ctx, r.ranks[i]); err != nil {
			return err
		}
		stats, err := native.AllReduce(ctx, r.ranks[i], dst[i], src[i])
		took[i] = stats.Elapsed
		return err
	}); err != nil {
		return 0, 0, err
	}
	for i := range workers {
		for j, v := range dst[i] {
			if want := float32(workers * (workers + 1) / 2 * (j % 1000)); v != want {
				return 0, 0, fmt.Errorf("rank %d: element %d is %v, want %v", i, j, v, want)
			}
		}
	}
	after, err := r.again()
	return max(took[0], took[1]), after - before, err
}

// again is how many contributions A's workers have sent once more than was needed.
func (r *rig) again() (n uint64, err error) {
	job, err := r.nic.Job("a")
	for i := range job.Status {
		n += job.Status[i].Duplicates
	}
	return n, err
}
