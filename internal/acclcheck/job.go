package acclcheck

import (
	"bytes"
	"fmt"

	"gradnic/worker/accl"
)

// Job is one collective of all ranks: their calls, and what they must give.
type Job struct {
	Ranks   int
	Segment int // bytes, of the communicator
	Calls   []accl.Call
	part    []bool // rank r has a part in it
	src     [][]float64
}

// New makes the calls of a collective, with reproducible elements. A Send is the root's to the rank behind it, whose call
// is a Recv; the others have no part in it.
func New(c accl.Call, ranks, segment int, seed uint64) *Job {
	j := &Job{Ranks: ranks, Segment: segment}
	for r := range ranks {
		n := c.Count
		if c.Collective == accl.Scatter || c.Collective == accl.ReduceScatter {
			n *= ranks
		}
		x := Values(c.Type, n, r, seed)
		own, part := c, true
		if c.Collective == accl.Send {
			switch r {
			case c.Root:
				own.Root = (c.Root + 1) % ranks
			case (c.Root + 1) % ranks:
				own.Collective = accl.Recv
			default:
				own, part = accl.Call{}, false
			}
		}
		if part {
			src, dst := own.Lengths(r, ranks)
			if src > 0 {
				own.Src = Encode(c.Type, x[:src/c.Type.Size()])
			}
			own.Dst = make([]byte, dst)
		}
		j.src, j.Calls, j.part = append(j.src, x), append(j.Calls, own), append(j.part, part)
	}
	return j
}

// Of are the calls of one rank: none if it has no part.
func (j *Job) Of(rank int) []accl.Call {
	if !j.part[rank] {
		return nil
	}
	return j.Calls[rank : rank+1]
}

// Largest is the bytes of a rank's larger array.
func (j *Job) Largest(rank int) int { return max(len(j.Calls[rank].Src), len(j.Calls[rank].Dst)) }

// Wrong is how many elements of a rank's Dst are not what they must be, bit for bit; the error tells of the first.
func (j *Job) Wrong(rank int) (wrong int, err error) {
	if !j.part[rank] {
		return 0, nil
	}
	c := j.Calls[rank]
	values := Reference(c, j.Ranks, rank, j.Segment, j.src)
	want := Encode(c.Type, values)
	if bytes.Equal(c.Dst, want) {
		return 0, nil
	}
	if len(c.Dst) != len(want) {
		return len(values), fmt.Errorf("%v at rank %d: %d bytes, want %d", c.Collective, rank, len(c.Dst), len(want))
	}
	size := c.Type.Size()
	for i := range values {
		if got := c.Dst[i*size : (i+1)*size]; !bytes.Equal(got, want[i*size:(i+1)*size]) {
			if wrong++; wrong == 1 {
				err = fmt.Errorf("%v of %d %v by %v, half %v, root %d: rank %d of %d, element %d is %v, want %v",
					c.Collective, c.Count, c.Type, c.Op, c.Half, c.Root, rank, j.Ranks, i, Decode(c.Type, got)[0], values[i])
			}
		}
	}
	return wrong, err
}

// Kinds are calls of every collective, type and operation, and of half precision, without a count.
func Kinds(root int) (cs []accl.Call) {
	for _, c := range accl.Collectives() {
		if c == accl.Recv {
			continue // with Send
		}
		for _, t := range accl.Types() {
			for _, op := range []accl.Op{accl.Sum, accl.Max} {
				if op == accl.Max && c != accl.Reduce && c != accl.AllReduce && c != accl.ReduceScatter {
					continue
				}
				cs = append(cs, accl.Call{Collective: c, Type: t, Op: op, Root: root, Tag: 7})
				if t == accl.Float32 {
					cs = append(cs, accl.Call{Collective: c, Type: t, Op: op, Root: root, Tag: 7, Half: true})
				}
			}
		}
	}
	return cs
}

// Sizes are what a collective is tried on: 1 to 300 elements, and about the first multiples of what a segment holds. With
// some, only some of the first.
func Sizes(t accl.Type, segment int, some bool) (ns []int) {
	for n := 1; n <= 300; n++ {
		if !some || n <= 9 || n%64 == 0 || n == 300 {
			ns = append(ns, n)
		}
	}
	e := segment / t.Size()
	for k := 1; k <= 3; k++ {
		ns = append(ns, k*e-1, k*e, k*e+1)
	}
	return ns
}
