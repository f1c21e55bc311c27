// Package flow makes the frames that the bench's generators send: contributions of SwitchML, of the native protocol and
// of ACCL from any number of workers, and plain UDP; of one size, of several, or of the mix that stands for the
// Internet (IMIX). On the way some may be lost, doubled, put behind the next one or damaged on purpose. The same seed
// gives the same frames, byte for byte but for their time stamps.
//
// A frame carries a [Stamp] behind its protocol's header, in place of its first values, so that the receiver, the data
// plane's sink or a reflector in between can be judged: what is missing, late, twice, damaged.
package flow

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"gradnic/wire/accl"
	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
)

// Kind is the protocol of the frames.
type Kind uint8

// Kinds of flows.
const (
	UDP      Kind = iota // a datagram to UDPPort
	SwitchML             // contributions of 64 or 256 elements, frames of 308 or 1076 bytes
	Native               // contributions of the native protocol
	ACCL                 // eager messages of ACCL's UDP engine, a datagram each
)

var kindNames = [...]string{"udp", "switchml", "native", "accl"}

// String is the kind's name.
func (k Kind) String() string { return kindNames[k] }

// ParseKind returns the kind of this name.
func ParseKind(s string) (Kind, error) {
	for i, n := range kindNames {
		if n == s {
			return Kind(i), nil
		}
	}
	return 0, fmt.Errorf("flow %q: legal are %v", s, kindNames)
}

// Ports of the frames. Plain UDP goes to the discard port, ACCL's ranks have the ports of its own defaults.
const (
	UDPPort      = 9
	SwitchMLPort = switchml.PortBase
	ACCLPort     = 5500
	sourcePort   = 4000
)

// StampAt is where in a frame of this kind the stamp is, in bytes.
func (k Kind) StampAt() int {
	switch k {
	case SwitchML:
		return switchml.ValuesOffset
	case Native:
		return native.ValuesOffset
	case ACCL:
		return accl.PayloadOffset + accl.HeaderLen
	}
	return inet.PayloadOffset
}

// Limits of frames and workers.
const (
	ShortestFrame = 60
	LongestFrame  = 9014
	MaxWorkers    = 64
)

// IMIX is the mix of frame sizes that the Internet is known by: 7 of 64 bytes, 4 of 594 and 1 of 1518, with FCS.
func IMIX() (sizes []int, shares []float64) { return []int{60, 590, 1514}, []float64{7, 4, 1} }

// Impairments are done to the flow on purpose, each a share of 0 to 1.
type Impairments struct {
	Loss      float64 // numbers that are left out
	Duplicate float64 // frames that are sent twice
	Reorder   float64 // frames that are sent behind the next one
	Malformed float64 // frames sent in addition whose headers contradict each other; they have no number
}

func (m Impairments) check() error {
	for _, f := range []struct {
		name string
		v    float64
	}{{"loss", m.Loss}, {"duplicates", m.Duplicate}, {"reordering", m.Reorder}, {"malformed", m.Malformed}} {
		if !(f.v >= 0 && f.v <= 0.9) {
			return fmt.Errorf("flow: share of %s %v: legal are 0 to 0.9", f.name, f.v)
		}
	}
	return nil
}

// Options say what the frames are. The zero value of a field is documented with it.
type Options struct {
	Kind   Kind
	To     inet.MAC  // destination
	ToIP   inet.Addr // destination
	From   inet.MAC  // source of plain UDP; zero: that of worker 0
	FromIP inet.Addr // source of plain UDP; zero: that of worker 0

	Sizes  []int     // of frames, in bytes without FCS; nil: one frame size, the smallest that the kind has
	Shares []float64 // of the sizes; nil: alike
	// Workers contribute in turn, 1 to MaxWorkers; 0 means 1. Worker w is 10.50.0.(w+1), 02:00:00:00:(w+1):00.
	Workers int
	Slots   int // of SwitchML and native flows, used in turn; 0 means 64

	Impairments
	Seed   uint64
	Stream uint8 // number of the generator's queue; it is in the stamps, and each one's dice are its own
}

// Counts are what a stream has made.
type Counts struct {
	Frames     uint64 `json:"frames"` // all that were made, with duplicates and malformed ones
	Bytes      uint64 `json:"bytes"`  // of them, without FCS
	Numbers    uint64 `json:"numbers"`
	Skipped    uint64 `json:"skipped"`    // numbers that were left out
	Duplicated uint64 `json:"duplicated"` // frames sent a second time
	Reordered  uint64 `json:"reordered"`  // frames sent behind the next one
	Malformed  uint64 `json:"malformed"`
}

// Add adds the counts of another stream.
func (c *Counts) Add(o Counts) {
	c.Frames += o.Frames
	c.Bytes += o.Bytes
	c.Numbers += o.Numbers
	c.Skipped += o.Skipped
	c.Duplicated += o.Duplicated
	c.Reordered += o.Reordered
	c.Malformed += o.Malformed
}

// Stream makes the frames of one queue, one after the other. One goroutine uses it.
type Stream struct {
	o         Options
	templates [][]byte // by worker and size
	sums      []uint32 // PayloadSum of each
	total     float64  // of the shares
	rng       *rand.Rand
	sizes     *rand.Rand // of its own, so that impairments do not change the sizes
	next      uint64     // number
	back      []uint64   // numbers to be sent before any new one
	counts    Counts
}

