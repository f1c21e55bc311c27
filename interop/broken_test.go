package interop

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
)

// The second card passes too, in this process and behind a pipe.
func TestReferenceCard(t *testing.T) {
	s := load(t, "switchml")
	for _, elements := range []int{64, 256} {
		o := options(t, elements)
		for _, target := range []string{"", "exec:" + os.Args[0] + " card:right"} {
			t.Run(fmt.Sprintf("%d/%.4s", elements, target), func(t *testing.T) {
				var c Target = newRefCard("right")
				if target != "" {
					var err error
					if c, err = OpenTarget(context.Background(), target, &o, s); err != nil {
						t.Fatal(err)
					}
				}
				r, err := Run(context.Background(), s, c, "card", o)
				if err != nil {
					t.Fatal(err)
				}
				mustPass(t, r)
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A card that breaks a rule fails the cases of that rule; and only cases that have to do with it.
func TestBrokenCards(t *testing.T) {
	s := load(t, "switchml")
	for mutation, want := range map[string]string{
		"takes-vlan":         "vlan",
		"takes-all":          "not-for-the-card",
		"checks-checksum":    "checksums-left-to-the-card checksums-wrong recorded-64",
		"ignores-ip":         "stranger",
		"saturates":          "wraps",
		"unsigned-exponents": "exponents",
		"never-answers":      "sets-overlap all-twice result-lost-last result-lost-first",
		"echoes-first":       "sets-overlap result-lost-last echoes ports",
		"keeps-bit14":        "unused-bits",
		"fixed-port":         "result-lost-last ports",
		"answers-any-arp":    "arp-for-others",
	} {
		t.Run(mutation, func(t *testing.T) {
			r, err := Run(context.Background(), s, newRefCard(mutation), "card", options(t, 64))
			if err != nil {
				t.Fatal(err)
			}
			var failed []string
			for _, x := range r.Results {
				if x.Verdict == Failed {
					failed = append(failed, x.Case)
				}
			}
			if strings.Join(failed, " ") != want {
				t.Errorf("failed: %v\nwant    %v", failed, want)
			}
		})
	}
	// These break nearly everything.
	for mutation, some := range map[string]string{
		"no-bitmap": "duplicate-before", "keeps-other-set": "both-sets", "answers-early": "first-is-silent", "udp-checksum": "sum",
		"pads": "sum", "bad-checksum": "sum", "little-endian": "sum", "keeps-ttl": "sum",
	} {
		t.Run(mutation, func(t *testing.T) {
			r, err := Run(context.Background(), s, newRefCard(mutation), "card", options(t, 64))
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range r.Results {
				if x.Case == some && x.Verdict != Failed {
					t.Errorf("%s: %v", x.Case, x.Verdict)
				}
			}
			if r.Count(Failed) < 2 {
				t.Errorf("%d failed", r.Count(Failed))
			}
		})
	}
}
