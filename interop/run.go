package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Verdict is how a case ended.
type Verdict uint8

// The verdicts.
const (
	Passed Verdict = iota
	Failed
	Unsupported
)

var verdictNames = [...]string{"passed", "failed", "unsupported"}

// String is the verdict in a word.
func (v Verdict) String() string { return verdictNames[v] }

// MarshalText implements encoding.TextMarshaler.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Result is what became of a case.
type Result struct {
	Case    string        `json:"case"`
	Why     string        `json:"why"`
	Verdict Verdict       `json:"verdict"`
	Detail  string        `json:"detail,omitempty"` // what is wrong, or missing
	Took    time.Duration `json:"took_ns"`
	Capture string        `json:"capture,omitempty"` // file
	Frames  []Shot        `json:"-"`                 // all of the case, in order
}

// Shot is a frame that went over the wire in a case.
type Shot struct {
	Time time.Time
	Sent bool // by the kit
	Note string
	Data []byte
}

// Report is a run of a suite.
type Report struct {
	Suite    string    `json:"suite"`
	Target   string    `json:"target"`
	Elements int       `json:"elements"` // of a packet; 0 where cases, or workers under test, have their own
	Results  []Result  `json:"results"`
	Started  time.Time `json:"started"`
}

// Count is the number of results with a verdict.
func (r *Report) Count(v Verdict) (n int) {
	for i := range r.Results {
		if r.Results[i].Verdict == v {
			n++
		}
	}
	return n
}

// Untested is an error when a suite, with all sizes that it ran with, has neither a case that passed nor one that failed. It says
// why with the first case's reason.
func Untested(reports ...*Report) error {
	tested := map[string]bool{}
	for _, r := range reports {
		tested[r.Suite] = tested[r.Suite] || r.Count(Passed)+r.Count(Failed) > 0
	}
	for _, r := range reports {
		switch {
		case tested[r.Suite]:
		case len(r.Results) == 0:
			return fmt.Errorf("interop: suite %s: nothing was tested: no case is for this size", r.Suite)
		default:
			return fmt.Errorf("interop: suite %s: nothing was tested: all cases are unsupported, the first because: %s", r.Suite, strings.TrimPrefix(firstLine(r.Results[0].Detail), errUnsupported.Error()+": "))
		}
	}
	return nil
}

// ErrUnknown is for a suite or a case of which there is none by that name.
var ErrUnknown = errors.New("unknown name")

// unknown is an ErrUnknown that says what there is instead.
type unknown struct{ error }

func (unknown) Is(err error) bool { return err == ErrUnknown }

// has refuses names of cases that the suite does not have.
func (s *Suite) has(cases []string) error {
	for _, name := range cases {
		if !slices.ContainsFunc(s.Cases, func(c Case) bool { return c.Name == name }) {
			return unknown{fmt.Errorf("suite %s has no case %q", s.Name, name)}
		}
	}
	return nil
}

// errFailed wraps what a card did wrong; other errors are the target's, and end the run.
var errFailed = errors.New("failed")

// errUnsupported wraps what the target cannot do.
var errUnsupported = errors.New("unsupported")

