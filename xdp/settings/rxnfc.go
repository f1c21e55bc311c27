package settings

import (
	"encoding/binary"
	"fmt"
)

// The layout of struct ethtool_rxnfc of <linux/ethtool.h>, which is the same for all 64-bit machines: offsets in bytes.
const (
	rxnfcSize = 192

	offCmd      = 0
	offFlowType = 4
	offData     = 8
	offSpec     = 16  // struct ethtool_rx_flow_spec
	offRuleCnt  = 184 // of GRXCLSRLALL
	offRuleLocs = 188

	specSize       = 168
	offSpecFlow    = 0
	offSpecMatch   = 4 // union ethtool_flow_union
	offSpecMatchX  = 56
	offSpecMask    = 76
	offSpecMaskX   = 128
	offSpecCookie  = 152 // the queue
	offSpecLoc     = 160
	flowUnion      = 52
	flowExt        = 20
	offIP4Dst      = 4 // in struct ethtool_tcpip4_spec
	offPortDst     = 10
	flowUDP4       = 0x02       // UDP_V4_FLOW
	locSpecial     = 0x80000000 // RX_CLS_LOC_SPECIAL: the driver chooses locations itself
	locAny         = 0xffffffff // RX_CLS_LOC_ANY
	cookieRingMask = 0xffffffff // ETHTOOL_RX_FLOW_SPEC_RING
)

// Commands of SIOCETHTOOL.
const (
	cmdGRXFH        = 0x29
	cmdSRXFH        = 0x2a
	cmdGRXRINGS     = 0x2d
	cmdGRXCLSRLCNT  = 0x2e
	cmdGRXCLSRULE   = 0x2f
	cmdGRXCLSRLALL  = 0x30
	cmdSRXCLSRLDEL  = 0x31
	cmdSRXCLSRLINS  = 0x32
	hashUDP4ByPorts = 1<<4 | 1<<5 | 1<<6 | 1<<7 // RXH_IP_SRC, IP_DST, L4_B_0_1 (source port), L4_B_2_3
)

var order = binary.NativeEndian

// Rule brings the frames to one UDP port of one address to a queue.
type Rule struct {
	IP    [4]byte `json:"ip"`
	Port  uint16  `json:"port"`
	Queue int     `json:"queue"`
}

// String is the rule as `ethtool -N` takes it.
func (r Rule) String() string {
	return fmt.Sprintf("flow-type udp4 dst-ip %d.%d.%d.%d dst-port %d action %d", r.IP[0], r.IP[1], r.IP[2], r.IP[3], r.Port, r.Queue)
}

// newRxnfc makes the request of a command.
func newRxnfc(cmd uint32) []byte {
	b := make([]byte, rxnfcSize)
	order.PutUint32(b[offCmd:], cmd)
	return b
}

// putRule writes a rule and its place into a request.
func putRule(b []byte, r Rule, location uint32) {
	s := b[offSpec:]
	order.PutUint32(s[offSpecFlow:], flowUDP4)
	copy(s[offSpecMatch+offIP4Dst:], r.IP[:])
	binary.BigEndian.PutUint16(s[offSpecMatch+offPortDst:], r.Port)
	copy(s[offSpecMask+offIP4Dst:], []byte{0xff, 0xff, 0xff, 0xff})
	copy(s[offSpecMask+offPortDst:], []byte{0xff, 0xff})
	order.PutUint64(s[offSpecCookie:], uint64(r.Queue))
	order.PutUint32(s[offSpecLoc:], location)
}

// sameRule tells whether an answer to GRXCLSRULE is this rule, wherever it is: match, mask and queue, and nothing else.
func sameRule(b []byte, r Rule) bool {
	want := newRxnfc(cmdGRXCLSRULE)
	putRule(want, r, order.Uint32(b[offSpec+offSpecLoc:]))
	got, spec := b[offSpec:offSpec+specSize], want[offSpec:offSpec+specSize]
	return order.Uint32(got[offSpecFlow:]) == flowUDP4 &&
		string(got[offSpecMatch:offSpecMatch+flowUnion]) == string(spec[offSpecMatch:offSpecMatch+flowUnion]) &&
		string(got[offSpecMask:offSpecMask+flowUnion]) == string(spec[offSpecMask:offSpecMask+flowUnion]) &&
		string(got[offSpecMaskX:offSpecMaskX+flowExt]) == string(spec[offSpecMaskX:offSpecMaskX+flowExt]) &&
		order.Uint64(got[offSpecCookie:]) == uint64(r.Queue)
}
