package flow

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gradnic/internal/sequence"
	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
)

func options(k Kind, sizes ...int) Options {
	return Options{Kind: k, To: inet.MAC{6, 0, 0, 0, 0, 0xfe}, ToIP: inet.Addr{10, 50, 0, 254}, Sizes: sizes, Workers: 3, Slots: 4}
}

func newStream(t *testing.T, o Options) *Stream {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every kind's frames are what its own parser takes, and carry a stamp where Kind.StampAt says.
func TestFramesAreOfTheirProtocol(t *testing.T) {
	buf := make([]byte, LongestFrame)
	for _, tt := range []struct {
		o     Options
		check func(t *testing.T, n int, p *inet.Packet)
	}{
		{options(UDP, 60), nil},
		{options(UDP, 9014), nil},
		{options(SwitchML, 308), func(t *testing.T, n int, p *inet.Packet) {
			v, f := switchml.Validate(p.Payload)
			if f != switchml.OK || v.Elements() != 64 || v.Slot() != n/3%4 {
				t.Fatalf("frame %d: fault %v, slot %d", n, f, v.Slot())
			}
		}},
		{options(SwitchML, 1076), nil},
		{options(Native, 298), func(t *testing.T, n int, p *inet.Packet) {
			v, f := native.Validate(p.Payload)
			if f != native.OK || int(v.Rank()) != n%3 || int(v.Slot()) != n/3%4 || int(v.Round()) != n/12 {
				t.Fatalf("frame %d: fault %v, rank %d, slot %d, round %d", n, f, v.Rank(), v.Slot(), v.Round())
			}
		}},
		{options(ACCL, 234), func(t *testing.T, n int, p *inet.Packet) {
			if len(p.Payload)%64 != 0 || p.Payload[0] != 128 || p.Payload[8] != byte(n%3) || p.SrcPort != ACCLPort+uint16(n%3) {
				t.Fatalf("frame %d: header %x from port %d", n, p.Payload[:16], p.SrcPort)
			}
		}},
	} {
		s := newStream(t, tt.o)
		for n := range 40 {
			frame := buf[:s.Next(buf, uint64(1000+n))]
			var p inet.Packet
			if f := inet.Parse(frame, &p); f != inet.OK || p.Src[4] != byte(n%3+1) || p.SrcIP[3] != byte(n%3+1) {
				t.Fatalf("%v frame %d: %v from %v", tt.o.Kind, n, f, p.Src)
			}
			got, ok := ReadStamp(frame[tt.o.Kind.StampAt():])
			if want := (Stamp{Number: uint32(n), Time: uint64(1000 + n)}); !ok || got != want {
				t.Fatalf("%v frame %d: stamp %+v %v, want %+v", tt.o.Kind, n, got, ok, want)
			}
			if len(frame) != tt.o.Sizes[0] {
				t.Fatalf("%v frame of %d bytes, want %d", tt.o.Kind, len(frame), tt.o.Sizes[0])
			}
			if tt.check != nil {
				tt.check(t, n, &p)
			}
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, tt := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Sizes = []int{59} }, "60 to 9014"},
		{func(o *Options) { o.Sizes = []int{9015} }, "60 to 9014"},
		{func(o *Options) { o.Kind, o.Sizes = SwitchML, []int{300} }, "308 and 1076"},
		{func(o *Options) { o.Kind, o.Sizes = Native, []int{299} }, "whole float32"},
		{func(o *Options) { o.Kind, o.Sizes = Native, []int{80} }, "the least is"},
		{func(o *Options) { o.Kind, o.Sizes = ACCL, []int{235} }, "multiple of 64"},
		{func(o *Options) { o.To = inet.MAC{} }, "no destination"},
		{func(o *Options) { o.Workers = 65 }, "1 to 64"},
		{func(o *Options) { o.Slots = 8193 }, "1 to 8192"},
		{func(o *Options) { o.Shares = []float64{1, 2} }, "2 shares of 1 sizes"},
		{func(o *Options) { o.Shares = []float64{0} }, "share 0"},
		{func(o *Options) { o.Loss = 1 }, "share of loss"},
		{func(o *Options) { o.Malformed = -1 }, "share of malformed"},
	} {
		o := options(UDP, 64)
		tt.change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want one with %q", err, tt.want)
		}
	}
}

