package aggregation

import (
	"fmt"
	"reflect"
)

// Phase is where one version of a slot stands.
type Phase uint8

// The phases.
const (
	Idle       Phase = iota // nothing in it
	Collecting              // some workers have contributed
	Complete                // the result is there and can be asked for
)

// Contribution is one worker's packet for one slot.
type Contribution struct {
	Slot   int
	Set    int    // rule SwitchML: the version, 0 or 1; rule Rounds: not looked at
	Worker int    // rank, 0..Workers-1
	Round  uint32 // rule Rounds: the number of this use of the slot; the version is Round&1

	Exponents [2]int8 // the first Spec.Exponents of them count
	Values    []byte  // as on the wire, Spec.WireBytes long; with a codec a message of it, perhaps shorter

	// None says that the worker takes part without values, by rule Rounds: they change nothing in the result, and are not
	// counted in a mean. Values is empty then. The result of a round to which nobody brought values is zeros.
	None bool
	// Quiet says that the worker has no use for the values of the result, by rule Rounds. The pool only notes it.
	Quiet bool
}

// Outcome is what became of a contribution and what its caller has to do.
type Outcome uint8

// The outcomes.
const (
	Added     Outcome = iota // counted; send nothing
	Completed                // counted, and the last one: send the result to all members
	Answered                 // not counted, its version is complete: send the stored result to this worker
	Duplicate                // not counted, seen before; send nothing
	Stale                    // rule Rounds: of a round whose result is gone; nothing was touched
	Early                    // rule Rounds: of a round that cannot start yet; nothing was touched, it must come again
	Aborted                  // rule Rounds: of a round that was aborted; nothing was touched

	InvalidSlot   // Slot is out of range
	InvalidSet    // Set is not 0 or 1
	InvalidWorker // Worker is out of range
	InvalidLength // Values is not Spec.WireBytes long, or not empty with None
	InvalidValues // Values is no message of Spec.Codec

	// NumOutcomes is the number of values, for counters indexed by Outcome.
	NumOutcomes = int(iota)
)

// Counted reports whether the contribution went into a result.
func (o Outcome) Counted() bool { return o <= Completed }

// HasResult reports whether a result was written to out.
func (o Outcome) HasResult() bool { return o == Completed || o == Answered }

// version is the state of one version of a slot, beside its values and bitmap.
type version struct {
	started int64  // now of the first contribution
	round   uint32 // Rounds: the round it holds, or held when it was aborted
	count   uint16 // SwitchML: the program's counter of workers still missing; Rounds: workers counted
	phase   Phase  // Rounds only; SwitchML derives it
	aborted bool   // Rounds only: Idle because of Abort
	flags   Flags
	quiet   bool   // Rounds only: some bit of the version's quiet bitmap is set
	next    uint16 // Ranked: all ranks below it are folded, or will never come
	valued  uint16 // Rounds only: contributions that were folded, which are those with values
	exps    [2]int8
}

const versionBytes = 24

// Pool is the slots given to one job on one lane. It is not safe for use by
// several goroutines.
type Pool struct {
	spec   Spec
	wire   int  // bytes of a contribution's values; with a codec the most
	result int  // bytes of a result's values; with a codec the most
	nwords int  // words of a bitmap
	nkept  int  // contributions kept by a version
	after  bool // the result is made after the last contribution was folded, not with it

	versions []version    // [slot*Versions+set]
	seen     []uint64     // [(slot*Versions+set)*nwords + word]
	quiet    []uint64     // as seen, by rule Rounds: workers whose contribution was Quiet
	cells    cells        // the values of version slot*Versions+set
	coded    *coded       // cells, if they are that
	int32s   plain[int32] // a copy of cells, if they are that, else zero: the most frequent ones are called directly
	kept     []byte       // [((slot*Versions+set)*nkept + rank-1)*keptStride + byte], on a cache line
	keptLens []int32      // by kept contribution: its bytes, 0 when it has no values
	stride   int          // bytes from one kept contribution to the next
	scratch  []byte       // a result that nobody asked for

	collecting int
	counters   Counters
}

