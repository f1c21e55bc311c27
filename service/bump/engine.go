package bump

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"gradnic/codec"
	wire "gradnic/wire/bump"
	"gradnic/wire/inet"
)

// Side is where a frame goes.
type Side uint8

// The sides of a bump.
const (
	Host Side = iota // the host's port
	Wire             // the port towards the other NIC
)

// Verdict is what becomes of a frame that the engine was handed.
type Verdict uint8

// The verdicts.
const (
	Pass   Verdict = iota // it leaves by the other port as it is now
	Taken                 // the engine has what it wants of it
	Refuse                // it is dropped, under a wire.Fault
)

// Limits of Options.
const (
	MaxRules = 64
	// MinFrame and MaxFrame bound Options.HostFrame and WireFrame.
	MinFrame = 128
	MaxFrame = 65535 / 2
)

// Defaults of Options.
const (
	DefaultFrame      = 1514
	DefaultHelloEvery = 50 * time.Millisecond
	DefaultDeadAfter  = time.Second
)

// Options configure an engine. Zero values mean the documented defaults.
type Options struct {
	// Rules, MaxRules at most; the first that matches counts. Without any the bump only passes frames and answers hellos.
	Rules []Rule
	// HostFrame and WireFrame are the longest frames of the ports, Ethernet header included; 0 means DefaultFrame.
	HostFrame, WireFrame int
	// Hold is how long an item may wait for others that share its frame; 0: to the end of the batch it came in with.
	Hold time.Duration
	// HelloEvery is how often a far end that is sent to is asked whether it is there; 0 means DefaultHelloEvery. One that
	// has not answered for DeadAfter (0: DefaultDeadAfter), and has had four hellos, is taken for absent. Flows that
	// have been silent for ten times DeadAfter cost no hellos.
	HelloEvery, DeadAfter time.Duration
	// Seed is the key of stochastic codecs: with the same seed the k-th frame of a flow gets the same random numbers.
	// It crosses the wire with every frame, so that the ends need not agree on it.
	Seed uint32
	// Boot is the number of this life; 0 draws one.
	Boot uint32
	// Emit makes a frame of length bytes that leaves by a side, for the engine to fill before it calls Emit again; nil when
	// the port has no room.
	Emit func(side Side, length int) []byte
	// Event is told what is worth a line in a log; nil: nobody is.
	Event func(Event)
}

func (o *Options) setDefaults() error {
	for _, f := range []*int{&o.HostFrame, &o.WireFrame} {
		if *f == 0 {
			*f = DefaultFrame
		}
		if *f < MinFrame || *f > MaxFrame {
			return fmt.Errorf("frames of %d bytes: legal are %d to %d", *f, MinFrame, MaxFrame)
		}
	}
	if o.Hold < 0 || o.Hold > time.Second {
		return fmt.Errorf("hold %v: legal are 0 to 1s", o.Hold)
	}
	if o.HelloEvery == 0 {
		o.HelloEvery = DefaultHelloEvery
	}
	if o.DeadAfter == 0 {
		o.DeadAfter = DefaultDeadAfter
	}
	if o.HelloEvery < time.Millisecond || o.DeadAfter < 4*o.HelloEvery || o.DeadAfter > time.Minute {
		return fmt.Errorf("hellos every %v and a far end dead after %v: legal are 1ms and up, and 4 hellos to 1m", o.HelloEvery, o.DeadAfter)
	}
	if o.Emit == nil {
		return errors.New("there is nobody to emit to")
	}
	for o.Boot == 0 {
		o.Boot = rand.Uint32()
	}
	if len(o.Rules) > MaxRules {
		return fmt.Errorf("%d rules: legal are up to %d", len(o.Rules), MaxRules)
	}
	for i := range o.Rules {
		if err := o.Rules[i].check(); err != nil {
			return fmt.Errorf("rule %d: %w", i+1, err)
		}
	}
	return nil
}

