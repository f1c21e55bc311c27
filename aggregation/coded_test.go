package aggregation

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gradnic/codec"
)

func codecOf(t testing.TB, name string) codec.Codec {
	t.Helper()
	if name == "" {
		return nil
	}
	c, err := codec.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// codecsInNetwork are names of all that a pool takes.
var codecsInNetwork = []string{
	"", "bfp16", "bfp16-intel", "fp16", "bf16", "mxfp8-e4m3", "mxfp8-e5m2", "mxfp4", "mxint8", "int8", "block16e8m4s",
	"topk:0.2", "qsgd", "lossless",
}

// encoded makes one worker's contribution.
func encoded(t testing.TB, s Spec, worker int, x []float32) []byte {
	c := s.codec()
	st := codec.NewState(c, len(x), codec.StateOptions{Seed: 1, Worker: uint32(worker)})
	b := make([]byte, c.MaxEncoded(len(x)))
	n, err := c.Encode(b, x, st)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n:n]
}

// gradientsOf makes values of a kind: 0 small ones, 1 any bits, 2 such that sums overflow.
func gradientsOf(r *rand.Rand, kind, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		switch kind {
		case 0:
			x[i] = float32(r.NormFloat64())
		case 1:
			x[i] = math.Float32frombits(r.Uint32())
		case 2:
			x[i] = float32(r.NormFloat64()) * 0x1p127
		}
	}
	return x
}

// A pool with codecs does what a pool of plain float32 does with the decoded contributions, and encodes what comes out:
// in any order of arrival, with duplicates, for every policy and operation.
func TestCodedPoolIsDecodeReduceEncode(t *testing.T) {
	for _, in := range codecsInNetwork {
		for _, out := range codecsInNetwork {
			if in == "" && out == "" {
				continue
			}
			t.Run(in+"_"+out, func(t *testing.T) {
				r := rand.New(rand.NewPCG(1, uint64(len(in)<<8+len(out))))
				for trial := range 12 {
					codedTrial(t, r, in, out, trial)
				}
			})
		}
	}
}

