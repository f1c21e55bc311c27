package codec

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func state(c Codec, n int) *State {
	return NewState(c, n, StateOptions{Seed: 0x0123456789abcdef, Worker: 3})
}

// gaussian gives n deterministic values that look like gradients: normal with
// a few zeros and a few outliers.
func gaussian(n int, sigma float64, seed uint64) []float32 {
	x := make([]float32, n)
	s := seed*2862933555777941757 + 3037000493
	next := func() float64 {
		s ^= s << 13
		s ^= s >> 7
		s ^= s << 17
		return (float64(s>>11) + 0.5) * 0x1p-53
	}
	for i := range x {
		u, v := next(), next()
		x[i] = float32(sigma * math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v))
		switch {
		case u < 0.03:
			x[i] = 0
		case u > 0.999:
			x[i] *= 30
		}
	}
	return x
}

// anyFloats draws float32 of every kind, finite only when asked.
func anyFloats(t *rapid.T, n int, finite bool) []float32 {
	kind := rapid.IntRange(0, 3).Draw(t, "kind")
	scale := rapid.IntRange(-150, 127).Draw(t, "scale")
	x := make([]float32, n)
	if n > 200 {
		return gaussian(n, math.Ldexp(1, scale), rapid.Uint64().Draw(t, "seed"))
	}
	for i := range x {
		switch kind {
		case 0:
			x[i] = math.Float32frombits(rapid.Uint32().Draw(t, "bits"))
		case 1:
			x[i] = float32(math.Ldexp(rapid.Float64Range(-2, 2).Draw(t, "v"), scale))
		case 2: // few mantissa bits: ties
			x[i] = float32(math.Ldexp(float64(rapid.IntRange(-4096, 4096).Draw(t, "v")), scale-11))
		case 3:
			x[i] = rapid.Float32().Draw(t, "v")
		}
		if finite && x[i]-x[i] != 0 {
			x[i] = math.MaxFloat32
		}
	}
	return x
}

func roundTrip(t interface {
	Helper()
	Fatalf(string, ...any)
}, c Codec, x []float32, st *State) []float32 {
	t.Helper()
	name := c.Info().Name
	buf := make([]byte, c.MaxEncoded(len(x))+8)
	for i := range buf {
		buf[i] = 0xa5
	}
	k, err := c.Encode(buf[:len(buf)-8], x, st)
	if err != nil {
		t.Fatalf("%s: encode %d elements: %v", name, len(x), err)
	}
	if k > c.MaxEncoded(len(x)) || c.Info().Fixed && k != c.MaxEncoded(len(x)) {
		t.Fatalf("%s: %d elements took %d bytes, worst case %d", name, len(x), k, c.MaxEncoded(len(x)))
	}
	if !bytes.Equal(buf[len(buf)-8:], bytes.Repeat([]byte{0xa5}, 8)) {
		t.Fatalf("%s: wrote after the worst case", name)
	}
	y := make([]float32, len(x)+1)
	y[len(x)] = 42
	if err := c.Decode(y[:len(x):len(x)], buf[:k:k], st); err != nil {
		t.Fatalf("%s: decode %d elements: %v", name, len(x), err)
	}
	if y[len(x)] != 42 {
		t.Fatalf("%s: decode wrote after the message", name)
	}
	return y[:len(x)]
}

func checkBound(t interface {
	Helper()
	Fatalf(string, ...any)
}, c Codec, x, y []float32) {
	t.Helper()
	b := make([]float64, len(x))
	c.Bound(b, x)
	for i := range x {
		if math.IsInf(b[i], 1) || math.Float32bits(x[i]) == math.Float32bits(y[i]) {
			continue
		}
		if err := math.Abs(float64(y[i]) - float64(x[i])); !(err <= b[i]) {
			t.Fatalf("%s: element %d of %d: %g (%#08x) came back as %g: error %g, bound %g", c.Info().Name, i, len(x), x[i], math.Float32bits(x[i]), y[i], err, b[i])
		}
	}
}

