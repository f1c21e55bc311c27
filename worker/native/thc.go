package native

import (
	"context"
	"fmt"

	"gradnic/codec"
	wire "gradnic/wire/native"
)

// THC sums float32 by homomorphic compression (Li et al., THC, NSDI 2024; codec.THC): workers first agree on the largest norm of
// each block of 1024 elements, then send table values of a byte an element, which the network adds as they are. Nothing is
// decoded on the way, so a sum costs the network an integer addition an element and loses nothing but what each worker's own
// rounding lost, without bias.
//
// It takes two jobs of the same workers: one of type float32 with operation max and no codec, for the norms, and one of
// type int8 with operation sum. The wire carries 8 bits an element either way, of which an element's index would be 4: the network
// has no table.
//
// One call at a time; all workers make the same ones.
type THC struct {
	norms, sums *Worker
	table       *codec.THC
	state       codec.State

	block, most []float32 // the norms: own, and the maximum over the workers
	indices     []byte
	acc         []uint8
	values      []int8
}

// NewTHC brings two workers of one rank together. The table is that of granularity 30 for up to 8 workers and of 16 for up to
// 15, more do not fit in 8 bits. All workers have the same seed.
func NewTHC(norms, sums *Worker, seed uint64) (*THC, error) {
	n, s := norms.Job(), sums.Job()
	switch {
	case n.Type != wire.Float32 || n.Op != Max || n.compressed():
		return nil, fmt.Errorf("THC: the job of the norms is %v of %v with codecs %s and %s: it must be max of float32 without", n.Op, n.Type, n.Codec, n.Result)
	case s.Type != wire.Int8 || s.Op != Sum:
		return nil, fmt.Errorf("THC: the job of the values is %v of %v: it must be sum of int8", s.Op, s.Type)
	case n.Workers != s.Workers || norms.Rank() != sums.Rank():
		return nil, fmt.Errorf("THC: rank %d of %d workers for the norms, but rank %d of %d for the values", norms.Rank(), n.Workers, sums.Rank(), s.Workers)
	}
	for _, granularity := range []int{30, 16} {
		table, err := codec.NewTHC(granularity)
		if err != nil {
			return nil, err
		}
		if s.Workers <= table.MaxWorkers() {
			return &THC{norms: norms, sums: sums, table: table, state: codec.State{Seed: seed, Worker: uint32(norms.Rank())}}, nil
		}
	}
	return nil, fmt.Errorf("THC: sums of %d workers do not fit in 8 bits: at most 15 do", s.Workers)
}

// AllReduce writes an estimate of the sum of all workers' src to dst, the same bits at each. dst and src have the same length, and
// are the same array or do not overlap. round tells calls apart, for the random numbers: it is the same at all workers, and
// another one in each call. A block of 1024 elements in which a worker has an infinity or a NaN comes back as NaN.
func (t *THC) AllReduce(ctx context.Context, dst, src []float32, round uint64) error {
	if len(dst) != len(src) {
		return fmt.Errorf("THC: dst has %d elements, src %d", len(dst), len(src))
	}
	blocks, padded := codec.THCBlocks(len(src)), codec.THCPadded(len(src))
	if cap(t.acc) < padded {
		t.block, t.most = make([]float32, blocks), make([]float32, blocks)
		t.indices, t.acc, t.values = make([]byte, padded/2), make([]uint8, padded), make([]int8, padded)
	}
	block, most, indices, acc, values := t.block[:blocks], t.most[:blocks], t.indices[:padded/2], t.acc[:padded], t.values[:padded]
	t.state.Round = round
	codec.THCNorms(block, src)
	if _, err := AllReduce(ctx, t.norms, most, block); err != nil {
		return fmt.Errorf("THC: norms: %w", err)
	}
	t.table.Encode(indices, src, most, &t.state)
	clear(acc)
	t.table.Add(acc, indices)
	// Values from 0 to the granularity, and their sums, fit int8 about the middle.
	middle := t.table.Granularity / 2
	for i, v := range acc {
		values[i] = int8(int(v) - middle)
	}
	if _, err := AllReduce(ctx, t.sums, values, values); err != nil {
		return fmt.Errorf("THC: values: %w", err)
	}
	workers := t.sums.Job().Workers
	for i, v := range values {
		sum := int(v) + workers*middle
		if sum < 0 || sum > workers*t.table.Granularity {
			return fmt.Errorf("THC: element %d of the sum is %d, which %d workers' values cannot add up to: not all of them use THC", i, v, workers)
		}
		acc[i] = uint8(sum)
	}
	t.table.DecodeSum(dst, acc, workers, most, &t.state)
	return nil
}