func codedTrial(t *testing.T, r *rand.Rand, in, out string, trial int) {
	s := Spec{
		Rule: Rounds, Type: Float32, ByteOrder: LittleEndian, Workers: 1 + r.IntN(5), Slots: 3, Elements: 1 + r.IntN(100), Op: Op(r.IntN(4)),
		Order: Order(r.IntN(2)), Policy: Policy(r.IntN(2)), Codec: codecOf(t, in), Result: codecOf(t, out), Seed: 7,
	}
	if strings.HasPrefix(in, "topk") {
		s.Op %= 2
	}
	p := mustPool(t, s)
	plain := s
	plain.Codec, plain.Result = nil, nil
	q := mustPool(t, plain)
	slot, round := r.IntN(3), uint32(trial)
	got, sum := make([]byte, s.ResultBytes()), make([]byte, 4*s.Elements)
	values := make([]float32, s.Elements)
	var done bool
	order := r.Perm(s.Workers)
	for k, w := range order {
		b := encoded(t, s, w, gradientsOf(r, trial%3, s.Elements))
		if len(b) < s.WireBytes() && s.codec().Info().Fixed {
			t.Fatalf("%d bytes of a fixed %d", len(b), s.WireBytes())
		}
		if err := s.codec().Decode(values, b, codec.NewState(s.codec(), s.Elements, codec.StateOptions{})); err != nil {
			t.Fatal(err)
		}
		raw, _ := binary.Append(nil, binary.LittleEndian, values)
		c, d := Contribution{Slot: slot, Worker: w, Round: round, Values: b}, Contribution{Slot: slot, Worker: w, Round: round, Values: raw}
		o, want := p.Contribute(&c, 0, got), q.Contribute(&d, 0, sum)
		if o != want {
			t.Fatalf("%v, plain %v", o, want)
		}
		done = o == Completed
		if done != (k == s.Workers-1) {
			t.Fatalf("contribution %d of %d: %v", k, s.Workers, o)
		}
		if o = p.Contribute(&c, 0, nil); done && o != Answered || !done && o != Duplicate {
			t.Fatalf("again: %v", o)
		}
	}
	n := p.ResultLen(slot, int(round&1))
	if _, err := binary.Decode(sum, binary.LittleEndian, values); err != nil {
		t.Fatal(err)
	}
	st := codec.NewState(s.resultCodec(), s.Elements, codec.StateOptions{Seed: 7, Worker: math.MaxUint32})
	st.Round = uint64(round)*3 + uint64(slot)
	want := make([]byte, s.ResultBytes())
	k, err := s.resultCodec().Encode(want, values, st)
	if err != nil {
		t.Fatal(err)
	}
	// Halves are encoded by the loops of package kernel: under Saturate they clamp.
	clamps := s.Policy == Saturate && (out == "fp16" || out == "bf16")
	// With top-k a zero that was not sent is not added.
	same := sameMessage(t, s.resultCodec(), got[:n], want[:k], s.Elements)
	if n != k || !same && !clamps {
		t.Fatalf("%+v: result %x, want %x", s, got[:n], want[:k])
	}
	if p.Flags(slot, int(round&1))&FlagNonFinite == 0 {
		if err := s.resultCodec().Decode(values, got[:n], st); err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			if v-v != 0 {
				t.Fatalf("%+v: element %d is %v and not flagged", s, i, v)
			}
		}
	}
	if f, g := p.Flags(slot, int(round&1)), q.Flags(slot, int(round&1)); f&g != g && f&FlagNonFinite == 0 { // a codec may have no room for what saturation gives
		t.Fatalf("%+v: flags %v, of plain values %v", s, f, g)
	}
	// Whoever asks again gets the same bytes; so does who asks after a loss of memory.
	again := make([]byte, s.ResultBytes())
	p.Contribute(&Contribution{Slot: slot, Round: round, Values: encoded(t, s, 0, make([]float32, s.Elements))}, 0, again)
	if !bytes.Equal(again[:n], got[:n]) {
		t.Fatalf("asked again: %x, not %x", again[:n], got[:n])
	}
	fresh := mustPool(t, s)
	if o := fresh.Restore(slot, round, got[:n], 0); o != Completed {
		t.Fatalf("restore: %v", o)
	}
	clear(again)
	if o := fresh.Contribute(&Contribution{Slot: slot, Round: round, Values: encoded(t, s, 0, make([]float32, s.Elements))}, 0, again); o != Answered || fresh.ResultLen(slot, int(round&1)) != n || !bytes.Equal(again[:n], got[:n]) {
		t.Fatalf("restored, asked: %v %x, not %x", o, again[:n], got[:n])
	}
}

// sameMessage compares messages, but takes zeros of either sign for the same in messages whose elements stand alone.
func sameMessage(t *testing.T, c codec.Codec, a, b []byte, n int) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, y := make([]float32, n), make([]float32, n)
	st := codec.NewState(c, n, codec.StateOptions{})
	if c.Decode(x, a, st) != nil || c.Decode(y, b, st) != nil {
		return false
	}
	for i := range x {
		if x[i] != y[i] && (x[i] == x[i] || y[i] == y[i]) {
			return false
		}
	}
	return true
}

