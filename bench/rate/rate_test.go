package rate

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The figures that every network engineer knows: RFC 2544's frame sizes count the FCS.
func TestLineRates(t *testing.T) {
	for _, tt := range []struct {
		link    float64
		withFCS int
		want    float64
	}{
		{10e9, 64, 14_880_952}, {10e9, 1518, 812_744}, {1e9, 64, 1_488_095}, {25e9, 64, 37_202_381},
		{100e9, 64, 148_809_524}, {10e9, 1024, 1_197_318}, {10e9, 9018, 138_305},
	} {
		if got := Line(tt.link, tt.withFCS-FCS); math.Abs(got-tt.want) > 1 {
			t.Errorf("%d bytes at %g bit/s: %.0f frames/s, want %.0f", tt.withFCS, tt.link, got, tt.want)
		}
	}
	// A frame that is too short for the wire is padded.
	if Line(10e9, 14) != Line(10e9, 60) {
		t.Error("a frame of 14 bytes is not padded to 60")
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		in    string
		want  Rate
		text  string
		size  int
		link  float64
		pps   float64
		fails string
	}{
		{in: "", text: "max"},
		{in: "max", text: "max"},
		{in: "1.5Mpps", want: Rate{1.5e6, PPS}, text: "1.5Mpps", pps: 1.5e6},
		{in: "250pps", want: Rate{250, PPS}, text: "250pps", pps: 250},
		{in: "10Gbit/s-L1", want: Rate{10e9, L1}, text: "10Gbit/s-L1", size: 60, pps: 14_880_952.4},
		{in: "10Gbit/s-L2", want: Rate{10e9, L2}, text: "10Gbit/s-L2", size: 60, pps: 19_531_250},
		{in: "100%", want: Rate{100, Percent}, text: "100%", size: 60, link: 10e9, pps: 14_880_952.4},
		{in: "50%", want: Rate{50, Percent}, text: "50%", size: 60, fails: "say it"},
		{in: "10Gbit/s", fails: "which layer"},
		{in: "fast", fails: "want max"},
		{in: "-1pps", fails: "above 0"},
		{in: "0pps", fails: "above 0"},
		{in: "NaNpps", fails: "above 0"},
		{in: "10kGpps", fails: "above 0"},
		{in: "2.5kpps", want: Rate{2500, PPS}, text: "2.5kpps", pps: 2500},
		{in: "101%", fails: "above 0"},
		{in: "Gbit/s-L1", fails: "above 0"},
	} {
		r, err := Parse(tt.in)
		var pps float64
		if err == nil {
			pps, err = r.PPS([]int{max(tt.size, 60)}, nil, tt.link)
		}
		if tt.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%q: error %v, want one with %q", tt.in, err, tt.fails)
			}
			continue
		}
		if err != nil || r != tt.want || r.String() != tt.text || math.Abs(pps-tt.pps) > 0.1 {
			t.Errorf("%q: %+v (%v), %v frames/s, %v", tt.in, r, r, pps, err)
		}
	}
}

// A mix of sizes at a bit rate takes just that many bits.
func TestMixTakesTheAskedBits(t *testing.T) {
	sizes, shares := []int{60, 590, 1514}, []float64{7, 4, 1}
	pps, err := Rate{10e9, L1}.PPS(sizes, shares, 0)
	if err != nil {
		t.Fatal(err)
	}
	bits := 0.0
	for i, s := range sizes {
		bits += pps * shares[i] / 12 * float64(8*L1Bytes(s))
	}
	if math.Abs(bits-10e9) > 1 {
		t.Errorf("%.0f bit/s, want 10e9", bits)
	}
}

func TestSplitLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, queues := rapid.Uint64Max(1<<40).Draw(t, "n"), rapid.IntRange(1, 64).Draw(t, "queues")
		parts := Split(n, queues)
		var total uint64
		for _, p := range parts {
			total += p
			if p+1 < parts[0] || p > parts[0] {
				t.Fatalf("parts %v", parts)
			}
		}
		if total != n || len(parts) != queues {
			t.Fatalf("%d parts add up to %d, want %d and %d", len(parts), total, queues, n)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"max", "1.5Mpps", "10Gbit/s-L1", "9Gbit/s-L2", "50%", "1e3pps", "Infpps"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(r.String())
		if err != nil || again.Unit != r.Unit || math.Abs(again.Value-r.Value) > 1e-4*r.Value {
			t.Errorf("%q is %+v, read again %+v: %v", s, r, again, err)
		}
	})
}