// Run runs a suite against a target, whose name is for the report. The error is about the target or the suite: cases
// that fail are in the report.
func Run(ctx context.Context, s *Suite, t Target, name string, o Options) (*Report, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	r := &Report{Suite: s.Name, Target: name, Elements: o.Elements, Started: time.Now()}
	if s.OneSize {
		r.Elements = 0
	}
	first, seen := 0, past{}
	if err := s.has(o.Only); err != nil {
		return nil, err
	}
	for i := range s.Cases {
		c := &s.Cases[i]
		if len(o.Only) > 0 && !slices.Contains(o.Only, c.Name) || c.Elements != 0 && c.Elements != o.Elements {
			continue
		}
		if err := ctx.Err(); err != nil {
			return r, err
		}
		if first+c.Slots > o.Slots || c.recorded() {
			first = 0
		}
		run := &caseRun{
			sc: scope{o: &o, s: s, first: first, vars: map[string]uint64{}, past: seen}, t: t, c: c, limits: t.Limits(),
		}
		if len(s.Wash) > 0 {
			first += c.Slots
		}
		res, err := run.run(ctx)
		r.Results = append(r.Results, res)
		if err != nil {
			return r, fmt.Errorf("case %s: %w", c.Name, err)
		}
	}
	for i := range r.Results {
		res := &r.Results[i]
		if o.Keep != "" && (res.Verdict == Failed || o.KeepAll) {
			if err := keep(o.Keep, r, res); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// caseRun is one case while it runs.
type caseRun struct {
	sc     scope
	t      Target
	c      *Case
	limits Limits
	shots  []Shot
	dirty  bool // something was sent since the card was last waited for
	ended  bool // so has the card's call
	ring   *ringPeer
	held   [][]byte // frames for the next Expect

	may          []mayCome // once each, until the case ends
	before, last time.Time // when the last two frames were about to be sent
}

func (x *caseRun) run(ctx context.Context) (Result, error) {
	res := Result{Case: x.c.Name, Why: x.c.Why}
	started := time.Now()
	err := x.steps(ctx)
	res.Took, res.Frames = time.Since(started), x.shots
	switch {
	case err == nil:
	case errors.Is(err, errFailed) && x.c.Open:
		res.Verdict, res.Detail = Unsupported, "the protocol leaves it open, and the card does it otherwise: "+err.Error()
	case errors.Is(err, errFailed):
		res.Verdict, res.Detail = Failed, err.Error()
	case errors.Is(err, errUnsupported):
		res.Verdict, res.Detail = Unsupported, err.Error()
	default:
		res.Verdict, res.Detail = Failed, err.Error()
		return res, err
	}
	if err != nil { // what is still on its way is not the next case's
		if _, err := x.collect(0); err != nil {
			return res, err
		}
	}
	return res, nil
}

func (x *caseRun) steps(ctx context.Context) error {
	if x.c.Slots > x.sc.o.Slots {
		return fmt.Errorf("%w: it takes %d slots, the card has %d", errUnsupported, x.c.Slots, x.sc.o.Slots)
	}
	if x.c.Header && !x.sc.s.own() {
		return fmt.Errorf("%w: it is about the header of layout %s", errUnsupported, x.sc.s.named.Name)
	}
	x.sc.vars["slots"], x.sc.vars["elements"], x.sc.vars["workers"] = uint64(x.sc.o.Slots), uint64(x.sc.o.Elements), uint64(x.sc.o.workers())
	if x.c.Fresh == nil || *x.c.Fresh {
		if err := x.prepare(ctx); err != nil {
			return fmt.Errorf("before the case: %w", err)
		}
	}
	if x.c.Call != nil {
		if err := x.begin(); err != nil {
			return err
		}
	}
	err := x.play(ctx)
	if x.c.Call == nil || x.ended {
		return err
	}
	if a, ok := x.t.(aborter); ok && err != nil {
		a.Abort()
	}
	ended := x.end()
	if errors.Is(ended, errUnsupported) { // and so nothing came that was expected
		return ended
	}
	return errors.Join(err, ended)
}

// play goes through the steps.
func (x *caseRun) play(ctx context.Context) error {
	if err := x.all(ctx, x.c.Steps); err != nil {
		return err
	}
	if !x.dirty && x.ring == nil {
		return nil
	}
	return x.expect(&Step{}, nil)
}

// all goes through steps.
func (x *caseRun) all(ctx context.Context, steps []Step) error {
	for i := range steps {
		if err := x.step(ctx, &steps[i]); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

// prepare brings the card to a known state.
func (x *caseRun) prepare(ctx context.Context) error {
	for i := range x.sc.s.Before {
		if err := x.step(ctx, &x.sc.s.Before[i]); err != nil {
			return err
		}
	}
	first := x.sc.first
	defer func() { x.sc.first = first }()
	take := 0
	for k := range x.c.Slots {
		x.sc.first = first + k
		for i := range x.sc.s.Wash {
			s := &x.sc.s.Wash[i]
			if take += s.Take; s.Take > 0 { // of all slots at once
				continue
			}
			if err := x.step(ctx, s); err != nil {
				return err
			}
		}
	}
	if take == 0 {
		return nil
	}
	_, err := x.collect(take)
	return err
}

func (x *caseRun) step(ctx context.Context, s *Step) error {
	switch {
	case s.Send != nil:
		for range max(1, s.Times) {
			if err := x.send(s.Send); err != nil {
				return err
			}
		}
		return x.allow(s.May...)
	case s.Expect != nil:
		return x.expect(s, *s.Expect)
	case s.Do != "":
		if err := x.all(ctx, x.sc.s.Parts[s.Do]); err != nil {
			return fmt.Errorf("%s: %w", s.Do, err)
		}
	case s.End:
		x.ended = true
		return x.end()
	case s.Take > 0:
		_, err := x.collect(s.Take)
		return err
	case s.Pause > 0:
		if !x.limits.Clock {
			return fmt.Errorf("%w: it takes %d ms, and the target has no clock", errUnsupported, s.Pause)
		}
		if _, err := x.collect(0); err != nil {
			return err
		}
		select {
		case <-time.After(time.Duration(s.Pause) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	case s.Let != nil:
		for _, name := range slices.Sorted(maps.Keys(s.Let)) {
			v := s.Let[name]
			if v == "random" {
				x.sc.vars[name] = uint64(rand.Uint32() | 1)
				continue
			}
			if v == "epoch" {
				x.sc.vars[name] = x.sc.epoch()
				continue
			}
			n, unknown, err := x.sc.value(v, nil)
			if err != nil || unknown != "" {
				return fmt.Errorf("let %s: %v has no value", name, v)
			}
			x.sc.vars[name] = n
		}
	case s.Array != nil:
		return x.array(s.Array)
	case s.Capture != "":
		return x.replay(s.Capture)
	}
	return nil
}

func (x *caseRun) send(f *Frame) error {
	frames, err := x.builds([]Frame{*f}, false)
	if err != nil {
		return err
	}
	for _, b := range frames {
		if err := x.put(b.frame, b.what); err != nil {
			return err
		}
	}
	return nil
}

// builds makes frames of descriptions.
func (x *caseRun) builds(frames []Frame, expected bool) (out []*built, err error) {
	for i := range frames {
		whole := frames[i : i+1]
		if frames[i].Slice != nil {
			if whole, err = x.slice(&frames[i]); err != nil {
				return nil, err
			}
		}
		for _, f := range whole {
			b, err := x.sc.build(f, expected)
			if err != nil {
				return nil, err
			}
			out = append(out, b)
		}
	}
	return out, nil
}

func (x *caseRun) put(frame []byte, note string) error {
	if n := x.limits.Longest; n > 0 && len(frame) > n {
		return fmt.Errorf("%w: a frame of %d bytes, and the target takes %d", errUnsupported, len(frame), n)
	}
	x.shots = append(x.shots, Shot{time.Now(), true, note, bytes.Clone(frame)})
	x.dirty = true
	x.before, x.last = x.last, x.now()
	return x.t.Send(frame)
}

func (x *caseRun) collect(want int) ([][]byte, error) {
	got, err := x.t.Collect(want)
	came := x.stamps(len(got))
	for i, f := range got {
		x.shots = append(x.shots, Shot{time.Now(), false, "", f})
		x.sc.past.saw(f, x.c.Name, came[i])
	}
	x.dirty = false
	return got, err
}

// expect waits for the card and compares.
func (x *caseRun) expect(s *Step, frames []Frame) error {
	want, err := x.builds(frames, true)
	if err != nil {
		return err
	}
	if x.sc.s.Ignore != nil {
		return x.await(s, want)
	}
	return x.answered(want)
}

// compare pairs what was expected with what came.
func (x *caseRun) compare(want []*built, got [][]byte) error {
	var missing []*built
	for _, w := range want {
		i := slices.IndexFunc(got, w.matches)
		if i < 0 {
			missing = append(missing, w)
			continue
		}
		x.sc.capture(w, got[i])
		got = slices.Delete(slices.Clone(got), i, i+1)
	}
	if len(missing) == 0 && len(got) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", errFailed, x.sc.explain(missing, got))
}

// capture remembers the values that an expected frame left open.
func (sc *scope) capture(w *built, got []byte) {
	for _, u := range w.free {
		sc.vars[u.name] = u.field.Get(got, u.base)
	}
}

// matches reports whether a frame is the one that was described.
func (b *built) matches(got []byte) bool {
	if len(got) != len(b.frame) {
		return false
	}
	for i, m := range b.mask {
		if (got[i]^b.frame[i])&m != 0 {
			return false
		}
	}
	seen := map[string]uint64{} // a value that is open in two places is the same in both
	for _, u := range b.free {
		v := u.field.Get(got, u.base)
		if first, ok := seen[u.name]; ok && first != v {
			return false
		}
		seen[u.name] = v
	}
	return true
}
