package training

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
)

//go:embed text.txt
var text []byte

// Options say what to train. The zero value is the run of docs/training.md.
type Options struct {
	Size    Size    // zero: DefaultSize
	Workers int     // 0: 8
	Steps   int     // 0: 200
	Rate    float64 // of AdamW; 0: 3e-3
	Seed    uint64
}

func (o *Options) setDefaults() error {
	if o.Size == (Size{}) {
		o.Size = DefaultSize
	}
	if o.Workers == 0 {
		o.Workers = 8
	}
	if o.Steps == 0 {
		o.Steps = 200
	}
	if o.Rate == 0 {
		o.Rate = 3e-3
	}
	s := o.Size
	if o.Workers < 1 || o.Steps < 1 || s.Embed < 1 || s.Hidden < 1 || s.Steps < 1 || s.Batch < 1 {
		return fmt.Errorf("train %d workers for %d steps, shape %+v: all must be 1 or more", o.Workers, o.Steps, s)
	}
	if len(text)/(o.Workers+1) < 2*s.Steps {
		return fmt.Errorf("%d workers and sequences of %d are too much for %d characters", o.Workers, s.Steps, len(text))
	}
	return nil
}

// Reduce makes the mean of all workers' gradients: rank's is src, and dst, as long, takes the mean. Run calls it once a step and
// rank, from one goroutine each.
type Reduce func(rank int, dst, src []float32) error

// Result is what came of a run.
type Result struct {
	// Losses are the means over the workers of the loss before each step, in nats a character.
	Losses []float64
	// Final is the mean of the last tenth of Losses, Held the loss afterwards on text that no worker has seen.
	Final, Held float64
}

// Run trains. It fails when the workers' replicas do not end alike: each must have got the same bits in every step.
func Run(o Options, reduce Reduce) (*Result, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	held := len(text) * 19 / 20
	shard := held / o.Workers
	losses := make([][]float64, o.Workers)
	replicas := make([]*model, o.Workers)
	errs := make([]error, o.Workers)
	var g sync.WaitGroup
	for rank := range o.Workers {
		g.Go(func() {
			replicas[rank], losses[rank], errs[rank] = train(&o, text[rank*shard:(rank+1)*shard], rank, reduce)
		})
	}
	g.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for rank, m := range replicas {
		for i, v := range m.flat {
			if math.Float32bits(v) != math.Float32bits(replicas[0].flat[i]) {
				return nil, fmt.Errorf("parameter %d of rank %d is %v, of rank 0 %v: the workers got different results", i, rank, v, replicas[0].flat[i])
			}
		}
	}
	r := &Result{Losses: make([]float64, o.Steps)}
	for _, l := range losses {
		for i, v := range l {
			r.Losses[i] += v / float64(o.Workers)
		}
	}
	last := max(o.Steps/10, 1)
	for _, v := range r.Losses[o.Steps-last:] {
		r.Final += v / float64(last)
	}
	r.Held = evaluate(replicas[0], text[held:])
	return r, nil
}

// train is one worker.
func train(o *Options, shard []byte, rank int, reduce Reduce) (*model, []float64, error) {
	m, g, t := newModel(o.Size), newModel(o.Size), newTape(o.Size)
	m.initialise(o.Seed)
	opt := newAdam(len(m.flat), o.Rate)
	mean := make([]float32, len(m.flat))
	r := rand.New(rand.NewPCG(o.Seed, 2+uint64(rank)))
	at := make([]int, o.Size.Batch)
	var losses []float64
	for step := range o.Steps {
		for b := range at {
			at[b] = r.IntN(len(shard) - o.Size.Steps - 1)
		}
		clear(g.flat)
		losses = append(losses, m.forward(t, shard, at))
		m.backward(t, g, shard, at)
		if err := reduce(rank, mean, g.flat); err != nil {
			return nil, nil, fmt.Errorf("step %d, rank %d: %w", step, rank, err)
		}
		opt.step(m.flat, mean)
	}
	return m, losses, nil
}

// evaluate is the mean loss over a text in sequences that do not overlap.
func evaluate(m *model, text []byte) float64 {
	t := newTape(m.Size)
	var sum float64
	var n int
	at := make([]int, m.Batch)
	for from := 0; from+m.Batch*m.Steps+1 <= len(text); from += m.Batch * m.Steps {
		for b := range at {
			at[b] = from + b*m.Steps
		}
		sum += m.forward(t, text, at)
		n++
	}
	return sum / float64(max(n, 1))
}

// adam is AdamW with its usual constants and a decay of 0.01.
type adam struct {
	rate float64
	m, v []float32
	n    int
}

func newAdam(n int, rate float64) *adam {
	return &adam{rate: rate, m: make([]float32, n), v: make([]float32, n)}
}

func (a *adam) step(p, g []float32) {
	const beta1, beta2, eps, decay = 0.9, 0.999, 1e-8, 0.01
	a.n++
	c1, c2 := 1-math.Pow(beta1, float64(a.n)), 1-math.Pow(beta2, float64(a.n))
	rate := float32(a.rate / c1)
	root := float32(1 / math.Sqrt(c2))
	for i, x := range g {
		a.m[i] = beta1*a.m[i] + (1-beta1)*x
		a.v[i] = beta2*a.v[i] + (1-beta2)*x*x
		p[i] -= float32(a.rate*decay)*p[i] + rate*a.m[i]/(float32(math.Sqrt(float64(a.v[i])))*root+eps)
	}
}
