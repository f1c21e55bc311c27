package interop

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"gradnic/internal/strictyaml"
)

// Wire carries whole frames: a Link, or the wire end of a port in memory.
type Wire interface {
	Send(frame []byte) error
	// Recv waits for a frame until the deadline; the error is os.ErrDeadlineExceeded when none came.
	Recv(buf []byte, deadline time.Time) (int, error)
}

// phase is what is done to a worker for a while.
type phase struct {
	Name         string `yaml:"name"`
	Why          string `yaml:"why"`
	Packets      int    `yaml:"packets"`       // that were not sent before
	LoseRequests int    `yaml:"lose-requests"` // every so many; 0: none
	LoseResults  int    `yaml:"lose-results"`
	ResultsTwice int    `yaml:"results-twice"`
	SwapResults  int    `yaml:"swap-results"`
	LateResults  int    `yaml:"late-results"` // milliseconds
}

//go:embed phases/worker.yaml
var workerPhases []byte

// CardOptions say how workers are tested.
type CardOptions struct {
	// Native is true for the native protocol, false for SwitchML.
	Native bool
	// Idle is how long nothing new from the workers ends the test; 0 means 5 s. Time in which this process did not run is
	// not the workers' silence: of what lies between two looks for frames at most an eighth of Idle counts.
	Idle time.Duration
	// Name is the report's target.
	Name string
	// Sessions is how many sessions of workers have begun: what one has left on a slot is forgotten when the next begins.
	// SwitchML's packets do not tell them apart; nil: one.
	Sessions func() uint64
}

// swapWait is how long a result waits for the one that is to overtake it.
const swapWait = 5 * time.Millisecond

// cardRun is a test while it runs.
type cardRun struct {
	o            CardOptions
	workers, nic Wire

	mu     sync.Mutex
	judge  *judge
	during uint64 // session
	phases []phase
	at     int // phase
	start  int // judge's fresh packets when it began
	began  time.Time
	last   time.Time // something new came from a worker
	looked time.Time // when idle counted last
	silent time.Duration
	counts struct{ requests, results int }
	report Report
}

// PlayCard stands between workers and a NIC that answers them, and does to them what a bad network does, phase by phase,
// while it watches that they keep the protocol's rules. It returns when the phases are over, when nothing new has come for
// CardOptions.Idle after something did, or when ctx ends. Each phase is a result.
func PlayCard(ctx context.Context, workers, nic Wire, o CardOptions) (*Report, error) {
	if o.Idle <= 0 {
		o.Idle = 5 * time.Second
	}
	var file struct {
		Phases []phase `yaml:"phases"`
	}
	if err := strictyaml.Unmarshal("worker.yaml", workerPhases, &file); err != nil {
		return nil, err
	}
	c := &cardRun{o: o, workers: workers, nic: nic, judge: newJudge(o.Native), phases: file.Phases}
	c.report = Report{Suite: "worker", Target: o.Name, Started: time.Now()}
	c.began = c.report.Started
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 2)
	go func() { failed <- c.up(ctx, stop) }()
	go func() { failed <- c.down(ctx) }()
	err := errors.Join(<-failed, <-failed)
	c.finish()
	return &c.report, err
}

const cardPoll = 2 * time.Millisecond

// up takes what workers send, until the phases are over or the workers are done.
func (c *cardRun) up(ctx context.Context, stop func()) error {
	defer stop()
	buf := make([]byte, 1<<16)
	for ctx.Err() == nil {
		n, err := c.workers.Recv(buf, time.Now().Add(cardPoll))
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if c.idle() {
				return nil
			}
			continue
		case err != nil:
			return err
		}
		pass, over := c.request(buf[:n])
		if pass {
			if err := c.nic.Send(buf[:n]); err != nil {
				return err
			}
		}
		if over {
			return nil
		}
	}
	return nil
}

func (c *cardRun) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.still(time.Now())
}

// still counts how long nothing new has come, and tells whether that is too long.
func (c *cardRun) still(now time.Time) bool {
	if c.last.IsZero() {
		return false
	}
	if c.looked.Before(c.last) {
		c.looked, c.silent = c.last, 0
	}
	c.silent += min(now.Sub(c.looked), c.o.Idle/8)
	c.looked = now
	return c.silent > c.o.Idle
}

