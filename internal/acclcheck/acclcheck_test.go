package acclcheck

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gradnic/worker/accl"
)

// The judge of others is judged here: by all 65536 halves, by results that were worked out by hand, and by arrays with an error.

// Each half has a value of its own and that value's bits, and rounding is to the nearest one, to even between two.
func TestHalves(t *testing.T) {
	finite := make([]float64, 0, 31<<10) // from 0 up
	for b := range 1 << 16 {
		v := halfValue(uint16(b))
		switch {
		case b&0x7c00 == 0x7c00 && b&0x3ff != 0:
			if !math.IsNaN(v) || halfBits(v) != 0x7e00 {
				t.Fatalf("%#x is %v", b, v)
			}
			continue
		case b&0x7fff == 0x7c00:
			if !math.IsInf(v, 1-b>>15*2) {
				t.Fatalf("%#x is %v", b, v)
			}
		case b < 0x8000:
			if n := len(finite); n > 0 && v <= finite[n-1] {
				t.Fatalf("%#x is %v, and the one before %v", b, v, finite[n-1])
			}
			finite = append(finite, v)
		}
		if got := halfBits(v); got != uint16(b) {
			t.Fatalf("%#x is %v, whose bits are %#x", b, v, got)
		}
		if got := half16(v); got != v || math.Signbit(got) != math.Signbit(v) {
			t.Fatalf("%v rounds to %v", v, got)
		}
	}
	if first, last := finite[1], finite[len(finite)-1]; first != 0x1p-24 || last != 65504 {
		t.Errorf("from %v to %v", first, last)
	}
	for i, v := range finite[:len(finite)-1] {
		next := finite[i+1]
		middle, even := (v+next)/2, v
		if i%2 == 1 {
			even = next
		}
		for _, c := range []struct{ x, want float64 }{
			{middle, even}, {math.Nextafter(middle, 0), v}, {math.Nextafter(middle, 1e9), next}, {-middle, -even},
		} {
			if got := half16(c.x); got != c.want {
				t.Fatalf("%v rounds to %v, want %v", c.x, got, c.want)
			}
		}
	}
	if a, b := half16(65519.99), half16(65520); a != 65504 || !math.IsInf(b, 1) {
		t.Errorf("at the end: %v, %v", a, b)
	}
}

// What Encode writes, Decode reads, in the format that Go's own encoder of numbers has.
func TestEncode(t *testing.T) {
	for _, typ := range accl.Types() {
		x := Values(typ, 100, 3, 9)
		b := Encode(typ, x)
		if len(b) != 100*typ.Size() || !slices.Equal(Decode(typ, b), x) {
			t.Errorf("%v: %d bytes, %v from %v", typ, len(b), Decode(typ, b), x)
		}
		var own any
		switch typ {
		case accl.Float32:
			own = new([100]float32)
		case accl.Float64:
			own = new([100]float64)
		case accl.Int32:
			own = new([100]int32)
		case accl.Int64:
			own = new([100]int64)
		default:
			continue // the halves are above
		}
		if _, err := binary.Decode(b, binary.LittleEndian, own); err != nil {
			t.Fatal(err)
		}
		back, err := binary.Append(nil, binary.LittleEndian, own)
		if err != nil || !slices.Equal(back, b) {
			t.Errorf("%v: %x, %v", typ, back, err)
		}
		for i, v := range x {
			got := map[accl.Type]func() float64{
				accl.Float32: func() float64 { return float64(own.(*[100]float32)[i]) }, accl.Float64: func() float64 { return own.(*[100]float64)[i] },
				accl.Int32: func() float64 { return float64(own.(*[100]int32)[i]) }, accl.Int64: func() float64 { return float64(own.(*[100]int64)[i]) },
			}[typ]()
			if got != v {
				t.Fatalf("%v: element %d is %v, want %v", typ, i, got, v)
			}
		}
		if slices.Equal(x, Values(typ, 100, 4, 9)) || slices.Equal(x, Values(typ, 100, 3, 10)) || !slices.Equal(x, Values(typ, 100, 3, 9)) {
			t.Errorf("%v: values of another rank or seed are the same, or not of the same", typ)
		}
	}
}

