// Package ndr finds the highest rate at which a device loses no frame, or at most a given share: RFC 2544's throughput by
// bisection, with trials that are short while the answer is far and long when it is near, and several loss ratios sought
// in one search, as in Multiple Loss Ratio Search (draft-ietf-bmwg-mlrsearch).
//
// A trial counts only when the tester did what it was asked (see gen.Judge); else it is INVALID and says nothing about the
// device. A rate that is bounded by INVALID trials, or that the tester without a device does not reach with a tenth to
// spare, is tester-bound: the device may be faster.
package ndr

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Trial is one run at one rate.
type Trial struct {
	Rate     float64       `json:"pps"` // asked
	For      time.Duration `json:"for_ns"`
	Elapsed  time.Duration `json:"elapsed_ns"`
	Asked    uint64        `json:"asked"`
	Sent     uint64        `json:"sent"`
	Received uint64        `json:"received"`
	Invalid  string        `json:"invalid,omitempty"`
}

// Loss is the share of the frames sent that did not come back, 0 to 1; of nothing sent, 1.
func (t *Trial) Loss() float64 {
	if t.Sent == 0 {
		return 1
	}
	return 1 - float64(min(t.Received, t.Sent))/float64(t.Sent)
}

// Measure runs one trial at so many frames a second.
type Measure func(ctx context.Context, pps float64, d time.Duration) (Trial, error)

// Options say what is sought. The zero value of each field is documented with it.
type Options struct {
	Min, Max  float64         // frames a second; 0 means 1,000 and 20,000,000
	Goals     []float64       // loss ratios, from 0 up; nil means 0 and 0.005
	Precision float64         // Upper/Lower - 1 of the result; 0 means 0.02
	Trials    []time.Duration // lengths, from the first phase to the last; nil means 0.1, 0.3 and 1 s
	WarmUp    time.Duration   // a trial at Min before, which does not count; 0: none
	Most      int             // trials in all; 0 means 200
	Again     int             // how often an INVALID trial is repeated before the rate counts as the tester's bound; 0 means 2
	// Confirm is how often a trial that lost too much is repeated at the same rate: a rate fails when all of them did. A
	// stall of a busy machine is not the device's (MLRsearch's goal exceed ratio). 0 means 1, negative never.
	Confirm int
	Each    func(Trial) // sees every trial; nil: nobody
}

// Result is what was found for one loss ratio.
type Result struct {
	Goal  float64 `json:"loss_goal"`
	Lower float64 `json:"lower_pps"` // the highest rate that kept the goal; 0: not even Min did
	Upper float64 `json:"upper_pps"` // the lowest rate above that did not; 0: Max kept it
	// Verdict is "" when the figure is the device's; else "tester-bound: ...", "INVALID: ..." or what else there is to say.
	Verdict string `json:"verdict,omitempty"`
}

// Outcome is a whole search.
type Outcome struct {
	Results []Result `json:"results"`
	Trials  []Trial  `json:"trials"`
}

type search struct {
	o       Options
	measure Measure
	out     Outcome
	best    map[key]Trial
}

type key struct {
	rate float64
	d    time.Duration
}

// Search runs the trials. When ctx ends, what was found so far is returned with its error.
func Search(ctx context.Context, o Options, m Measure) (*Outcome, error) {
	if o.Min == 0 {
		o.Min = 1e3
	}
	if o.Max == 0 {
		o.Max = 20e6
	}
	if o.Goals == nil {
		o.Goals = []float64{0, 0.005}
	}
	if o.Precision == 0 {
		o.Precision = 0.02
	}
	if o.Trials == nil {
		o.Trials = []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second}
	}
	if o.Again == 0 {
		o.Again = 2
	}
	if o.Confirm == 0 {
		o.Confirm = 1
	}
	if o.Most == 0 {
		o.Most = 200
	}
	if !(o.Min > 0 && o.Max > o.Min) {
		return nil, fmt.Errorf("search: rates %v to %v", o.Min, o.Max)
	}
	if err := o.Check(); err != nil {
		return nil, fmt.Errorf("search: %w", err)
	}
	s := &search{o: o, measure: m, best: map[key]Trial{}}
	if o.WarmUp > 0 {
		if _, err := m(ctx, o.Min, o.WarmUp); err != nil {
			return nil, fmt.Errorf("warm-up: %w", err)
		}
	}
	from, kept := o.Min, 0.0
	for _, goal := range o.Goals {
		r, err := s.seek(ctx, goal, from, kept)
		s.out.Results = append(s.out.Results, r)
		if err != nil {
			return &s.out, err
		}
		from, kept = math.Max(r.Lower, o.Min), r.Lower // a looser goal is kept there, whatever a later trial says
	}
	return &s.out, nil
}

// Check refuses a precision, goals or trials that cannot be; zero values have defaults.
func (o *Options) Check() error {
	if !(o.Precision >= 0) {
		return fmt.Errorf("precision %v: must be above 0", o.Precision)
	}
	for i, g := range o.Goals {
		if !(g >= 0 && g < 1) || i > 0 && g <= o.Goals[i-1] {
			return fmt.Errorf("loss goals %v: legal are shares of 0 to below 1, rising", o.Goals)
		}
	}
	for _, d := range o.Trials {
		if d <= 0 {
			return fmt.Errorf("trials of %v: must be above 0", d)
		}
	}
	return nil
}

