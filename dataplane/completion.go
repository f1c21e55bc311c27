package dataplane

import (
	"math/bits"
	"time"
)

// Times of slots are counted in buckets by powers of two of nanoseconds. The clock is read once a batch, so that what
// begins and ends in one batch took no time.
const (
	completionShift   = 10 // the first bucket: below 2^10 ns
	completionBuckets = 27 // the last but one: below 2^35 ns, 34 s; the last: all others
)

// completions is the histogram of a lane's share of a job: from a slot's first contribution to its completion.
type completions struct {
	buckets [completionBuckets]uint64
	sum     int64 // ns
}

func (c *completions) add(ns int64) {
	ns = max(ns, 0)
	c.buckets[min(completionBuckets-1, max(0, bits.Len64(uint64(ns))-completionShift))]++
	c.sum += ns
}

// complete counts a slot that is complete now by the last of its workers.
func (j *laneJob) complete(w *laneWorker, now, started int64) {
	j.results++
	w.last++
	j.times.add(now - started)
}

// Completions says how long slots took from their first contribution to their completion. Times are those of the
// lane's batches: what began and ended in one batch took no time.
type Completions struct {
	// Buckets has the number of slots by time; the last bucket has no bound.
	Buckets []CompletionBucket `json:"buckets"`
	// Sum is the time of all together.
	Sum time.Duration `json:"sum_ns"`
}

// CompletionBucket counts the slots that took less than Below, and not less than the bucket before.
type CompletionBucket struct {
	Below time.Duration `json:"below_ns"` // 0: no bound
	Slots uint64        `json:"slots"`
}

// Count is the number of slots in all buckets.
func (c *Completions) Count() (n uint64) {
	for i := range c.Buckets {
		n += c.Buckets[i].Slots
	}
	return n
}

// Quantile is a time that a share q, from 0 to 1, of the slots took at most: the upper bound of the bucket that it falls
// into. ok is false when there are no slots, or it is above all bounds.
func (c *Completions) Quantile(q float64) (at time.Duration, ok bool) {
	rest := q * float64(c.Count())
	if c.Count() == 0 {
		return 0, false
	}
	for _, b := range c.Buckets {
		if rest -= float64(b.Slots); rest <= 0 && b.Slots > 0 {
			return b.Below, b.Below != 0
		}
	}
	return 0, false
}

// public adds the histograms of all lanes.
func (c *completions) public() Completions {
	out := Completions{Buckets: make([]CompletionBucket, completionBuckets), Sum: time.Duration(c.sum)}
	for i, n := range c.buckets {
		out.Buckets[i] = CompletionBucket{Below: 1 << (completionShift + i), Slots: n}
	}
	out.Buckets[completionBuckets-1].Below = 0
	return out
}

func (c *completions) merge(o *completions) {
	for i, n := range o.buckets {
		c.buckets[i] += n
	}
	c.sum += o.sum
}
