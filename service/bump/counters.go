package bump

import (
	"encoding/json"
	"fmt"

	wire "gradnic/wire/bump"
	"gradnic/wire/inet"
)

// RawReason says why a frame of a rule went as it was.
type RawReason uint8

// The reasons.
const (
	RawNoPeer     RawReason = iota // no NIC answers at the far end
	RawLonger                      // it does not shrink
	RawTooLong                     // as an item it does not fit into a frame on the wire
	RawChosen                      // the payload's own byte says so
	RawCodec                       // the far end does not know the codec
	RawUnsuitable                  // no elements, an unknown codec in the payload's byte, or the codec refuses them
	RawChecksum                    // its checksum is wrong
	RawEmpty                       // it has no payload
	numRaw

	rawNot RawReason = 0xff // it was compressed
)

var rawNames = [numRaw]string{"no-peer", "longer", "too-long", "chosen", "peer-lacks-codec", "unsuitable", "bad-checksum", "empty"}

// String is the reason's name.
func (r RawReason) String() string {
	if r < numRaw {
		return rawNames[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// RawCounts counts frames by RawReason. As JSON it is an object by name.
type RawCounts [numRaw]uint64

// Sum is the frames of all reasons.
func (c *RawCounts) Sum() (n uint64) {
	for _, v := range c {
		n += v
	}
	return n
}

// MarshalJSON implements json.Marshaler.
func (c RawCounts) MarshalJSON() ([]byte, error) {
	m := map[string]uint64{}
	for i, v := range c {
		m[RawReason(i).String()] = v
	}
	return json.Marshal(m)
}

// FaultCounts counts by wire.Fault. As JSON it is an object by name.
type FaultCounts [wire.NumFaults]uint64

// MarshalJSON implements json.Marshaler.
func (c FaultCounts) MarshalJSON() ([]byte, error) {
	m := map[string]uint64{}
	for i, v := range c[1:] {
		m[wire.Fault(i+1).String()] = v
	}
	return json.Marshal(m)
}

// PortCounts are what came in by a port: bytes with Ethernet headers.
type PortCounts struct {
	Frames uint64 `json:"frames"`
	Bytes  uint64 `json:"bytes"`
	Passed uint64 `json:"passed"` // frames that left by the other port as they came
}

// Volume is frames and their bytes, Ethernet headers included.
type Volume struct {
	Frames uint64 `json:"frames"`
	Bytes  uint64 `json:"bytes"`
}

// HostVolume is a Volume of host frames, with their transport payloads.
type HostVolume struct {
	Frames  uint64 `json:"frames"`
	Bytes   uint64 `json:"bytes"`
	Payload uint64 `json:"payload"`
}

// Counters are an engine's, since it was made.
type Counters struct {
	Host       PortCounts `json:"host"`
	Wire       PortCounts `json:"wire"`
	Compressed HostVolume `json:"compressed"` // host frames that became items
	Sent       Volume     `json:"sent"`       // data frames that carried them
	Raw        RawCounts  `json:"raw"`        // frames of rules that did not; they are among Host.Passed
	Completed  uint64     `json:"completed"`  // transport checksums that the host had left to its card
	Unsent     uint64     `json:"unsent"`     // data frames that the wire's port had no room for

	Received Volume      `json:"received"` // data frames from far ends
	Restored HostVolume  `json:"restored"` // host frames out of them
	Faults   FaultCounts `json:"faults"`   // frames, or items of frames, that were refused
	Gaps     uint64      `json:"gaps"`     // data frames that did not come, or not yet
	Late     uint64      `json:"late"`     // data frames that came after later ones, or twice

	Control  uint64 `json:"control"`  // control messages received
	Probes   uint64 `json:"probes"`   // ARP probes for stations that are asked for
	Missing  uint64 `json:"missing"`  // far ends that never answered
	Lost     uint64 `json:"lost"`     // that ceased to answer
	Left     uint64 `json:"left"`     // that said good-bye
	Restarts uint64 `json:"restarts"` // that came in another life
	Flows    uint64 `json:"flows"`    // in the table, MaxFlows at most
	Paths    uint64 `json:"paths"`
}

// Ratio is the bytes of host frames over the bytes that carried them on the wire, Ethernet headers in both; 0 before any.
func (c *Counters) Ratio() float64 {
	if c.Sent.Bytes == 0 {
		return 0
	}
	return float64(c.Compressed.Bytes) / float64(c.Sent.Bytes)
}

// Peer is what is known about a far end.
type Peer struct {
	Local    inet.MAC  `json:"local"`
	Remote   inet.MAC  `json:"remote"`
	State    PeerState `json:"state"`
	Boot     uint32    `json:"boot"`
	Restarts uint32    `json:"restarts"`
	Sent     uint32    `json:"sent"` // data frames to it, modulo 2^32
}

// Status is an engine at one moment.
type Status struct {
	Boot     uint32   `json:"boot"`
	Counters Counters `json:"counters"`
	Ratio    float64  `json:"ratio"`
	Peers    []Peer   `json:"peers"`
}

// Status copies the counters and lists the far ends. The engine's goroutine calls it.
func (e *Engine) Status() Status {
	s := Status{Boot: e.o.Boot, Counters: e.count, Ratio: e.count.Ratio(), Peers: []Peer{}}
	for i := range e.paths.sets {
		for w := range e.paths.sets[i] {
			if p := &e.paths.sets[i][w]; p.used != 0 {
				s.Peers = append(s.Peers, Peer{p.local, p.remote, p.state, p.boot, p.restarts, p.sequence})
			}
		}
	}
	return s
}
