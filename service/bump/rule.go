package bump

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"gradnic/codec"
	wire "gradnic/wire/bump"
	"gradnic/wire/inet"
)

// protoTCP is TCP's protocol number.
const protoTCP = 6

// PortRange is UDP or TCP ports from First to Last; both 0: any.
type PortRange struct{ First, Last uint16 }

func (r PortRange) any() bool { return r == PortRange{} }

func (r PortRange) has(p uint16) bool { return r.any() || p >= r.First && p <= r.Last }

func (r PortRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// NoByte is Rule.CodecAt of a rule whose codec is fixed.
const NoByte = -1

// Rule names flows and what becomes of their frames. The first rule that matches a frame counts.
type Rule struct {
	// TCP is for TCP; else the rule is for UDP.
	TCP bool
	// Src and Dst are the IPv4 addresses of the frame; the zero prefix means any.
	Src, Dst netip.Prefix
	// SrcPort and DstPort are its ports.
	SrcPort, DstPort PortRange
	// Raw says that the flows go as they are; what follows is not used then.
	Raw bool
	// Offset is where the elements start in the UDP payload, in bytes, 0 to 65535; they go on to the payload's end. What
	// is before them, or no whole element at the end, is kept exactly.
	Offset int
	// Type and BigEndian are what the elements are. Lossy codecs need a float type.
	Type      wire.Type
	BigEndian bool
	// Codec is what the elements are compressed with; nil when CodecAt says it.
	Codec codec.Codec
	// CodecAt, if not NoByte, is where each payload has a byte that names the codec for this message by its wire id
	// (gradnic show codecs), 0 for none. It lies before Offset.
	CodecAt int
}

// ParseRule reads a rule as users write it: the protocol, then key=value pairs in any order:
//
//	udp dport=9000-9015 offset=16 type=float32 codec=bfp16
//	udp src=10.0.0.0/24 dst=10.0.1.7 dport=4000 offset=8 type=float32 order=big codec=@3
//	tcp dport=5001 codec=lossless
//	udp dport=53 codec=raw
//
// type is float32, float16, bfloat16, word32 or word16 (words: lossless only), order is little (default) or big. Lossy
// codecs are for UDP only, and need offset and type.
func ParseRule(s string) (Rule, error) {
	r, err := parseRule(s)
	if err != nil {
		return Rule{}, fmt.Errorf("rule %q: %w", s, err)
	}
	return r, nil
}

func parseRule(s string) (Rule, error) {
	r := Rule{CodecAt: NoByte, Type: wire.Word32}
	words := strings.Fields(s)
	if len(words) == 0 {
		return r, fmt.Errorf("it is empty: write udp or tcp, then dport=PORT codec=NAME and the like")
	}
	switch words[0] {
	case "udp":
	case "tcp":
		r.TCP = true
	default:
		return r, fmt.Errorf("%q: a rule starts with udp or tcp", words[0])
	}
	seen := map[string]bool{}
	for _, w := range words[1:] {
		key, value, ok := strings.Cut(w, "=")
		if !ok || value == "" {
			return r, fmt.Errorf("%q: write key=value", w)
		}
		if seen[key] {
			return r, fmt.Errorf("%s is there twice", key)
		}
		seen[key] = true
		if err := r.set(key, value); err != nil {
			return r, fmt.Errorf("%s: %w", key, err)
		}
	}
	if !seen["codec"] {
		return r, fmt.Errorf("codec is missing: a name of gradnic show codecs, @N, or raw")
	}
	if !r.Raw && (r.Codec == nil || !r.Codec.Info().Lossless) && !(seen["offset"] && seen["type"]) {
		return r, fmt.Errorf("a lossy codec needs offset=BYTES and type=TYPE: where the elements are, and what")
	}
	return r, r.check()
}

func (r *Rule) set(key, value string) (err error) {
	switch key {
	case "src":
		r.Src, err = parsePrefix(value)
	case "dst":
		r.Dst, err = parsePrefix(value)
	case "sport":
		r.SrcPort, err = parsePorts(value)
	case "dport":
		r.DstPort, err = parsePorts(value)
	case "offset":
		r.Offset, err = parseNumber(value)
	case "type":
		r.Type, err = wire.ParseType(value)
	case "order":
		if value != "little" && value != "big" {
			return fmt.Errorf("%q: legal are little and big", value)
		}
		r.BigEndian = value == "big"
	case "codec":
		return r.setCodec(value)
	default:
		return fmt.Errorf("no such key: legal are src, dst, sport, dport, offset, type, order, codec")
	}
	return err
}

func (r *Rule) setCodec(value string) (err error) {
	at, byByte := strings.CutPrefix(value, "@")
	switch {
	case value == "raw":
		r.Raw = true
	case byByte:
		r.CodecAt, err = parseNumber(at)
	default:
		r.Codec, err = codec.ByName(value)
	}
	return err
}

// check refuses what cannot be kept.
func (r *Rule) check() error {
	for _, p := range []netip.Prefix{r.Src, r.Dst} {
		if p.IsValid() && !p.Addr().Is4() {
			return fmt.Errorf("address %v: IPv4 only", p)
		}
	}
	for _, p := range []PortRange{r.SrcPort, r.DstPort} {
		if p.First > p.Last {
			return fmt.Errorf("ports %d to %d: the first is the larger", p.First, p.Last)
		}
	}
	if r.Raw {
		return nil
	}
	if r.Offset < 0 || r.Offset > 0xffff {
		return fmt.Errorf("offset %d: legal are 0 to 65535", r.Offset)
	}
	if int(r.Type) < 0 || r.Type.String() == "" {
		return fmt.Errorf("element %v", r.Type)
	}
	lossless := r.Codec != nil && r.Codec.Info().Lossless
	switch {
	case r.TCP && r.CodecAt != NoByte, r.TCP && !lossless:
		return fmt.Errorf("TCP is a stream without places: the codec can only be lossless")
	case r.TCP && r.Offset != 0:
		return fmt.Errorf("TCP is a stream: an offset in its segments means nothing")
	case r.CodecAt != NoByte && r.Codec != nil:
		return fmt.Errorf("the codec is both fixed and in a byte of the payload")
	case r.CodecAt != NoByte && (r.CodecAt < 0 || r.CodecAt >= r.Offset):
		return fmt.Errorf("codec=@%d: the byte lies before the elements, at 0 to offset-1 (%d)", r.CodecAt, r.Offset-1)
	case r.CodecAt == NoByte && r.Codec == nil:
		return fmt.Errorf("there is no codec")
	case r.Codec != nil && r.Codec.Info().ID == codec.IDNone:
		return fmt.Errorf("codec none compresses nothing: write codec=raw")
	case !lossless && !r.Type.Float():
		return fmt.Errorf("elements of type %v have no value that a lossy codec could be near to", r.Type)
	}
	return nil
}

// matches reports whether a frame with these headers is the rule's.
func (r *Rule) matches(k *flowKey) bool {
	return r.TCP == (k.proto == protoTCP) && r.SrcPort.has(k.srcPort) && r.DstPort.has(k.dstPort) &&
		(!r.Src.IsValid() || r.Src.Contains(k.srcIP.Netip())) && (!r.Dst.IsValid() || r.Dst.Contains(k.dstIP.Netip()))
}

// String is the rule in the form of ParseRule.
func (r Rule) String() string {
	var b strings.Builder
	b.WriteString("udp")
	if r.TCP {
		b.Reset()
		b.WriteString("tcp")
	}
	if r.Src.IsValid() {
		fmt.Fprintf(&b, " src=%v", r.Src)
	}
	if r.Dst.IsValid() {
		fmt.Fprintf(&b, " dst=%v", r.Dst)
	}
	if !r.SrcPort.any() {
		fmt.Fprintf(&b, " sport=%v", r.SrcPort)
	}
	if !r.DstPort.any() {
		fmt.Fprintf(&b, " dport=%v", r.DstPort)
	}
	if r.Raw {
		b.WriteString(" codec=raw")
		return b.String()
	}
	if !r.TCP {
		fmt.Fprintf(&b, " offset=%d", r.Offset)
	}
	fmt.Fprintf(&b, " type=%v", r.Type)
	if r.BigEndian {
		b.WriteString(" order=big")
	}
	if r.CodecAt != NoByte {
		fmt.Fprintf(&b, " codec=@%d", r.CodecAt)
	} else {
		fmt.Fprintf(&b, " codec=%s", r.Codec.Info().Name)
	}
	return b.String()
}

func parsePrefix(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		s += "/32"
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is4() {
		return netip.Prefix{}, fmt.Errorf("%q: write an IPv4 address, with /LENGTH for a network", s)
	}
	return p.Masked(), nil
}

func parsePorts(s string) (PortRange, error) {
	first, last, ranged := strings.Cut(s, "-")
	if !ranged {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if errA != nil || errB != nil || a == 0 || a > b {
		return PortRange{}, fmt.Errorf("%q: write PORT or FIRST-LAST, 1 to 65535", s)
	}
	return PortRange{uint16(a), uint16(b)}, nil
}

func parseNumber(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q: write a number from 0 to 65535", s)
	}
	return int(n), nil
}

// rule is a rule as the engine has it.
type rule struct {
	Rule
	id codec.ID // of Codec: asking it may allocate
}

// flowKey is what tells flows apart.
type flowKey struct {
	src, dst         inet.MAC
	srcIP, dstIP     inet.Addr
	srcPort, dstPort uint16
	proto            uint8
}