// Engine is a bump without sockets and clock. One goroutine calls; times are nanoseconds of any monotonic clock, above 0.
type Engine struct {
	o     Options
	rules []rule
	now   int64
	timer int64 // when a path has something to do, at the earliest

	flows    *flowTable
	paths    *pathTable
	stations *stationTable
	pending  []*path // with items that wait to be sent
	helloSeq uint32
	closed   bool

	codecs   [256]codec.Codec // by wire id; nil: unknown
	decodes  uint64           // bit by wire id
	plain    [3]codec.Codec   // by float type: the elements as bytes, little endian
	state    *codec.State     // of every codec: the lossless one's scratch, the random stream
	values   []float32
	elements []byte // of the lossless codec, little endian
	encoded  []byte

	count Counters
}

// New makes an engine.
func New(o Options) (*Engine, error) {
	if err := o.setDefaults(); err != nil {
		return nil, fmt.Errorf("bump: %w", err)
	}
	all := codec.All() // by wire id
	most := max(o.HostFrame, o.WireFrame)
	e := &Engine{
		o: o, timer: never,
		flows: newFlowTable(), paths: new(pathTable), stations: new(stationTable), pending: make([]*path, 0, maxPaths),
		values: make([]float32, most/2), elements: make([]byte, most),
		state: codec.NewState(all[codec.IDLossless], 0, codec.StateOptions{}),
	}
	e.plain[wire.Float32], e.plain[wire.Float16], e.plain[wire.BFloat16] = all[codec.IDNone], all[codec.IDFP16], all[codec.IDBF16]
	room := codec.LosslessMax(most, 4)
	for _, c := range all {
		id := c.Info().ID
		if id == codec.IDNone {
			continue
		}
		e.codecs[id] = c
		e.decodes |= 1 << id
	}
	for _, r := range o.Rules {
		c := rule{Rule: r}
		if r.Codec != nil {
			c.id = r.Codec.Info().ID
		}
		e.rules = append(e.rules, c)
		if r.Codec != nil {
			room = max(room, r.Codec.MaxEncoded(most/2))
		} else if !r.Raw {
			for _, c := range all {
				room = max(room, c.MaxEncoded(most/2))
			}
		}
	}
	e.encoded = make([]byte, room)
	return e, nil
}

// FromHost takes a frame that came in by the host's port. It may change it.
func (e *Engine) FromHost(frame []byte, now int64) Verdict {
	e.now = now
	c := &e.count.Host
	c.Frames++
	c.Bytes += uint64(len(frame))
	if len(frame) < inet.EthernetLen {
		return Pass
	}
	e.stations.learn(inet.MAC(frame[6:12]))
	if e.encode(frame) {
		return Taken
	}
	if complete(frame) {
		e.count.Completed++
	}
	c.Passed++
	return Pass
}

// FromWire takes a frame that came in by the wire's port. The fault tells more only with Refuse.
func (e *Engine) FromWire(frame []byte, now int64) (Verdict, wire.Fault) {
	e.now = now
	c := &e.count.Wire
	c.Frames++
	c.Bytes += uint64(len(frame))
	if !wire.IsBump(frame) {
		if len(frame) >= inet.EthernetLen {
			e.stations.forget(inet.MAC(frame[6:12]))
		}
		c.Passed++
		return Pass, wire.OK
	}
	var h wire.Header
	body, f := wire.Open(frame, &h)
	if f == wire.OK && h.Kind == wire.Data {
		f = e.decode(body, &h)
	} else if f == wire.OK {
		f = e.control(body, &h)
	}
	if f != wire.OK {
		e.count.Faults[f]++
		return Refuse, f
	}
	return Taken, wire.OK
}

// Flush ends a batch: what waits for no longer than that is sent.
func (e *Engine) Flush(now int64) {
	e.now = now
	if len(e.pending) > 0 {
		e.flushDue()
	}
}

// Tick does what is due and returns when it is to be called again, at the latest; 0 means never.
func (e *Engine) Tick(now int64) (next int64) {
	e.now = now
	next = never
	if len(e.pending) > 0 {
		next = e.flushDue()
	}
	if now >= e.timer {
		e.runTimers()
	}
	if next = min(next, e.timer); next == never {
		return 0
	}
	return next
}

// Close says good-bye to all far ends, so that they send no more items, and sends what waits. From then on frames from the
// host pass, those from the wire are restored as before, and hellos are not answered.
func (e *Engine) Close(now int64) {
	e.now, e.closed = now, true
	for len(e.pending) > 0 {
		e.flush(e.pending[0])
	}
	e.bye()
}