// trial runs one trial, again when it was INVALID, or takes what is known of the same rate and length.
func (s *search) trial(ctx context.Context, rate float64, d time.Duration) (Trial, error) {
	if t, ok := s.best[key{rate, d}]; ok {
		return t, nil
	}
	for again := range s.o.Again + 1 {
		if err := ctx.Err(); err != nil {
			return Trial{}, err
		}
		if len(s.out.Trials) >= s.o.Most {
			return Trial{}, fmt.Errorf("search: not done after %d trials", s.o.Most)
		}
		t, err := s.measure(ctx, rate, d)
		if err != nil {
			return t, err
		}
		if t.Sent > 0 && t.Received > t.Sent {
			return t, fmt.Errorf("search: %d frames came back of %d sent: something else sends as well", t.Received, t.Sent)
		}
		s.out.Trials = append(s.out.Trials, t)
		if s.o.Each != nil {
			s.o.Each(t)
		}
		if t.Invalid == "" || again == s.o.Again {
			s.best[key{rate, d}] = t
			return t, nil
		}
	}
	return Trial{}, errors.New("search: unreachable")
}

// seek finds one goal's bounds, phase by phase. At kept, when that is not 0, a stricter goal was kept in a trial of the last
// phase: so is this one there, and a trial of it that a busy machine disturbs cannot make its figure the lower one.
func (s *search) seek(ctx context.Context, goal, from, kept float64) (r Result, err error) {
	r.Goal = goal
	low, high := from, s.o.Max
	var invalid string // why the trial at high says nothing about the device
	keeps := func(rate float64, d time.Duration) (bool, error) {
		if rate <= kept {
			return true, nil
		}
		t, err := s.trial(ctx, rate, d)
		if err != nil {
			return false, err
		}
		if t.Invalid != "" {
			invalid = t.Invalid
			return false, nil
		}
		for range s.o.Confirm {
			if t.Loss() <= goal || t.Invalid != "" {
				break
			}
			delete(s.best, key{rate, d})
			again, err := s.trial(ctx, rate, d)
			if err != nil {
				return false, err
			}
			if again.Invalid == "" && again.Loss() < t.Loss() {
				t = again
			}
			s.best[key{rate, d}] = t
		}
		if t.Loss() > goal {
			invalid = ""
			return false, nil
		}
		return true, nil
	}
	done := func() Result {
		r.Lower, r.Upper = low, high
		if invalid != "" {
			r.Verdict = testerBound + invalid
		}
		return r
	}
	for phase, d := range s.o.Trials {
		// The width that a phase leaves to the next: twice the last one's for each phase to come.
		width := s.o.Precision * math.Pow(2, float64(len(s.o.Trials)-1-phase))
		step := 1 + 2*width
		for high < s.o.Max { // the bounds of shorter trials are tried again
			ok, err := keeps(high, d)
			if err != nil {
				return done(), err
			}
			if !ok {
				break
			}
			low, high = high, math.Min(high*step, s.o.Max)
			step *= step
		}
		if high == s.o.Max {
			ok, err := keeps(high, d)
			if err != nil {
				return done(), err
			}
			if ok {
				low = high
				if phase == len(s.o.Trials)-1 {
					return Result{Goal: goal, Lower: high, Verdict: "at least: the highest rate that was to be tried"}, nil
				}
				continue
			}
		}
		step = 1 + 2*width
		for {
			ok, err := keeps(low, d)
			if err != nil {
				return done(), err
			}
			if ok {
				break
			}
			if low <= s.o.Min {
				r.Lower, r.Upper = 0, low
				r.Verdict = "not kept at the lowest rate that was to be tried"
				if invalid != "" {
					r.Verdict = invalid // nothing is known of the device
				}
				return r, nil
			}
			high, low = low, math.Max(low/step, s.o.Min)
			step *= step
		}
		for high/low > 1+width {
			mid := math.Sqrt(low * high)
			ok, err := keeps(mid, d)
			if err != nil {
				return done(), err
			}
			if ok {
				low = mid
			} else {
				high = mid
			}
		}
	}
	// invalid is of the last trial that failed; the one at high is what counts.
	if t, ok := s.best[key{high, s.o.Trials[len(s.o.Trials)-1]}]; ok {
		invalid = t.Invalid
	}
	return done(), nil
}

// spare is how much faster than the device the tester alone must be.
const spare = 1.1

const testerBound = "tester-bound: "

// AgainstTester compares a device's result with the same search without a device: when the tester alone is not a tenth
// faster, the figure is the tester's. When it is, and yet the generator failed at the upper bound, the machine was busy with something
// else: the figure is neither's.
func (r *Result) AgainstTester(null []Result) {
	failed, isFailed := strings.CutPrefix(r.Verdict, testerBound+"INVALID: ")
	for _, n := range null {
		switch {
		case n.Goal != r.Goal:
		case r.Verdict == "" && n.Lower < spare*r.Lower:
			r.Verdict = fmt.Sprintf(testerBound+"without a device the tester reaches %.3f Mpps, less than %.1f times as much", n.Lower/1e6, spare)
		case isFailed && n.Lower >= spare*r.Upper:
			r.Verdict = fmt.Sprintf("INVALID: at %.3f Mpps, which the tester alone reaches, %s", r.Upper/1e6, failed)
		}
	}
}

// Invalid tells whether the machine was too busy for the search to say anything.
func (r *Result) Invalid() bool { return strings.HasPrefix(r.Verdict, "INVALID") }