func TestRoundTripWithinBound(t *testing.T) {
	for _, c := range All() {
		t.Run(c.Info().Name, func(t *testing.T) {
			for _, n := range []int{0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 5000} {
				x := gaussian(n, 1e-3, uint64(n)+1)
				orig := slices.Clone(x)
				checkBound(t, c, x, roundTrip(t, c, x, state(c, n)))
				if !slices.Equal(x, orig) {
					t.Fatal("encode changed its input")
				}
			}
		})
	}
}

func TestRoundTripProperty(t *testing.T) {
	specs := []string{"block16e8m8", "block1e4m2", "block128e5m12s", "block7e6m3", "topk:0.25", "topk:1"}
	cs := All()
	for _, s := range specs {
		c, err := ByName(s)
		if err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
	}
	for _, c := range cs {
		t.Run(c.Info().Name, func(t *testing.T) {
			st := state(c, 1300)
			rapid.Check(t, func(t *rapid.T) {
				n := rapid.IntRange(0, 70).Draw(t, "n")
				if rapid.IntRange(0, 9).Draw(t, "long") == 0 {
					n += 1100
				}
				x := anyFloats(t, n, rapid.Bool().Draw(t, "finite"))
				st.Round = rapid.Uint64().Draw(t, "round")
				y := roundTrip(t, c, x, st)
				checkBound(t, c, x, y)
				if c.Info().Lossless {
					for i := range x {
						if math.Float32bits(x[i]) != math.Float32bits(y[i]) {
							t.Fatalf("element %d: %#08x became %#08x", i, math.Float32bits(x[i]), math.Float32bits(y[i]))
						}
					}
				}
			})
		})
	}
}

// Where an element is not finite, nothing finite and wrong may come back for
// it. The card's own format does not promise that.
func TestNonFiniteIsNeverLost(t *testing.T) {
	for _, c := range All() {
		if c.Info().ID == IDIntel {
			continue
		}
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			for _, at := range []int{0, 17, 299} {
				x := gaussian(300, 1, 7)
				x[at] = bad
				y := roundTrip(t, c, x, state(c, 300))
				if v := y[at]; v-v == 0 {
					t.Errorf("%s: %g at %d became %g", c.Info().Name, bad, at, v)
				}
			}
		}
	}
}

func TestZerosStayZero(t *testing.T) {
	for _, c := range All() {
		x := make([]float32, 700)
		for i, v := range roundTrip(t, c, x, state(c, 700)) {
			if v != 0 {
				t.Fatalf("%s: zero at %d became %g", c.Info().Name, i, v)
			}
		}
	}
}

func TestSameSeedSameBytes(t *testing.T) {
	for _, c := range All() {
		x := gaussian(3000, 1, 9)
		enc := func(seed, round uint64, worker uint32) []byte {
			st := NewState(c, len(x), StateOptions{Seed: seed, Worker: worker})
			st.Round = round
			buf := make([]byte, c.MaxEncoded(len(x)))
			k, err := c.Encode(buf, x, st)
			if err != nil {
				t.Fatal(err)
			}
			return buf[:k]
		}
		base := enc(1, 1, 1)
		if !bytes.Equal(base, enc(1, 1, 1)) {
			t.Errorf("%s: a repeated encode differs", c.Info().Name)
		}
		for what, other := range map[string][]byte{"seed": enc(2, 1, 1), "round": enc(1, 2, 1), "high round": enc(1, 1+1<<40, 1), "worker": enc(1, 1, 2)} {
			if bytes.Equal(base, other) == c.Info().Stochastic {
				t.Errorf("%s: another %s: same bytes is %v", c.Info().Name, what, !c.Info().Stochastic)
			}
		}
	}
}