// What is no message of the codec is told so, and touches nothing.
func TestCorruptContributionTouchesNothing(t *testing.T) {
	for _, name := range codecsInNetwork[1:] {
		for _, order := range []Order{Arrival, Ranked} {
			s := Spec{Rule: Rounds, Type: Float32, Workers: 2, Slots: 1, Elements: 50, Order: order, Codec: codecOf(t, name)}
			p := mustPool(t, s)
			good := encoded(t, s, 0, gradientsOf(rand.New(rand.NewPCG(1, 1)), 0, 50))
			for _, bad := range [][]byte{nil, good[:len(good)-1], append(bytes.Clone(good), make([]byte, s.WireBytes()-len(good)+1)...)} {
				if o := p.Contribute(&Contribution{Values: bad}, 0, nil); o != InvalidLength && o != InvalidValues {
					t.Errorf("%s: %d bytes instead of %d: %v", name, len(bad), len(good), o)
				}
			}
			if idle, _, _ := p.Occupancy(); idle != 2 {
				t.Errorf("%s: %d versions are idle", name, idle)
			}
			for w := range 2 {
				if o := p.Contribute(&Contribution{Worker: w, Values: good}, 0, nil); o != Outcome(w) {
					t.Errorf("%s: %v", name, o)
				}
			}
		}
	}
	// Messages of the right length, too.
	for name, spoil := range map[string]func(b []byte){
		"topk=2":       func(b []byte) { binary.LittleEndian.PutUint32(b[8:], 99) },
		"int8":         func(b []byte) { b[len(b)-1] = 0xff },
		"qsgd":         func(b []byte) { b[len(b)-1] = 0xff },
		"block16e8m4s": func(b []byte) { b[0] = 200 },
	} {
		s := Spec{Rule: Rounds, Type: Float32, Workers: 1, Slots: 1, Elements: 50, Codec: codecOf(t, name)}
		p := mustPool(t, s)
		b := encoded(t, s, 0, gradientsOf(rand.New(rand.NewPCG(1, 1)), 0, 50))
		spoil(b)
		if o := p.Contribute(&Contribution{Values: b}, 0, nil); o != InvalidValues || p.Collecting() != 0 {
			t.Errorf("%s: %v", name, o)
		}
		if o := p.Restore(0, 0, b, 0); o == Completed {
			t.Errorf("%s: restored: %v", name, o)
		}
	}
}

func TestCodecsRefused(t *testing.T) {
	good := Spec{Rule: Rounds, Type: Float32, Workers: 2, Slots: 2, Elements: 64}
	for _, c := range []struct {
		name   string
		mutate func(*Spec)
		say    string
	}{
		{"thc", func(*Spec) {}, "norms"},
		{"block16e5m4", func(*Spec) {}, "less than 8 bits"},
		{"topk", func(s *Spec) { s.Op = Min }, "count as 0"},
		{"bfp16", func(s *Spec) { s.Type = Int32 }, "carry float32"},
		{"bfp16", func(s *Spec) { s.Rule = SwitchML }, "rule rounds"},
	} {
		s := good
		s.Codec = codecOf(t, c.name)
		c.mutate(&s)
		if _, err := NewPool(s); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v, want an error about %q", c.name, err, c.say)
		}
	}
}

func TestCodedBytesAndAllocations(t *testing.T) {
	for _, name := range codecsInNetwork[1:] {
		for _, order := range []Order{Arrival, Ranked} {
			s := Spec{Rule: Rounds, Type: Float32, Workers: 3, Slots: 4, Elements: 300, Order: order, Codec: codecOf(t, name), Result: codecOf(t, name)}
			p := mustPool(t, s)
			c := p.coded
			got := int64(len(p.versions)*versionBytes+(len(p.seen)+len(p.quiet))*8+4*(len(c.values)+len(c.decoded)+len(c.spare)+len(c.lengths)+len(p.keptLens))+len(p.kept)+len(p.scratch)+2*lineBytes) + codec.StateBytes(s.Codec, 300, false)
			if got != s.Bytes() {
				t.Errorf("%s takes %d bytes, Bytes says %d", name, got, s.Bytes())
			}
			b, out := encoded(t, s, 0, gradientsOf(rand.New(rand.NewPCG(1, 1)), 0, 300)), make([]byte, s.ResultBytes())
			var k uint32
			var x Contribution
			if n := testing.AllocsPerRun(50, func() {
				for w := range 3 {
					x = Contribution{Slot: 2, Worker: 2 - w, Round: k, Values: b}
					p.Contribute(&x, 0, out)
					p.Contribute(&x, 0, out)
				}
				k++
			}); n != 0 && !raceDetector {
				t.Errorf("%s, %v: %v allocations a round", name, order, n)
			}
			if p.Collecting() != 0 || p.ResultLen(2, int(k-1)&1) == 0 {
				t.Errorf("%s: rounds did not complete", name)
			}
		}
	}
}