// What the stream says it did to the flow is what a receiver finds.
func TestImpairmentsAreWhatTheCountsSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := options(UDP, 64)
		share := func(name string) float64 { return rapid.Float64Range(0, 0.3).Draw(t, name) }
		o.Impairments = Impairments{share("loss"), share("duplicates"), share("reordering"), share("malformed")}
		o.Seed = rapid.Uint64().Draw(t, "seed")
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		var (
			tr  sequence.Tracker
			bad uint64
			buf [64]byte
			p   inet.Packet
		)
		// A first frame without dice, so that what is missing at the start shows as well.
		tr.Observe(^uint32(0))
		for range rapid.IntRange(1, 2000).Draw(t, "frames") {
			f := buf[:s.Next(buf[:], 0)]
			if inet.Parse(f, &p) != inet.OK {
				bad++
				continue
			}
			st, ok := ReadStamp(f[42:])
			if !ok {
				t.Fatalf("damaged stamp")
			}
			tr.Observe(st.Number)
		}
		c, got := s.Counts(), tr.Counts()
		pending := uint64(len(s.back))
		if bad != c.Malformed || got.Unique-1+got.Duplicates != c.Frames-c.Malformed {
			t.Fatalf("%d malformed, %+v arrived; the stream says %+v", bad, got, c)
		}
		if got.Reordered > c.Reordered || got.Reordered+pending < c.Reordered ||
			got.Duplicates > c.Duplicated || got.Duplicates+pending < c.Duplicated ||
			got.Lost() < c.Skipped || got.Lost() > c.Skipped+pending {
			t.Fatalf("arrived %+v, lost %d; the stream says %+v with %d pending", got, got.Lost(), c, pending)
		}
		if o.Loss == 0 && o.Reorder == 0 && got.Lost() != 0 {
			t.Fatalf("%d lost without loss", got.Lost())
		}
	})
}

func TestSharesAreKept(t *testing.T) {
	o := options(UDP)
	o.Sizes, o.Shares = IMIX()
	o.Loss, o.Seed = 0.2, 9
	s := newStream(t, o)
	var buf [1514]byte
	by := map[int]int{}
	const frames = 60000
	for range frames {
		by[s.Next(buf[:], 0)]++
	}
	for i, size := range o.Sizes {
		want := o.Shares[i] / 12
		if got := float64(by[size]) / frames; got < want-0.01 || got > want+0.01 {
			t.Errorf("%d bytes: share %.3f, want %.3f", size, got, want)
		}
	}
	if c := s.Counts(); c.Skipped < frames/5 || c.Skipped > frames*3/10 {
		t.Errorf("%d numbers skipped beside %d frames, want one in five", c.Skipped, frames)
	}
}

// The same seed makes the same bytes; another queue's are others.
func TestSeed(t *testing.T) {
	run := func(seed uint64, stream uint8) []byte {
		o := options(Native, 298, 1066)
		o.Seed, o.Stream = seed, stream
		o.Impairments = Impairments{0.1, 0.1, 0.1, 0.1}
		s := newStream(t, o)
		var all []byte
		buf := make([]byte, 1066)
		for range 200 {
			all = append(all, buf[:s.Next(buf, 5)]...)
		}
		return all
	}
	if !bytes.Equal(run(1, 0), run(1, 0)) {
		t.Error("the same seed made other frames")
	}
	if bytes.Equal(run(1, 0), run(2, 0)) || bytes.Equal(run(1, 0), run(1, 1)) {
		t.Error("another seed or queue made the same frames")
	}
}

// Any bit that is changed in stamp or payload is found.
func TestStampFindsEveryBit(t *testing.T) {
	s := newStream(t, options(UDP, 128))
	var buf [128]byte
	for range 5 {
		s.Next(buf[:], 123456789)
	}
	for bit := range (128 - 42) * 8 {
		b := buf
		b[42+bit/8] ^= 1 << (bit % 8)
		if _, ok := ReadStamp(b[42:]); ok {
			t.Errorf("bit %d changed, and nothing noticed", bit)
		}
	}
	if _, ok := ReadStamp(make([]byte, 64)); ok {
		t.Error("zeros are a stamp")
	}
	if _, ok := ReadStamp(buf[42:57]); ok {
		t.Error("15 bytes are a stamp")
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	o := options(UDP, 64, 1000)
	o.Impairments = Impairments{0.1, 0.1, 0.1, 0.1}
	s := newStream(t, o)
	var buf [1000]byte
	if got := testing.AllocsPerRun(1000, func() { s.Next(buf[:], 1) }); got != 0 {
		t.Errorf("%v allocations a frame", got)
	}
}

func FuzzReadStamp(f *testing.F) {
	f.Add([]byte("0123456789abcdef"))
	f.Add(make([]byte, 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, ok := ReadStamp(b)
		if !ok {
			return
		}
		again := bytes.Clone(b)
		s.Put(again, PayloadSum(again[StampLen:]))
		if !bytes.Equal(again, b) {
			t.Errorf("%x was read as %+v, which is %x", b, s, again)
		}
	})
}

func BenchmarkNext(b *testing.B) {
	for _, size := range []int{64, 1066} {
		s, err := New(options(UDP, size))
		if err != nil {
			b.Fatal(err)
		}
		buf := make([]byte, size)
		b.Run(kindNames[UDP], func(b *testing.B) {
			b.SetBytes(int64(size))
			for range b.N {
				s.Next(buf, 1)
			}
		})
	}
}
