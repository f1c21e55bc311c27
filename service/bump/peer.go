package bump

import (
	"fmt"
	"math"

	wire "gradnic/wire/bump"
	"gradnic/wire/inet"
)

// never is a time that does not come.
const never = math.MaxInt64

// PeerState is what is known about the NIC at the other end of a path.
type PeerState uint8

// The states.
const (
	Unasked PeerState = iota // nothing of a rule has been sent lately
	Asking                   // hellos are out; frames go as they are
	Present                  // it answers
	Absent                   // it does not, or has said good-bye; it is asked now and then
)

var peerNames = [...]string{"unasked", "asking", "present", "absent"}

// String is the state's name.
func (s PeerState) String() string {
	if int(s) < len(peerNames) {
		return peerNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s PeerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// What EventKind an Event is.
type EventKind uint8

// The events.
const (
	PeerFound     EventKind = iota // a far end answers
	PeerMissing                    // it never answered: its flows go raw
	PeerLost                       // it answered before
	PeerLeft                       // it said good-bye
	PeerRestarted                  // it is in another life
)

var eventNames = [...]string{"peer-found", "peer-missing", "peer-lost", "peer-left", "peer-restarted"}

// String is the event's name.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// Event is something that happened to a path.
type Event struct {
	Kind          EventKind
	Local, Remote inet.MAC
	Boot          uint32 // of the far end; 0 when it is not known
}

// path is a pair of hosts, one behind the host port and one beyond the wire.
type path struct {
	local, remote inet.MAC
	used          int64 // when either direction was, 0: the entry is free

	// The far end.
	state    PeerState
	boot     uint32
	longest  int    // that it takes from the wire
	decodes  uint64 // codecs, by bit
	station  inet.Addr
	sent     int64 // when something of a rule was sent last
	answered int64
	asked    int // hellos since it answered last
	hello    int64
	restarts uint32

	// The frame under way to it.
	out      []byte
	n, items int
	since    int64 // when its first item came
	last     *flow
	lastHead [wire.UDPHead]byte
	alike    bool // another UDP item of the flow last may be like the one before
	sequence uint32

	// What comes from it.
	inBoot, inNext uint32
}

const (
	pathSets = 64
	pathWays = 4
	maxPaths = pathSets * pathWays

	// leastHellos is how many hellos go unanswered before a far end is dead, whatever the clock says: the lane itself
	// may have stood still.
	leastHellos = 4
	// absentShare is how much less often an absent far end is asked.
	absentShare = 10
	// silentShare is after how many DeadAfter without frames a far end is not asked any more.
	silentShare = 10
)

type pathTable struct {
	sets [pathSets][pathWays]path
	last *path
}

// pathOf returns the path between two hosts, making it where it is new: the one of its set that was used longest ago makes
// room.
func (e *Engine) pathOf(local, remote inet.MAC) *path {
	t := e.paths
	if p := t.last; p != nil && p.local == local && p.remote == remote {
		p.used = e.now
		return p
	}
	h := local.Uint64()*hashA ^ remote.Uint64()*hashB
	set := &t.sets[(h^h>>32)%pathSets]
	oldest := &set[0]
	for i := range set {
		p := &set[i]
		if p.used != 0 && p.local == local && p.remote == remote {
			p.used = e.now
			t.last = p
			return p
		}
		if p.used < oldest.used {
			oldest = p
		}
	}
	p := oldest
	if p.used == 0 {
		e.count.Paths++
	}
	e.flush(p)
	*p = path{local: local, remote: remote, used: e.now, out: p.out, hello: never}
	t.last = p
	return p
}

// is reports whether the entry is still that of the flow's hosts.
func (p *path) is(k *flowKey) bool { return p != nil && p.local == k.src && p.remote == k.dst }

// touch notes that something of a rule is to be sent, and starts to ask for the far end.
func (e *Engine) touch(p *path, station inet.Addr) {
	p.sent, p.station = e.now, station
	if p.hello == never {
		if p.state == Unasked {
			p.state, p.answered = Asking, e.now
		}
		p.hello, p.asked = e.now, 0
		e.timer = min(e.timer, p.hello)
	}
}

// runTimers asks those far ends whose time it is.
func (e *Engine) runTimers() {
	e.timer = never
	for s := range e.paths.sets {
		for w := range e.paths.sets[s] {
			p := &e.paths.sets[s][w]
			if p.used == 0 || p.hello == never {
				continue
			}
			if e.now >= p.hello {
				e.ask(p)
			}
			e.timer = min(e.timer, p.hello)
		}
	}
}

// ask judges a far end by its silence and sends it a hello.
func (e *Engine) ask(p *path) {
	every, dead := int64(e.o.HelloEvery), int64(e.o.DeadAfter)
	if e.now-p.sent > silentShare*dead {
		p.hello = never
		if p.state != Absent {
			p.state = Unasked
		}
		return
	}
	if p.asked >= leastHellos && e.now-p.answered >= dead {
		switch p.state {
		case Asking:
			e.count.Missing++
			e.leave(p, PeerMissing)
		case Present:
			e.count.Lost++
			e.leave(p, PeerLost)
		}
	}
	p.asked++
	p.hello = e.now + every
	if p.state == Absent {
		p.hello = e.now + min(absentShare*every, dead)
	}
	e.helloSeq++
	e.sendControl(wire.Hello, p.local, p.remote, e.helloSeq, 0, p.station)
}

// leave makes a far end absent.
func (e *Engine) leave(p *path, k EventKind) {
	e.flush(p)
	p.state = Absent
	e.event(k, p)
}

// heard notes that the far end of a path is there and what it takes.
func (e *Engine) heard(p *path, boot uint32, c *wire.Control) {
	if p.boot != 0 && p.boot != boot {
		p.restarts++
		e.count.Restarts++
		e.event(PeerRestarted, p)
	}
	known := p.boot == boot
	p.boot, p.longest, p.decodes = boot, c.Longest, c.Codecs
	p.answered, p.asked = e.now, 0
	if p.state == Present {
		return
	}
	if p.state == Absent || !known {
		e.event(PeerFound, p)
	}
	p.state = Present
	if p.out == nil {
		p.out = make([]byte, e.o.WireFrame)
	}
}

// control takes a control message.
func (e *Engine) control(body []byte, h *wire.Header) wire.Fault {
	var c wire.Control
	if f := wire.ParseControl(body, &c); f != wire.OK {
		return f
	}
	e.count.Control++
	switch h.Kind {
	case wire.Hello:
		if e.closed {
			break
		}
		// Switches flood what they do not know the place of: only the NIC before the station answers for it.
		if !e.stations.has(h.Dst) {
			e.probe(h.Src, h.Dst, c.Station)
			break
		}
		e.sendControl(wire.Answer, h.Dst, h.Src, h.Sequence, h.Boot, inet.Addr{})
		e.heard(e.pathOf(h.Dst, h.Src), h.Boot, &c)
	case wire.Answer:
		if c.To == e.o.Boot {
			e.heard(e.pathOf(h.Dst, h.Src), h.Boot, &c)
		}
	case wire.Bye:
		p := e.pathOf(h.Dst, h.Src)
		if p.state == Present && p.boot == h.Boot {
			e.count.Left++
			e.leave(p, PeerLeft)
		}
	}
	return wire.OK
}

// sendControl emits a control message on the wire.
func (e *Engine) sendControl(k wire.Kind, src, dst inet.MAC, sequence, to uint32, station inet.Addr) {
	b := e.o.Emit(Wire, wire.ControlFrameLen)
	if b == nil {
		return
	}
	wire.PutControl(b, &wire.Header{Dst: dst, Src: src, Kind: k, Boot: e.o.Boot, Sequence: sequence},
		&wire.Control{To: to, Longest: min(e.o.WireFrame, 0xffff), Codecs: e.decodes, Station: station})
}

// bye says good-bye wherever a far end may send items.
func (e *Engine) bye() {
	for s := range e.paths.sets {
		for w := range e.paths.sets[s] {
			if p := &e.paths.sets[s][w]; p.used != 0 && p.boot != 0 {
				e.sendControl(wire.Bye, p.local, p.remote, 0, 0, inet.Addr{})
			}
		}
	}
}

// probe asks the host's side for a station that has said nothing yet, so that hellos to it can be answered: an ARP probe
// (RFC 5227), which changes nothing in any cache. Its answer goes to the asking station, where it is as harmless.
func (e *Engine) probe(asking, asked inet.MAC, ip inet.Addr) {
	if !ip.IsUnicast() {
		return
	}
	const length = 60
	b := e.o.Emit(Host, length)
	if b == nil {
		return
	}
	clear(b)
	inet.PutARP(b, inet.ARP{Op: inet.ARPRequest, SenderMAC: asking, TargetIP: ip})
	copy(b, asked[:]) // to this station only
	e.count.Probes++
}

func (e *Engine) event(k EventKind, p *path) {
	if e.o.Event != nil {
		e.o.Event(Event{Kind: k, Local: p.local, Remote: p.remote, Boot: p.boot})
	}
}

// stationTable knows the stations behind the host's port, by the frames that came from them. A place holds one; the last
// one to come has it.
type stationTable [4096]inet.MAC

func (t *stationTable) place(m inet.MAC) *inet.MAC {
	return &t[m.Uint64()*hashA>>52]
}

func (t *stationTable) learn(m inet.MAC) {
	if p := t.place(m); *p != m && !m.IsMulticast() {
		*p = m
	}
}

// forget is for a station that was seen on the wire.
func (t *stationTable) forget(m inet.MAC) {
	if p := t.place(m); *p == m {
		*p = inet.MAC{}
	}
}

func (t *stationTable) has(m inet.MAC) bool { return *t.place(m) == m && !m.IsZero() }
