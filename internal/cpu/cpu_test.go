package cpu

import "testing"

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		word string
		have Tier
		want Tier
	}{
		{"", AVX512, AVX512},
		{"", AVX2, AVX2},
		{"", Off, Off},
		{"avx512", AVX512, AVX512},
		{"avx512", AVX2, AVX2},
		{"avx2", AVX512, AVX2},
		{"avx2", Off, Off},
		{"off", AVX512, Off},
		{"avx-2", AVX512, Off},
	} {
		if got := choose(c.word, c.have); got != c.want {
			t.Errorf("%q on a machine with %v: got %v, want %v", c.word, c.have, got, c.want)
		}
	}
}

func TestLevelWithinMachine(t *testing.T) {
	if Level() > Machine() {
		t.Fatalf("level %v, machine %v", Level(), Machine())
	}
	for _, tier := range []Tier{Off, AVX2, AVX512} {
		if got := choose(tier.String(), AVX512); got != tier {
			t.Errorf("the word %q gives %v", tier, got)
		}
	}
}