// Three ranks, worked out by hand.
func TestReference(t *testing.T) {
	src := [][]float64{{1, 2, 3, 4, 5, 6}, {10, 20, 30, 40, 50, 60}, {100, 200, 300, 400, 500, 600}}
	for _, c := range []struct {
		what  accl.Collective
		op    accl.Op
		count int
		want  [3][]float64 // by rank; the root is 1
	}{
		{accl.Bcast, accl.Sum, 2, [3][]float64{{10, 20}, nil, {10, 20}}},
		{accl.Scatter, accl.Sum, 2, [3][]float64{{10, 20}, {30, 40}, {50, 60}}},
		{accl.Gather, accl.Sum, 2, [3][]float64{nil, {1, 2, 10, 20, 100, 200}, nil}},
		{accl.AllGather, accl.Sum, 1, [3][]float64{{1, 10, 100}, {1, 10, 100}, {1, 10, 100}}},
		{accl.Reduce, accl.Sum, 2, [3][]float64{nil, {111, 222}, nil}},
		{accl.Reduce, accl.Max, 2, [3][]float64{nil, {100, 200}, nil}},
		{accl.ReduceScatter, accl.Sum, 2, [3][]float64{{111, 222}, {333, 444}, {555, 666}}},
		{accl.AllReduce, accl.Sum, 6, [3][]float64{{111, 222, 333, 444, 555, 666}, {111, 222, 333, 444, 555, 666}, {111, 222, 333, 444, 555, 666}}},
	} {
		for _, typ := range accl.Types() {
			for rank, want := range c.want {
				call := accl.Call{Collective: c.what, Type: typ, Op: c.op, Count: c.count, Root: 1}
				if got := Reference(call, 3, rank, 4*typ.Size(), src); !slices.Equal(got, want) {
					t.Errorf("%v of %v by %v at rank %d: %v, want %v", c.what, typ, c.op, rank, got, want)
				}
			}
		}
	}
}

// The order of additions is the ring's, which a sum that rounds tells: from the rank behind the root on, and an allreduce's begins
// anew in each segment.
func TestReferenceOrder(t *testing.T) {
	const big = 1 << 24 // float32 has no number between it and big+2: big+1 is big
	src := [][]float64{{1, 1, 1, 1}, {1, 1, 1, 1}, {big, big, big, big}}
	for root, want := range []float64{big, big, big + 2} { // 1+big+1, big+1+1, 1+1+big
		got := Reference(accl.Call{Collective: accl.Reduce, Type: accl.Float32, Count: 1, Root: root}, 3, root, 64, src)
		if !slices.Equal(got, []float64{want}) {
			t.Errorf("root %d: %v, want %v", root, got, want)
		}
	}
	want := []float64{big + 2, big, big, big + 2} // the first of each segment of three starts at rank 0
	if got := Reference(accl.Call{Collective: accl.AllReduce, Type: accl.Float32, Count: 4}, 3, 0, 12, src); !slices.Equal(got, want) {
		t.Errorf("allreduce: %v, want %v", got, want)
	}
}

// A result with an error in it is found, counted and told of.
func TestWrong(t *testing.T) {
	for _, kind := range Kinds(1) {
		kind.Count = 5
		j := New(kind, 3, 64, 1)
		for rank := range j.Ranks {
			calls := j.Of(rank)
			if len(calls) == 0 {
				if kind.Collective != accl.Send || rank != 0 {
					t.Errorf("%v: rank %d has no part", kind.Collective, rank)
				}
				if n, err := j.Wrong(rank); n != 0 || err != nil {
					t.Errorf("%v: rank %d without a part: %d, %v", kind.Collective, rank, n, err)
				}
				continue
			}
			c := calls[0]
			right := Encode(c.Type, Reference(c, j.Ranks, rank, j.Segment, j.src))
			if len(right) != len(c.Dst) {
				t.Errorf("%v: rank %d has %d bytes, its result %d", kind.Collective, rank, len(c.Dst), len(right))
				continue
			}
			if j.Largest(rank) != max(len(c.Src), len(right)) {
				t.Errorf("%v: rank %d: largest %d", kind.Collective, rank, j.Largest(rank))
			}
			copy(c.Dst, right)
			if n, err := j.Wrong(rank); n != 0 || err != nil {
				t.Errorf("%v: the right result: %d, %v", kind.Collective, n, err)
			}
			if len(right) == 0 {
				continue
			}
			size := c.Type.Size()
			c.Dst[2*size] ^= 1
			c.Dst[len(right)-1] ^= 1
			if n, err := j.Wrong(rank); n != 2 || err == nil || !strings.Contains(err.Error(), "element 2 is ") {
				t.Errorf("%v: two wrong elements: %d, %v", kind.Collective, n, err)
			}
		}
	}
}

func TestSizes(t *testing.T) {
	all, some := Sizes(accl.Float32, 4096, false), Sizes(accl.Float32, 4096, true)
	for _, n := range []int{1, 9, 64, 300, 1023, 1024, 1025, 3071, 3072, 3073} {
		if !slices.Contains(all, n) || !slices.Contains(some, n) {
			t.Errorf("%d is missing", n)
		}
	}
	if len(all) != 309 || slices.Contains(some, 63) {
		t.Errorf("%d and %d sizes", len(all), len(some))
	}
}

func TestRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("0 1 00ff\n15 2 7e\n")
	all, err := Record(file)
	if err != nil || len(all) != 2 || all[0].From != 0 || all[0].To != 1 || string(all[0].Payload) != "\x00\xff" || all[1].From != 15 || string(all[1].Payload) != "\x7e" {
		t.Errorf("%+v, %v", all, err)
	}
	for _, text := range []string{"0 1 00\n0 x 00\n", "0 1 00\n0\n", "0 1 00\n1 0 0g\n"} {
		write(text)
		if all, err := Record(file); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %+v, %v", text, all, err)
		}
	}
	if _, err := Record(file + ".none"); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
}