// New makes a stream.
func New(o Options) (*Stream, error) {
	if o.Workers == 0 {
		o.Workers = 1
	}
	if o.Slots == 0 {
		o.Slots = 64
	}
	if o.Sizes == nil {
		o.Sizes = []int{map[Kind]int{UDP: ShortestFrame, SwitchML: 308, Native: 298, ACCL: 234}[o.Kind]}
	}
	switch {
	case int(o.Kind) >= len(kindNames):
		return nil, fmt.Errorf("flow: kind %d", o.Kind)
	case o.To.IsZero() || o.ToIP.IsZero():
		return nil, errors.New("flow: no destination MAC or IP address")
	case o.Workers < 1 || o.Workers > MaxWorkers:
		return nil, fmt.Errorf("flow: %d workers: legal are 1 to %d", o.Workers, MaxWorkers)
	case o.Slots < 1 || o.Slots > 8192:
		return nil, fmt.Errorf("flow: %d slots: legal are 1 to 8192", o.Slots)
	case o.Shares != nil && len(o.Shares) != len(o.Sizes):
		return nil, fmt.Errorf("flow: %d shares of %d sizes", len(o.Shares), len(o.Sizes))
	}
	if err := o.Impairments.check(); err != nil {
		return nil, err
	}
	s := &Stream{
		o: o, rng: rand.New(rand.NewPCG(o.Seed, uint64(o.Stream))), sizes: rand.New(rand.NewPCG(o.Seed, 1<<32|uint64(o.Stream))),
		back: make([]uint64, 0, 4),
	}
	for i := range o.Sizes {
		share := 1.0
		if o.Shares != nil {
			share = o.Shares[i]
		}
		if !(share > 0) {
			return nil, fmt.Errorf("flow: share %v of frames of %d bytes", share, o.Sizes[i])
		}
		s.total += share
	}
	for w := range o.Workers {
		for _, size := range o.Sizes {
			f, err := s.template(w, size)
			if err != nil {
				return nil, err
			}
			s.templates = append(s.templates, f)
			s.sums = append(s.sums, PayloadSum(f[o.Kind.StampAt()+StampLen:]))
		}
	}
	return s, nil
}

// worker is the address of a worker; plain UDP may have another.
func (s *Stream) worker(w int) (inet.MAC, inet.Addr) {
	if s.o.Kind == UDP && w == 0 && !s.o.From.IsZero() {
		return s.o.From, s.o.FromIP
	}
	return inet.MAC{2, 0, 0, 0, byte(w + 1), 0}, inet.Addr{10, 50, 0, byte(w + 1)}
}

// template is a worker's frame of a size, complete but for what changes from frame to frame.
func (s *Stream) template(w, size int) ([]byte, error) {
	if size < ShortestFrame || size > LongestFrame {
		return nil, fmt.Errorf("flow: frame of %d bytes: legal are %d to %d", size, ShortestFrame, LongestFrame)
	}
	least := s.o.Kind.StampAt() + StampLen
	if size < least {
		return nil, fmt.Errorf("flow: a %v frame of %d bytes: the least is %d", s.o.Kind, size, least)
	}
	f := make([]byte, size)
	for i := least; i < size; i++ { // small numbers: a sum of many does not overflow
		f[i] = byte(i * 7 % 11)
	}
	mac, ip := s.worker(w)
	port := uint16(sourcePort + int(s.o.Stream))
	switch s.o.Kind {
	case UDP:
		n := inet.PutEthernet(f, s.o.To, mac, inet.EtherTypeIPv4)
		n += inet.PutIPv4(f[n:], inet.IPv4{Proto: inet.ProtoUDP, Src: ip, Dst: s.o.ToIP, PayloadLen: size - n - inet.IPv4Len})
		inet.PutUDP(f[n:], inet.UDP{Src: port, Dst: UDPPort, PayloadLen: size - n - inet.UDPLen})
	case SwitchML:
		got := switchml.PutRequest(f, switchml.Request{
			Worker: switchml.Endpoint{MAC: mac, IP: ip, Port: port}, Switch: switchml.Endpoint{MAC: s.o.To, IP: s.o.ToIP, Port: SwitchMLPort},
			Elements: (size - switchml.ValuesOffset) / 4,
		})
		if got != size {
			return nil, fmt.Errorf("flow: a switchml frame of %d bytes: legal are 308 and 1076", size)
		}
	case Native:
		payload := size - native.ValuesOffset
		if payload%4 != 0 {
			return nil, fmt.Errorf("flow: a native frame of %d bytes: the values behind byte %d must be whole float32", size, native.ValuesOffset)
		}
		native.PutFrame(f, &native.Endpoint{MAC: mac, IP: ip, Port: port}, &native.Endpoint{MAC: s.o.To, IP: s.o.ToIP, Port: native.Port},
			&native.Header{Kind: native.Contribution, Type: native.Float32, Job: 1, Rank: uint16(w), Epoch: 1, Elements: uint16(payload / 4)}, payload)
	case ACCL:
		payload := size - accl.PayloadOffset - accl.HeaderLen
		if payload%64 != 0 || payload+accl.HeaderLen > accl.MaxDatagram {
			return nil, fmt.Errorf("flow: an accl frame of %d bytes: a datagram is whole words of 64 bytes and %d at most, so 106 + a multiple of 64", size, accl.MaxDatagram)
		}
		accl.PutFrame(f, &accl.Endpoint{MAC: mac, IP: ip, Port: ACCLPort + uint16(w)}, &accl.Endpoint{MAC: s.o.To, IP: s.o.ToIP, Port: ACCLPort + MaxWorkers}, accl.HeaderLen+payload)
		h := accl.Header{Count: uint32(payload), Tag: accl.TagAny, Src: uint32(w), Session: uint16(w)}
		h.Put(f[accl.PayloadOffset:])
	}
	return f, nil
}
