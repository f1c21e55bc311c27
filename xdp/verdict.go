package xdp

import "fmt"

// Verdict is what the steering program decided about a frame. The numbers are those
// of enum verdict in bpf/steer.c.
type Verdict uint8

const (
	TakenUDP      Verdict = iota // to our MAC and IP, UDP, a served port
	TakenARP                     // ARP request for our IP
	TakenEcho                    // ICMP echo request to our MAC and IP
	TakenAll                     // the whole port is ours
	Unbound                      // to be taken, but the queue has no socket: passed
	PassOther                    // not addressed to our MAC and IP
	PassPort                     // ours, UDP, but the port is not served
	PassProtocol                 // ours, neither UDP nor an echo request
	PassTagged                   // VLAN or QinQ tag
	PassOptions                  // ours, with IPv4 options
	PassFragment                 // ours, a first or later fragment
	PassShort                    // headers cut off or malformed
	PassIPv6                     // IPv6
	PassEtherType                // any other ethertype
	OverBudget                   // to be taken, but it came faster than the budget of its sender allows: dropped
	Sunk                         // to be taken, dropped by the program as SetAnswer asks
	Reflected                    // to be taken, sent back by the program as SetAnswer asks
	Summed                       // a contribution that the program has added to its slot, as SetSums asks: dropped
	Repeated                     // a contribution that its slot in the program has already: dropped

	// NumVerdicts is how many verdicts there are.
	NumVerdicts = iota
)

var verdictNames = [NumVerdicts]string{
	"taken-udp", "taken-arp", "taken-echo", "taken-all", "unbound", "pass-other", "pass-port",
	"pass-protocol", "pass-tagged", "pass-options", "pass-fragment", "pass-short", "pass-ipv6", "pass-ethertype",
	"over-budget", "sunk", "reflected", "summed", "repeated",
}

// String is the verdict's name in counters, as "pass-tagged".
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict-%d", uint8(v))
}

// Taken tells whether the frame went to a socket.
func (v Verdict) Taken() bool { return v <= TakenAll }

// Passed tells whether the frame went to the kernel.
func (v Verdict) Passed() bool { return v > TakenAll && v < OverBudget }

// Counters counts frames by verdict, summed over the CPUs, since Attach. Each frame
// that the program saw is in exactly one.
type Counters [NumVerdicts]uint64

// Taken is the number of frames handed to sockets; those that a socket then had no
// room for are in its Statistics.
func (c *Counters) Taken() uint64 {
	return c[TakenUDP] + c[TakenARP] + c[TakenEcho] + c[TakenAll]
}

// Passed is the number of frames left to the kernel.
func (c *Counters) Passed() uint64 {
	var n uint64
	for v := Unbound; v < NumVerdicts; v++ {
		if v.Passed() {
			n += c[v]
		}
	}
	return n
}
