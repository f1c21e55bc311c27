// Package sequence accounts for a stream of numbered packets: how many came, which are missing, which came twice and
// which came behind a later one (RFC 4737's Type-P-Reordered). It is what the bench's sinks and the data plane's
// accounting of pktgen frames have in common, so it allocates nothing after New and takes constant time a packet.
package sequence

// Window is how far back, in numbers, a late packet is still told from one that came twice.
const Window = 1 << 16

// Counts are what a tracker has seen. First is the lowest number and Next one more than the highest, both counted on
// beyond 32 bits from 2^32 plus the first number on, so that numbers may wrap and go below the first.
type Counts struct {
	First, Next uint64
	Unique      uint64 // packets that came, each number once
	Duplicates  uint64 // packets whose number had come before
	Reordered   uint64 // packets behind a higher number, not duplicates
	Ancient     uint64 // packets further back than Window: late or twice, which is not known; in no other count
}

// Lost is how many numbers between the lowest and the highest have not come. What is missing before the first and
// behind the last packet is not known here: the sender's count tells. A packet of Ancient may be one of them.
func (c Counts) Lost() uint64 {
	if span := c.Next - c.First; span > c.Unique {
		return span - c.Unique
	}
	return 0
}

// Merge joins the counts of one stream that was spread over several trackers (the lanes of a NIC). Order among
// trackers is not known, so Reordered are those within one; a number that came to two of them is no duplicate but
// lowers Lost.
func (c Counts) Merge(o Counts) Counts {
	if c.Next == c.First {
		c.First, c.Next = o.First, o.Next
	} else if o.Next != o.First {
		c.First, c.Next = min(c.First, o.First), max(c.Next, o.Next)
	}
	c.Unique += o.Unique
	c.Duplicates += o.Duplicates
	c.Reordered += o.Reordered
	c.Ancient += o.Ancient
	return c
}

// Tracker follows one stream; one goroutine uses it. The zero value is ready.
type Tracker struct {
	counts Counts
	seen   [Window / 64]uint64
}

// Counts are the counts so far.
func (t *Tracker) Counts() Counts { return t.counts }

// Behind tells whether a number is at most the highest so far.
func (t *Tracker) Behind(number uint32) bool {
	return t.counts.Next != t.counts.First && int32(number-uint32(t.counts.Next)) < 0
}

// Verdict says what a packet was.
type Verdict uint8

// Verdicts of Observe.
const (
	InOrder   Verdict = iota // the next number, or a higher one
	Late                     // for the first time, behind a higher number
	Duplicate                // came before
	Ancient                  // too far back to tell
)

// Observe takes the number of a packet that came. The lower 32 bits count; a jump of 2^31 or more is one backwards.
func (t *Tracker) Observe(number uint32) Verdict {
	c := &t.counts
	if c.Next == c.First {
		c.First = 1<<32 + uint64(number)
		c.Next = c.First
	}
	ahead := int32(number - uint32(c.Next))
	if ahead >= 0 {
		n := c.Next + uint64(ahead)
		t.forget(c.Next, n)
		t.set(n)
		c.Next = n + 1
		c.Unique++
		return InOrder
	}
	back := uint64(-int64(ahead)) // 1 is the highest number again
	if back > Window {
		c.Ancient++
		return Ancient
	}
	n := c.Next - back
	if t.seen[n%Window/64]&(1<<(n%64)) != 0 {
		c.Duplicates++
		return Duplicate
	}
	t.set(n)
	c.First = min(c.First, n)
	c.Unique++
	c.Reordered++
	return Late
}

func (t *Tracker) set(n uint64) { t.seen[n%Window/64] |= 1 << (n % 64) }

// forget clears the bits of the numbers from a up to b, b included: they were those of numbers a window before.
func (t *Tracker) forget(a, b uint64) {
	if b-a >= Window {
		t.seen = [Window / 64]uint64{}
		return
	}
	for n := a; n <= b; n++ {
		if n%64 == 0 && b-n >= 64 {
			t.seen[n%Window/64] = 0
			n += 63
			continue
		}
		t.seen[n%Window/64] &^= 1 << (n % 64)
	}
}