func TestShortBufferAndMissingState(t *testing.T) {
	for _, c := range All() {
		x := gaussian(100, 1, 1)
		st := state(c, 100)
		if _, err := c.Encode(make([]byte, c.MaxEncoded(100)-1), x, st); !errors.Is(err, ErrBuffer) {
			t.Errorf("%s: short buffer: %v", c.Info().Name, err)
		}
		_, err := c.Encode(make([]byte, c.MaxEncoded(100)), x, nil)
		if want := c.Info().ID == IDLossless; errors.Is(err, ErrState) != want {
			t.Errorf("%s: nil state: %v", c.Info().Name, err)
		}
	}
}

func TestTruncatedAndExtendedMessagesAreCorrupt(t *testing.T) {
	for _, c := range All() {
		x := gaussian(600, 1, 5)
		st := state(c, 600)
		buf := make([]byte, c.MaxEncoded(600)+1)
		k, err := c.Encode(buf, x, st)
		if err != nil {
			t.Fatal(err)
		}
		y := make([]float32, 600)
		for _, n := range []int{0, 1, 3, 4, 5, k / 2, k - 1, k + 1} {
			if err := c.Decode(y, buf[:n:n], st); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %d of %d bytes: %v", c.Info().Name, n, k, err)
			}
		}
		if err := c.Decode(y[:599-64], buf[:k], st); !errors.Is(err, ErrCorrupt) && c.Info().ID != IDTopK && c.Info().ID != IDTHC && c.Info().ID != IDIntel {
			t.Errorf("%s: message of 600 taken for 535: %v", c.Info().Name, err)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	for _, c := range All() {
		x := gaussian(20000, 1, 5)
		st := state(c, len(x))
		buf := make([]byte, c.MaxEncoded(len(x)))
		y := make([]float32, len(x))
		var k int
		if n := testing.AllocsPerRun(5, func() { k, _ = c.Encode(buf, x, st) }); n != 0 {
			t.Errorf("%s: encode allocates %v times", c.Info().Name, n)
		}
		if n := testing.AllocsPerRun(5, func() {
			if err := c.Decode(y, buf[:k], st); err != nil {
				panic(err)
			}
		}); n != 0 {
			t.Errorf("%s: decode allocates %v times", c.Info().Name, n)
		}
		fb := NewState(c, len(x), StateOptions{Feedback: true})
		if n := testing.AllocsPerRun(5, func() { _, _ = EncodeFeedback(c, buf, x, fb) }); n != 0 {
			t.Errorf("%s: encode with feedback allocates %v times", c.Info().Name, n)
		}
	}
}

func TestRegistry(t *testing.T) {
	seen := map[string]bool{}
	for i, c := range All() {
		in := c.Info()
		if int(in.ID) != i {
			t.Errorf("%s has id %d at place %d", in.Name, in.ID, i)
		}
		if seen[in.Name] || in.Name == "" || in.Bound == "" || in.NonFinite == "" || in.Source == "" || in.Bits <= 0 {
			t.Errorf("incomplete or doubled entry %+v", in)
		}
		seen[in.Name] = true
		byName, err := ByName(in.Name)
		if err != nil || byName.Info() != in {
			t.Errorf("ByName(%q): %v", in.Name, err)
		}
		byID, err := ByID(in.ID)
		if err != nil || byID.Info() != in {
			t.Errorf("ByID(%d): %v", in.ID, err)
		}
		// The size in the table is the size on the wire.
		const n = 1 << 20
		if bits := float64(c.MaxEncoded(n)) * 8 / n; math.Abs(bits/in.Bits-1) > 1e-3 {
			t.Errorf("%s: %g bits a value in the table, %g on the wire", in.Name, in.Bits, bits)
		}
	}
	for _, bad := range []string{"", "BFP16", "block", "block16e8m1", "block0e8m4", "block16e8m4x", "block16e3m4", "block200e8m4", "topk:", "topk:0", "topk:1.5", "topk:nan"} {
		if c, err := ByName(bad); err == nil {
			t.Errorf("ByName(%q) gave %s", bad, c.Info().Name)
		}
	}
	if _, err := ByID(200); !errors.Is(err, ErrUnknown) {
		t.Errorf("ByID(200): %v", err)
	}
	if c, err := ByName(Default); err != nil || c.Info().ID != IDBFP16 {
		t.Errorf("default: %v", err)
	}
}

func TestFeedbackKeepsWhatWasLost(t *testing.T) {
	for _, name := range []string{"topk", "bfp16", "mxfp4", "qsgd", "thc"} {
		c, err := ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		const n, rounds = 2000, 40
		st := NewState(c, n, StateOptions{Seed: 5, Feedback: true})
		sent, want := make([]float64, n), make([]float64, n)
		buf, y := make([]byte, c.MaxEncoded(n)), make([]float32, n)
		for r := range rounds {
			g := gaussian(n, 1, uint64(r)+1)
			st.Round = uint64(r)
			k, err := EncodeFeedback(c, buf, g, st)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Decode(y, buf[:k], st); err != nil {
				t.Fatal(err)
			}
			for i := range y {
				sent[i] += float64(y[i])
				want[i] += float64(g[i])
			}
		}
		// All that was ever put in has been sent or is in the residual.
		for i, r := range st.Residual() {
			if d := math.Abs(sent[i] + float64(r) - want[i]); d > 1e-3 {
				t.Fatalf("%s: element %d: sent %g, residual %g, put in %g", name, i, sent[i], r, want[i])
			}
		}
	}
}

func TestFeedbackSurvivesANaN(t *testing.T) {
	c, _ := ByName("bfp16")
	st := NewState(c, 64, StateOptions{Feedback: true})
	buf, y := make([]byte, c.MaxEncoded(64)), make([]float32, 64)
	g := gaussian(64, 1, 3)
	g[5] = float32(math.NaN())
	for range 2 {
		if _, err := EncodeFeedback(c, buf, g, st); err != nil {
			t.Fatal(err)
		}
		g[5] = 1
	}
	if err := c.Decode(y, buf, st); err != nil {
		t.Fatal(err)
	}
	for i, v := range y {
		if v != v {
			t.Fatalf("a NaN of the step before is still there at %d", i)
		}
	}
}

func TestFeedbackWeights(t *testing.T) {
	c, _ := NewTopK(0.01) // sends one of 64
	st := NewState(c, 64, StateOptions{Feedback: true, Beta: 0.5, Gamma: 2})
	buf := make([]byte, c.MaxEncoded(64))
	g := make([]float32, 64)
	g[0], g[1] = 10, 1
	for range 2 {
		if _, err := EncodeFeedback(c, buf, g, st); err != nil {
			t.Fatal(err)
		}
	}
	// First: c = 2g, sends 20, keeps 2. Then c = 0.5*2 + 2*1 = 3.
	if r := st.Residual(); r[0] != 0 || r[1] != 3 {
		t.Fatalf("residual %v", r[:2])
	}
	if _, err := EncodeFeedback(c, buf, g, NewState(c, 64, StateOptions{})); !errors.Is(err, ErrState) {
		t.Fatalf("no residual: %v", err)
	}
	st.Reset()
	if st.Residual()[1] != 0 {
		t.Fatal("Reset kept the residual")
	}
}

func TestStateBytesCoverTheLossless(t *testing.T) {
	c, _ := ByName("lossless")
	x := gaussian(40000, 1, 1)
	buf, y := make([]byte, c.MaxEncoded(len(x))), make([]float32, len(x))
	const states = 20
	res := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			for range states {
				st := state(c, len(x))
				k, _ := c.Encode(buf, x, st)
				if err := c.Decode(y, buf[:k], st); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	if got := res.AllocedBytesPerOp() / states; got > StateBytes(c, len(x), false) || got == 0 {
		t.Fatalf("a state takes %d bytes, stated %d", got, StateBytes(c, len(x), false))
	}
	if StateBytes(c, 1000, true) != losslessScratchBytes+8000 {
		t.Fatal("the residual is not counted")
	}
}