// NewPool makes a pool of idle slots and touches its memory, so that no page
// fault is left for the first packets.
func NewPool(spec Spec) (*Pool, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	n := spec.Slots * Versions
	values, err := newCells(spec, n)
	if err != nil {
		return nil, fmt.Errorf("aggregation pool: %w", err)
	}
	p := &Pool{
		spec:     spec,
		wire:     spec.WireBytes(),
		result:   spec.ResultBytes(),
		nwords:   spec.words(),
		nkept:    spec.kept(),
		after:    spec.Op == Mean || spec.HasCodec(),
		versions: make([]version, n),
		seen:     make([]uint64, n*spec.words()),
		cells:    values,
		stride:   spec.keptStride(),
		scratch:  make([]byte, spec.ResultBytes()),
	}
	if c, ok := values.(*plain[int32]); ok {
		p.int32s = *c
	}
	if c, ok := values.(*coded); ok {
		p.coded = c
	}
	p.keptLens = make([]int32, n*p.nkept)
	if spec.Rule == Rounds {
		p.quiet = make([]uint64, len(p.seen))
	}
	p.kept = aligned[byte](n * p.nkept * p.stride)
	return p, nil
}

// aligned makes a slice whose first element lies on a cache line, and touches
// its pages. Heap objects do not move, so it stays there.
func aligned[A any](n int) []A {
	size := int(reflect.TypeFor[A]().Size())
	b := make([]A, n+lineBytes/size)
	skip := 0
	if off := reflect.ValueOf(b).Pointer() % lineBytes; off != 0 {
		skip = int(lineBytes-off) / size
	}
	var zero A
	for i := 0; i < len(b); i += 4096 / size {
		b[i] = zero
	}
	return b[skip : skip+n : skip+n]
}

// Spec is the spec the pool was made from.
func (p *Pool) Spec() Spec { return p.spec }

// Reset makes every slot idle and every counter 0, as in a new pool. Rounds
// that were aborted are forgotten.
func (p *Pool) Reset() {
	clear(p.versions)
	clear(p.seen)
	clear(p.quiet)
	if p.coded != nil {
		clear(p.coded.lengths)
	}
	p.collecting = 0
	p.counters = Counters{}
}

// Contribute judges one packet, adds it if it counts, and says what to do. now
// is the caller's time in nanoseconds on any scale of its own; it is only kept
// and compared with the now of other calls.
//
// On Completed and Answered the result's values are written to out in wire
// order unless out is nil; out must then have room for Spec.ResultBytes, or
// Contribute panics. The result's exponents are given by Exponents, its length
// by ResultLen, and what befell its values by Flags. out may begin where
// c.Values does, but must not overlap it otherwise.
func (p *Pool) Contribute(c *Contribution, now int64, out []byte) Outcome {
	if uint(c.Slot) >= uint(p.spec.Slots) {
		return InvalidSlot
	}
	if uint(c.Worker) >= uint(p.spec.Workers) {
		return InvalidWorker
	}
	if len(c.Values) != p.wire || p.coded != nil || c.None {
		if o := p.admit(c); o != Added {
			return o
		}
	}
	if out != nil {
		out = out[:p.result]
	}
	if p.spec.Rule == Rounds {
		return p.contributeRounds(c, now, out)
	}
	if uint(c.Set) >= Versions {
		return InvalidSet
	}
	return p.contributeSwitchML(c, now, out)
}

// admit judges values that have not the one length that there is, or that a codec compressed.
func (p *Pool) admit(c *Contribution) Outcome {
	values := c.Values
	switch {
	case c.None && p.spec.Rule == Rounds:
		if len(values) > 0 {
			return InvalidLength
		}
		return Added
	case p.coded == nil || len(values) == 0 || len(values) > p.wire:
		return InvalidLength
	case !p.coded.check(values):
		return InvalidValues
	}
	return Added
}

// at is the index of a version, and panics when there is none: slot and set
// come from the caller here, not from a packet.
func (p *Pool) at(slot, set int) int {
	if uint(slot) >= uint(p.spec.Slots) || uint(set) >= Versions {
		panic(fmt.Sprintf("aggregation: slot %d set %d is outside a pool of %d slots", slot, set, p.spec.Slots))
	}
	return slot*Versions + set
}

func (p *Pool) bitmap(i int) []uint64 { return p.seen[i*p.nwords : (i+1)*p.nwords] }

func (p *Pool) quietBitmap(i int) []uint64 { return p.quiet[i*p.nwords : (i+1)*p.nwords] }

func anyBit(words []uint64) bool {
	for _, w := range words {
		if w != 0 {
			return true
		}
	}
	return false
}