func BenchmarkCodedContribute(b *testing.B) {
	for _, name := range []string{"", "bfp16", "mxfp8-e4m3", "int8", "topk", "qsgd"} {
		s := Spec{Rule: Rounds, Type: Float32, ByteOrder: LittleEndian, Workers: 8, Slots: 64, Elements: 1024, Codec: codecOf(b, name), Result: codecOf(b, name)}
		b.Run(fmt.Sprintf("codec %s", name), func(b *testing.B) {
			p, err := NewPool(s)
			if err != nil {
				b.Fatal(err)
			}
			values, out := encoded(b, s, 0, gradientsOf(rand.New(rand.NewPCG(1, 1)), 0, 1024)), make([]byte, s.ResultBytes())
			b.SetBytes(4 * 1024)
			c := Contribution{Values: values}
			for i := 0; b.Loop(); i++ {
				c.Worker, c.Slot, c.Round = i&7, i>>3&63, uint32(i>>9)
				p.Contribute(&c, 0, out)
			}
		})
	}
}

// FuzzCoded gives pools with every codec any contribution, or one without values: what is no message touches nothing, what is one
// counts, and a result that holds anything that is not finite says so.
func FuzzCoded(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for i, name := range codecsInNetwork {
		s := Spec{Elements: 40, Codec: codecOf(f, name)}
		if name == "" {
			continue
		}
		for kind := range 3 {
			b := encoded(f, s, 0, gradientsOf(r, kind, 40))
			f.Add(uint8(i), uint8(kind), append(b, b...))
			f.Add(uint8(i), uint8(16+17*kind), append(b, b...)) // one or both without values
		}
	}
	f.Fuzz(func(t *testing.T, codecs, rules uint8, raw []byte) {
		n := len(codecsInNetwork)
		s := Spec{
			Rule: Rounds, Type: Float32, ByteOrder: LittleEndian, Workers: 2, Slots: 1, Elements: 40, Op: Op(rules & 3), Order: Order(rules >> 2 & 1),
			Policy: Policy(rules >> 3 & 1), Codec: codecOf(t, codecsInNetwork[int(codecs)%n]), Result: codecOf(t, codecsInNetwork[int(codecs)/n%n]),
		}
		p, err := NewPool(s)
		if err != nil {
			return
		}
		half := len(raw) / 2
		out := make([]byte, s.ResultBytes())
		counted, nones := 0, 0
		for w, b := range [][]byte{raw[:half], raw[half:]} {
			c := Contribution{Worker: w, Values: b, None: rules>>(4+w)&1 == 1}
			if c.None {
				c.Values = nil
				nones++
			}
			o := p.Contribute(&c, 0, out)
			switch o {
			case Added, Completed:
				if counted++; (o == Completed) != (counted == 2) {
					t.Fatalf("contribution %d: %v", counted, o)
				}
			case InvalidLength, InvalidValues:
				if c.None {
					t.Fatalf("a contribution without values: %v", o)
				}
			default:
				t.Fatalf("contribution of %d bytes: %v", len(b), o)
			}
			if got := p.Collecting(); got != counted%2 {
				t.Fatalf("%d contributions are in it, %d slots collect", counted, got)
			}
		}
		if counted < 2 {
			return
		}
		values := make([]float32, s.Elements)
		c := s.resultCodec()
		if err := c.Decode(values, out[:p.ResultLen(0, 0)], codec.NewState(c, s.Elements, codec.StateOptions{})); err != nil {
			t.Fatalf("the result is no message: %v", err)
		}
		for i, v := range values {
			if nones == 2 && v != 0 {
				t.Fatalf("element %d is %v, and nobody brought values", i, v)
			}
			if v-v != 0 && p.Flags(0, 0)&FlagNonFinite == 0 {
				t.Fatalf("element %d is %v and not flagged: %v", i, v, p.Flags(0, 0))
			}
		}
	})
}
