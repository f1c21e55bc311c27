package ndr

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gradnic/bench/gen"
)

// device is a model of a tester and a device: the tester sends up to most, the device passes up to capacity.
type device struct{ capacity, most float64 }

func (m device) trial(_ context.Context, pps float64, d time.Duration) (Trial, error) {
	asked := uint64(pps*d.Seconds() + 0.5)
	sent := uint64(math.Min(pps, m.most) * d.Seconds())
	t := Trial{Rate: pps, For: d, Elapsed: d, Asked: asked, Sent: min(sent+1, asked)}
	t.Received = min(t.Sent, uint64(m.capacity*d.Seconds())+1)
	t.Invalid = gen.Judge(t.Asked, t.Sent, d, d)
	return t, nil
}

// For any device the search brackets its capacity, for the partial-drop rate its capacity and what may be lost on top.
func TestFindsTheCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Float64Range(2e4, 15e6).Draw(t, "capacity")
		out, err := Search(t.Context(), Options{}, device{capacity, 1e9}.trial)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range out.Results {
			want := capacity / (1 - r.Goal)
			if r.Lower > want*1.001 || r.Upper < want*0.999 || r.Upper/r.Lower > 1.0201 || r.Verdict != "" {
				t.Fatalf("capacity %v, goal %v: %+v", capacity, r.Goal, r)
			}
		}
		if n := len(out.Trials); n > 120 {
			t.Errorf("%d trials", n)
		}
	})
}

// Short trials come first, so that most of the search is short.
func TestTrialsGrowLonger(t *testing.T) {
	out, err := Search(t.Context(), Options{Goals: []float64{0}}, device{1e6, 1e9}.trial)
	if err != nil {
		t.Fatal(err)
	}
	var total, last time.Duration
	for _, x := range out.Trials {
		if x.For < last {
			t.Fatalf("a trial of %v after one of %v", x.For, last)
		}
		last = x.For
		total += x.For
	}
	if alike := time.Duration(len(out.Trials)) * last; total > alike*2/3 || last != time.Second {
		t.Errorf("%v of trials, %v if all were as long as the last", total, alike)
	}
}

func TestVerdicts(t *testing.T) {
	for _, tt := range []struct {
		name    string
		d       device
		o       Options
		verdict string
		lower   float64
	}{
		{"a slow tester", device{5e6, 1e6}, Options{Goals: []float64{0}}, "tester-bound: INVALID", 1e6},
		{"a fast device", device{1e9, 1e9}, Options{Goals: []float64{0}, Max: 1e6}, "at least", 1e6},
		{"a dead device", device{0, 1e9}, Options{Goals: []float64{0}}, "not kept", 0},
		{"a dead tester", device{1e9, 0}, Options{Goals: []float64{0}}, "INVALID", 0},
	} {
		out, err := Search(t.Context(), tt.o, tt.d.trial)
		if err != nil {
			t.Fatal(tt.name, err)
		}
		if r := out.Results[0]; !strings.HasPrefix(r.Verdict, tt.verdict) || math.Abs(r.Lower-tt.lower) > tt.lower*0.021 {
			t.Errorf("%s: %+v, want %q at %v", tt.name, r, tt.verdict, tt.lower)
		}
	}
}

func TestAgainstTester(t *testing.T) {
	const failed = "tester-bound: INVALID: the generator took 11ms for 10ms"
	for _, tt := range []struct {
		null          float64
		verdict, want string
	}{
		{1.05e6, "", "tester-bound: without a device"}, {1.2e6, "", ""},
		// Its upper bound is 1.02 Mpps: a tester that reaches 4 was disturbed, one that reaches 1.1 may have come to its end.
		{4e6, failed, "INVALID: at 1.020 Mpps, which the tester alone reaches, the generator took 11ms for 10ms"}, {1.1e6, failed, failed},
		{4e6, "not kept", "not kept"},
	} {
		r := Result{Goal: 0.005, Lower: 1e6, Upper: 1.02e6, Verdict: tt.verdict}
		r.AgainstTester([]Result{{Goal: 0, Lower: 1}, {Goal: 0.005, Lower: tt.null}})
		if !strings.HasPrefix(r.Verdict, tt.want) || tt.want == "" && r.Verdict != "" || r.Invalid() != strings.HasPrefix(tt.want, "INVALID") {
			t.Errorf("the tester alone reaches %v: %q, want %q", tt.null, r.Verdict, tt.want)
		}
	}
}

// A trial that fails now and then, as on a busy machine, moves the result but does not break it.
func TestNoise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := device{1e6, 1e9}
		out, err := Search(t.Context(), Options{}, func(ctx context.Context, pps float64, l time.Duration) (Trial, error) {
			x, err := d.trial(ctx, pps, l)
			if rapid.IntRange(0, 9).Draw(t, "dice") == 0 {
				x.Received = x.Received * 9 / 10
			}
			return x, err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range out.Results {
			if r.Lower > 1.01e6 || (r.Upper != 0 && r.Upper < r.Lower) {
				t.Fatalf("%+v", r)
			}
		}
	})
}

func TestInterruptedAndRefused(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	out, err := Search(ctx, Options{}, func(ctx context.Context, pps float64, d time.Duration) (Trial, error) {
		if n++; n == 5 {
			cancel()
		}
		return device{1e6, 1e9}.trial(ctx, pps, d)
	})
	if !errors.Is(err, context.Canceled) || len(out.Trials) != 5 || len(out.Results) != 1 {
		t.Errorf("%v after %+v", err, out)
	}
	for _, o := range []Options{{Min: 5, Max: 5}, {Goals: []float64{0.1, 0.1}}, {Goals: []float64{1}}, {Precision: -1}} {
		if _, err := Search(t.Context(), o, device{1e6, 1e9}.trial); err == nil {
			t.Errorf("%+v was not refused", o)
		}
	}
	_, err = Search(t.Context(), Options{}, func(_ context.Context, pps float64, d time.Duration) (Trial, error) {
		return Trial{Sent: 5, Received: 6}, nil
	})
	if err == nil || !strings.Contains(err.Error(), "something else sends") {
		t.Errorf("more frames back than sent: %v", err)
	}
}

// What keeps a stricter goal keeps a looser one, also where the machine is so busy by then that no trial counts, or each one
// loses: the rate for half a percent is never below that for nothing.
func TestLooserGoalIsNotLower(t *testing.T) {
	for name, spoil := range map[string]func(*Trial){
		"no trial counts": func(t *Trial) { t.Invalid = "INVALID: busy" },
		"each one loses":  func(t *Trial) { t.Received /= 2 },
	} {
		d := device{1e6, 1e9}
		out, err := Search(t.Context(), Options{Goals: []float64{0}}, d.trial)
		if err != nil {
			t.Fatal(err)
		}
		n, undisturbed := 0, len(out.Trials)
		out, err = Search(t.Context(), Options{}, func(ctx context.Context, pps float64, l time.Duration) (Trial, error) {
			r, err := d.trial(ctx, pps, l)
			if n++; n > undisturbed {
				spoil(&r)
			}
			return r, err
		})
		if err != nil {
			t.Fatal(err)
		}
		if a, b := out.Results[0], out.Results[1]; a.Lower < 0.97e6 || b.Lower < a.Lower || b.Upper < b.Lower {
			t.Errorf("%s: %+v, then %+v", name, a, b)
		}
	}
}
