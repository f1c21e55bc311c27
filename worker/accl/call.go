package accl

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Collective is what the ranks do together.
type Collective uint8

// The collectives. Barrier and AllToAll exist to be refused: the card's engine does them by rendezvous only.
const (
	Send Collective = iota
	Recv
	Bcast
	Scatter
	Gather
	Reduce
	AllGather
	ReduceScatter
	AllReduce
	Barrier
	AllToAll
	collectives
)

var collectiveNames = [collectives]string{
	"send", "recv", "bcast", "scatter", "gather", "reduce", "allgather", "reduce_scatter", "allreduce", "barrier", "alltoall",
}

// String is the collective's name as ACCL writes it.
func (c Collective) String() string { return nameOf(collectiveNames[:], c, "collective") }

// ParseCollective is the inverse of String.
func ParseCollective(s string) (Collective, error) {
	return parse[Collective](collectiveNames[:], s, "collective")
}

// Collectives lists those that work over UDP.
func Collectives() []Collective {
	return []Collective{Send, Recv, Bcast, Scatter, Gather, Reduce, AllGather, ReduceScatter, AllReduce}
}

// Type is the element type.
type Type uint8

// The element types.
const (
	Float32 Type = iota
	Float16
	Float64
	Int32
	Int64
	types
)

var typeNames = [types]string{"float32", "float16", "float64", "int32", "int64"}

// String is the type's name.
func (t Type) String() string { return nameOf(typeNames[:], t, "type") }

// ParseType is the inverse of String.
func ParseType(s string) (Type, error) { return parse[Type](typeNames[:], s, "element type") }

// Types lists all element types.
func Types() []Type { return []Type{Float16, Float32, Float64, Int32, Int64} }

// Size is the bytes of one element.
func (t Type) Size() int { return [types]int{4, 2, 8, 4, 8}[t] }

// Op is how elements are combined.
type Op uint8

// The operations, with the numbers that the card's firmware has for them. Max of floats is IEEE 754-2019 maximum.
const (
	Sum Op = iota
	Max
	ops
)

var opNames = [ops]string{"sum", "max"}

// String is the operation's name.
func (o Op) String() string { return nameOf(opNames[:], o, "operation") }

// ParseOp is the inverse of String.
func ParseOp(s string) (Op, error) { return parse[Op](opNames[:], s, "operation") }

func nameOf[T ~uint8](names []string, v T, what string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s %d", what, uint8(v))
}

func parse[T ~uint8](names []string, s, what string) (T, error) {
	if i := slices.Index(names, s); i >= 0 {
		return T(i), nil
	}
	return 0, fmt.Errorf("%s %q: legal are %s", what, s, strings.Join(names, ", "))
}

// Call is one rank's part in a collective. All ranks must make calls that fit together, in the same order: nothing on the
// wire tells them apart.
//
// Src and Dst hold little-endian elements. Their lengths in elements, with W ranks:
//
//	               Src                  Dst
//	Send           Count                -
//	Recv           -                    Count
//	Bcast          Count at the root    Count at the others
//	Scatter        W*Count at the root  Count
//	Gather         Count                W*Count at the root
//	Reduce         Count                Count at the root
//	AllGather      Count                W*Count
//	ReduceScatter  W*Count              Count
//	AllReduce      Count                Count
//
// Slices that are not named are ignored. Dst may be Src in Reduce and AllReduce; otherwise they must not overlap.
type Call struct {
	Collective Collective
	Type       Type
	Op         Op     // of Reduce, ReduceScatter and AllReduce
	Count      int    // elements; 0 and up
	Root       int    // of Bcast, Scatter, Gather and Reduce; the other side of Send and Recv
	Tag        uint32 // of Send and Recv. A Recv takes its own tag and TagAny; with TagAny it takes TagAny only
	// Half sends Float32 elements as Float16 and combines them in that format, at every hop (the card's ETH_COMPRESSED).
	// What a rank keeps of its own is not rounded.
	Half bool
	Src  []byte
	Dst  []byte
}

// lengths are the elements that a rank needs in Src and Dst.
func (c *Call) lengths(rank, ranks int) (src, dst int) {
	root := rank == c.Root
	pick := func(yes bool, n int) int {
		if yes {
			return n
		}
		return 0
	}
	n, all := c.Count, c.Count*ranks
	switch c.Collective {
	case Send:
		return n, 0
	case Recv:
		return 0, n
	case Bcast:
		return pick(root, n), pick(!root, n)
	case Scatter:
		return pick(root, all), n
	case Gather:
		return n, pick(root, all)
	case Reduce:
		return n, pick(root, n)
	case AllGather:
		return n, all
	case ReduceScatter:
		return all, n
	case AllReduce:
		return n, n
	}
	return 0, 0
}

// Lengths are the bytes that a rank of a communicator of that many ranks needs in Src and Dst.
func (c *Call) Lengths(rank, ranks int) (src, dst int) {
	src, dst = c.lengths(rank, ranks)
	return src * c.Type.Size(), dst * c.Type.Size()
}

// check says why a call cannot be made.
func (c *Call) check(cfg *Config) error {
	ranks := len(cfg.Ranks)
	switch {
	case c.Collective == Barrier || c.Collective == AllToAll:
		return fmt.Errorf("%w: %v is by rendezvous only, and the card's UDP engine serves none: a card would hang", ErrRefused, c.Collective)
	case c.Collective >= collectives || c.Type >= types || c.Op >= ops:
		return fmt.Errorf("%w: %v of %v by %v is unknown", ErrRefused, c.Collective, c.Type, c.Op)
	case c.Root < 0 || c.Root >= ranks:
		return fmt.Errorf("%w: rank %d of %d ranks", ErrRefused, c.Root, ranks)
	case (c.Collective == Send || c.Collective == Recv) && c.Root == cfg.Rank:
		return fmt.Errorf("%w: %v to or from the rank itself", ErrRefused, c.Collective)
	case c.Half && c.Type != Float32:
		return fmt.Errorf("%w: half precision on the wire is for float32, not %v", ErrRefused, c.Type)
	case c.Count < 0 || c.Count > maxCount:
		return fmt.Errorf("%w: %d elements: legal are 0 to %d", ErrRefused, c.Count, maxCount)
	}
	if n := c.Count * c.Type.Size(); n > cfg.MaxEager && !c.Half {
		return fmt.Errorf("%w: %v of %d bytes is over the eager limit of %d, and over that the card's UDP engine waits for a rendezvous that nothing serves: raise the limit at all ranks",
			ErrRefused, c.Collective, n, cfg.MaxEager)
	}
	if c.Collective == AllReduce && cfg.Segment/c.Type.Size() < ranks {
		return fmt.Errorf("%w: allreduce cuts buffers of %d bytes into %d chunks of whole elements, and that is less than one", ErrRefused, cfg.Segment, ranks)
	}
	src, dst := c.Lengths(cfg.Rank, ranks)
	var errs []error
	for _, b := range []struct {
		name       string
		have, need int
	}{{"Src", len(c.Src), src}, {"Dst", len(c.Dst), dst}} {
		if b.need > 0 && b.have != b.need {
			errs = append(errs, fmt.Errorf("%w: %s has %d bytes, %v of %d %v needs %d at rank %d", ErrRefused, b.name, b.have, c.Collective, c.Count, c.Type, b.need, cfg.Rank))
		}
	}
	return errors.Join(errs...)
}

// maxCount keeps the bytes of all ranks' elements within 31 bits, as the card's counters of bytes do.
const maxCount = 1 << 24
