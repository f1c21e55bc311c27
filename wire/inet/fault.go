package inet

// Fault says why a frame was refused. The zero value is OK.
type Fault uint8

// The reasons, each with the drop reason that String gives.
const (
	OK         Fault = iota // "ok"
	Short                   // "short": the frame ends before a header, or before the end its IPv4 length promises
	Tagged                  // "vlan-tagged": an 802.1Q or 802.1ad tag, one or several
	NotIPv4                 // "not-ipv4": another EtherType, ARP included; Packet.EtherType says which
	BadVersion              // "bad-ip-version": EtherType 0x0800 with a version nibble that is not 4
	Options                 // "ip-options": an IPv4 header longer than 20 bytes
	Fragment                // "ip-fragment": any part of a fragmented datagram, the first included
	BadLength               // "bad-length": length fields that contradict each other
	BadARP                  // "bad-arp": not ARP for IPv4 over Ethernet
	NotEcho                 // "not-echo": an ICMP message other than an echo request

	// NumFaults is the number of values, for counters indexed by Fault.
	NumFaults = int(iota)
)

var faultNames = [NumFaults]string{
	OK:         "ok",
	Short:      "short",
	Tagged:     "vlan-tagged",
	NotIPv4:    "not-ipv4",
	BadVersion: "bad-ip-version",
	Options:    "ip-options",
	Fragment:   "ip-fragment",
	BadLength:  "bad-length",
	BadARP:     "bad-arp",
	NotEcho:    "not-echo",
}

// String is the drop reason's name, in kebab case.
func (f Fault) String() string {
	if int(f) < NumFaults {
		return faultNames[f]
	}
	return "unknown-fault"
}