// session is the present one of CardOptions.Sessions.
func (c *cardRun) session() uint64 {
	if c.o.Sessions == nil {
		return 0
	}
	return c.o.Sessions()
}

// request judges a frame from a worker; pass is false when it is lost on purpose.
func (c *cardRun) request(frame []byte) (pass, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if n := c.session(); n != c.during {
		c.during = n
		clear(c.judge.uses)
	}
	before := c.judge.fresh
	p := &c.phases[c.at]
	if !c.judge.request(frame, now) {
		return true, false
	}
	c.counts.requests++
	pass = p.LoseRequests == 0 || c.counts.requests%p.LoseRequests != 0
	if c.judge.fresh > before {
		c.last = now
	}
	if c.judge.fresh-c.start < p.Packets {
		return pass, false
	}
	c.end(Passed, "")
	return true, c.at == len(c.phases)
}

// end writes the phase's result, which is a failure if a rule was broken in it, and goes on to the next.
func (c *cardRun) end(v Verdict, detail string) {
	p := &c.phases[c.at]
	for _, rule := range slices.Sorted(maps.Keys(c.judge.broken)) {
		v = Failed
		detail = strings.TrimPrefix(detail+"\n", "\n") + fmt.Sprintf("rule %s, %d times; first: %s", rule, c.judge.broken[rule], c.judge.first[rule])
	}
	c.report.Results = append(c.report.Results, Result{Case: p.Name, Why: p.Why, Verdict: v, Detail: strings.TrimSpace(detail), Took: time.Since(c.began)})
	c.at++
	c.start, c.began = c.judge.fresh, time.Now()
	clear(c.judge.broken)
	clear(c.judge.first)
}

// finish gives the phases a result that did not end.
func (c *cardRun) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.judge.waiting()
	for first := true; c.at < len(c.phases); first = false {
		switch {
		case c.last.IsZero():
			c.end(Unsupported, "nothing came from a worker")
		case first && waiting > 0:
			c.end(Failed, fmt.Sprintf("%d packets wait for their results, and nothing was sent again for %v", waiting, c.o.Idle))
		default:
			c.end(Unsupported, "the workers had sent all that they had")
		}
	}
}

// held is a result that is sent later, if its session still runs then: to the next one it would be a wrong sum.
type held struct {
	frame   []byte
	due     time.Time
	session uint64
}

// down brings the NIC's answers to the workers, or does not.
func (c *cardRun) down(ctx context.Context) error {
	buf := make([]byte, 1<<16)
	var late []held // in the order of due
	var swap *held
	send := func(frame []byte) error {
		c.mu.Lock()
		c.judge.result(frame, time.Now())
		c.mu.Unlock()
		return c.workers.Send(frame)
	}
	sendHeld := func(h *held) error {
		if h.session != c.session() {
			return nil
		}
		return send(h.frame)
	}
	for {
		now := time.Now()
		for len(late) > 0 && !late[0].due.After(now) {
			if err := sendHeld(&late[0]); err != nil {
				return err
			}
			late = late[1:]
		}
		if swap != nil && !swap.due.After(now) {
			if err := sendHeld(swap); err != nil {
				return err
			}
			swap = nil
		}
		if ctx.Err() != nil {
			return nil
		}
		n, err := c.nic.Recv(buf, now.Add(cardPoll))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return err
		}
		p, k := c.answer(buf[:n])
		every := func(n int) bool { return n > 0 && k > 0 && k%n == 0 }
		switch {
		case every(p.LoseResults):
			continue
		case p.LateResults > 0 && k > 0:
			late = append(late, held{slices.Clone(buf[:n]), now.Add(time.Duration(p.LateResults) * time.Millisecond), c.session()})
			continue
		case every(p.SwapResults) && swap == nil:
			swap = &held{slices.Clone(buf[:n]), now.Add(swapWait), c.session()}
			continue
		}
		times := 1
		if every(p.ResultsTwice) {
			times = 2
		}
		for range times {
			if err := send(buf[:n]); err != nil {
				return err
			}
		}
		if swap != nil {
			swap.due = now
		}
	}
}

// answer is the phase that a frame to a worker is in, and its number among those with values; 0: it has none.
func (c *cardRun) answer(frame []byte) (p phase, number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at < len(c.phases) {
		p = c.phases[c.at]
	}
	if _, ok, _ := c.judge.read(frame, false); ok {
		c.counts.results++
		number = c.counts.results
	}
	return p, number
}
