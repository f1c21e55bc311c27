package wireshark

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"testing"

	"gradnic/wire/accl"
	"gradnic/wire/bump"
	"gradnic/wire/inet"
	"gradnic/wire/layers"
	"gradnic/wire/native"
	"gradnic/wire/ring"
	"gradnic/wire/switchml"
)

// shown are a frame's fields by name, each as often as it occurs, in order. Numbers are decimal, bytes hexadecimal.
type shown map[string][]string

// add adds the values of one field.
func (s shown) add(name string, values ...any) {
	for _, v := range values {
		text := fmt.Sprint(v)
		switch v := v.(type) {
		case bool:
			text = "0"
			if v {
				text = "1"
			}
		case []byte:
			if len(v) == 0 {
				continue // a field of no bytes is not shown
			}
			text = hex.EncodeToString(v)
		case inet.Addr:
			text = netip.AddrFrom4(v).String()
		case float32:
			text = strconv.FormatFloat(float64(v), 'g', 6, 32)
		case float64:
			text = strconv.FormatFloat(v, 'g', 12, 64)
		}
		s[name] = append(s[name], text)
	}
}

// expect is what the Go decoders read in a frame.
func expect(t *testing.T, protocol string, number int, frame []byte, acclState *acclState) shown {
	t.Helper()
	s := shown{}
	if protocol == "gradbump" {
		expectBump(t, s, frame)
		return s
	}
	var p inet.Packet
	if f := inet.Parse(frame, &p); f != inet.OK {
		t.Fatal(f)
	}
	switch protocol {
	case "switchml":
		expectSwitchML(t, s, p.Payload)
	case "gradnic":
		expectNative(t, s, p.Payload)
	case "accl":
		acclState.expect(t, s, &p, number)
	case "gradring":
		expectRing(t, s, p.Payload)
	default:
		t.Fatal(protocol)
	}
	return s
}

func expectSwitchML(t *testing.T, s shown, b []byte) {
	v, f := switchml.Validate(b)
	if f != switchml.OK {
		t.Fatal(f)
	}
	e0, e1 := v.Exponents()
	tsi := v.TSI()
	s.add("switchml.type", switchml.MessageType)
	s.add("switchml.unused", b[0]&8 != 0)
	s.add("switchml.size", uint8(v.SizeCode()))
	s.add("switchml.job", v.Job())
	s.add("switchml.tsi", tsi[:])
	s.add("switchml.packet", binary.LittleEndian.Uint32(tsi[:]))
	s.add("switchml.set", v.Set())
	s.add("switchml.bit14", v.PoolIndex()>>14&1 == 1)
	s.add("switchml.slot", v.Slot())
	s.add("switchml.e0", e0)
	s.add("switchml.e1", e1)
	for values := v.Values(); len(values) > 0; values = values[4:] {
		s.add("switchml.value", int32(binary.BigEndian.Uint32(values)))
	}
}

func expectNative(t *testing.T, s shown, b []byte) {
	v, f := native.Validate(b)
	if f != native.OK {
		t.Fatal(f)
	}
	h := v.Header()
	s.add("gradnic.version", native.Version)
	s.add("gradnic.kind", uint8(h.Kind))
	s.add("gradnic.flags", uint8(h.Flags))
	for name, flag := range map[string]native.Flags{
		"resend": native.FlagResend, "partial": native.FlagPartial, "saturated": native.FlagSaturated, "nonfinite": native.FlagNonFinite,
		"wrapped": native.FlagWrapped, "relayed": native.FlagRelayed, "tagged": native.FlagTagged,
	} {
		s.add("gradnic."+name, h.Flags&flag != 0)
	}
	s.add("gradnic.type", uint8(h.Type))
	s.add("gradnic.codec", h.Codec)
	s.add("gradnic.job", h.Job)
	s.add("gradnic.rank", h.Rank)
	s.add("gradnic.epoch", h.Epoch)
	s.add("gradnic.round", h.Round)
	s.add("gradnic.slot", h.Slot)
	s.add("gradnic.collective", h.Collective)
	s.add("gradnic.elements", h.Elements)
	s.add("gradnic.length", len(v.Payload()))
	s.add("gradnic.plane", h.Plane)
	s.add("gradnic.zero", 0)
	if v.Tagged() {
		counter, tag := v.Counter(), v.Tag()
		s.add("gradnic.counter", counter)
		s.add("gradnic.tag", tag[:])
		if h.Kind == native.Report {
			salt := v.Salt()
			s.add("gradnic.salt", salt[:])
		}
	}
	v = v.Untagged()
	s.add("gradnic.payload", v.Payload())
	switch h.Kind {
	case native.Report:
		r, ok := native.ParseReport(v.Payload(), v.Flags())
		if !ok {
			t.Fatal("no report")
		}
		s.add("gradnic.life", r.Life)
		s.add("gradnic.nonce", r.Nonce)
		if r.NoValues {
			s.add("gradnic.back", r.Back)
			s.add("gradnic.ahead", r.Ahead)
			s.add("gradnic.have_values", r.Have)
			return
		}
		s.add("gradnic.have", r.Have)
	case native.Notice:
		n, ok := native.ParseNotice(v.Payload())
		if !ok {
			t.Fatal("no notice")
		}
		expectNotice(s, &n)
	case native.Leave:
		s.add("gradnic.nonce", binary.BigEndian.Uint32(v.Payload()))
	case native.Contribution, native.Supply, native.Result:
		if h.Codec == 0 {
			expectValues(s, h.Type, v.Payload())
		}
	}
}

func expectNotice(s shown, n *native.NoticeBody) {
	s.add("gradnic.code", uint8(n.Code))
	s.add("gradnic.op", n.Op)
	s.add("gradnic.order", n.Order)
	s.add("gradnic.policy", n.Policy)
	s.add("gradnic.workers", n.Workers)
	s.add("gradnic.packet_elements", n.Elements)
	s.add("gradnic.slots", n.Slots)
	s.add("gradnic.life", n.Life)
	s.add("gradnic.group", inet.Addr(n.Group))
	s.add("gradnic.group_port", n.GroupPort)
	s.add("gradnic.contribution_codec", n.Codec)
	s.add("gradnic.result_codec", n.Result)
	s.add("gradnic.deadline", n.Deadline)
	s.add("gradnic.nonce", n.Nonce)
	if n.Codec|n.Result != 0 {
		s.add("gradnic.contribution_param", n.CodecParam)
		s.add("gradnic.result_param", n.ResultParam)
	}
	s.add("gradnic.ranks", n.Ranks)
}

func expectValues(s shown, typ native.Type, b []byte) {
	for size := typ.Size(); size > 0 && len(b) > 0; b = b[size:] {
		switch typ {
		case native.Int32:
			s.add("gradnic.int32", int32(binary.LittleEndian.Uint32(b)))
		case native.Int64:
			s.add("gradnic.int64", int64(binary.LittleEndian.Uint64(b)))
		case native.Int8:
			s.add("gradnic.int8", int8(b[0]))
		case native.Float32:
			s.add("gradnic.float32", math.Float32frombits(binary.LittleEndian.Uint32(b)))
		case native.Float64:
			s.add("gradnic.float64", math.Float64frombits(binary.LittleEndian.Uint64(b)))
		}
	}
}

// acclState is what must be known of the frames before.
type acclState struct {
	sessions layers.ACCLSessions
	begins   map[netip.AddrPort]int // frame of the message that is open, by sender
}

func (a *acclState) expect(t *testing.T, s shown, p *inet.Packet, number int) {
	from := netip.AddrPortFrom(netip.AddrFrom4(p.SrcIP), p.SrcPort)
	part, err := a.sessions.Datagram(from, netip.AddrPortFrom(netip.AddrFrom4(p.DstIP), p.DstPort), p.Payload)
	if err != nil {
		t.Fatal(err)
	}
	padding := p.Payload[len(part.Elements):]
	if part.First {
		h := &part.Header
		s.add("accl.count", h.Count)
		s.add("accl.tag", h.Tag)
		s.add("accl.src", h.Src)
		s.add("accl.seq", h.Seq)
		s.add("accl.stream", h.Stream)
		s.add("accl.session", h.Session)
		s.add("accl.type", uint8(h.Type))
		s.add("accl.host", h.Host)
		s.add("accl.address", h.Address)
		s.add("accl.zero", make([]byte, 32))
		padding = padding[accl.HeaderLen:]
		a.begins[from] = number
	} else {
		s.add("accl.message", a.begins[from])
	}
	s.add("accl.first", part.First)
	s.add("accl.last", part.Last)
	s.add("accl.offset", part.Offset)
	s.add("accl.elements", part.Elements)
	s.add("accl.padding", padding)
}

func expectRing(t *testing.T, s shown, b []byte) {
	v, f := ring.Validate(b)
	if f != ring.OK {
		t.Fatal(f)
	}
	c := v.Common()
	s.add("gradring.version", ring.Version)
	s.add("gradring.kind", uint8(v.Kind()))
	s.add("gradring.resend", v.Flags()&ring.FlagResend != 0)
	s.add("gradring.gather", v.Flags()&ring.FlagGather != 0)
	s.add("gradring.formed", v.Flags()&ring.FlagFormed != 0)
	s.add("gradring.reply", v.Flags()&ring.FlagReply != 0)
	s.add("gradring.ring", c.Ring)
	s.add("gradring.node", c.Node)
	s.add("gradring.generation", c.Generation)
	s.add("gradring.epoch", c.Epoch)
	s.add("gradring.length", len(v.Payload()))
	switch v.Kind() {
	case ring.Data:
		d := v.Data()
		s.add("gradring.codec", d.Codec)
		s.add("gradring.step", d.Step)
		s.add("gradring.sequence", d.Sequence)
		s.add("gradring.request", d.Request)
		s.add("gradring.block", d.Block)
		s.add("gradring.request_length", d.Length)
		s.add("gradring.slice", d.Slice)
		s.add("gradring.offset", d.Offset)
		s.add("gradring.elements", d.Elements)
		s.add("gradring.payload", v.Payload())
	case ring.Ack:
		a := v.Ack()
		s.add("gradring.cumulative", a.Cumulative)
		s.add("gradring.reduce", a.Reduce)
		s.add("gradring.gather_credit", a.Gather)
		s.add("gradring.wait_request", a.WaitRequest)
		s.add("gradring.wait_node", a.WaitNode)
		s.add("gradring.wait_hops", a.WaitHops)
		s.add("gradring.sack", v.Payload())
	case ring.Hello:
		h := v.Hello()
		s.add("gradring.slice_elements", h.SliceElements)
		s.add("gradring.mtu", h.MTU)
		s.add("gradring.window", h.Window)
		s.add("gradring.boot", h.Boot)
		s.add("gradring.nodes", h.Nodes)
		for i := range int(h.Nodes) {
			s.add("gradring.member.node", v.Member(i).Node)
			s.add("gradring.member.boot", v.Member(i).Boot)
		}
	case ring.Notice:
		n := v.Notice()
		s.add("gradring.reason", uint8(n.Reason))
		s.add("gradring.request", n.Request)
		s.add("gradring.boot", n.Boot)
		s.add("gradring.failed", n.Failed)
	}
}

func expectBump(t *testing.T, s shown, frame []byte) {
	var h bump.Header
	body, f := bump.Open(frame, &h)
	if f != bump.OK {
		t.Fatal(f)
	}
	s.add("gradbump.version", bump.Version)
	s.add("gradbump.kind", uint8(h.Kind))
	s.add("gradbump.items", h.Items)
	s.add("gradbump.length", h.Length)
	s.add("gradbump.boot", h.Boot)
	s.add("gradbump.sequence", h.Sequence)
	s.add("gradbump.seed", h.Seed)
	s.add("gradbump.checksum", binary.BigEndian.Uint32(frame[30:]))
	s.add("gradbump.checksum.good", true)
	if h.Kind != bump.Data {
		var c bump.Control
		if f := bump.ParseControl(body, &c); f != bump.OK {
			t.Fatal(f)
		}
		s.add("gradbump.to", c.To)
		s.add("gradbump.longest", c.Longest)
		s.add("gradbump.zero", 0)
		s.add("gradbump.codecs", c.Codecs)
		s.add("gradbump.station", c.Station)
		return
	}
	r := bump.NewReader(body, &h)
	for {
		var it bump.Item
		more, f := r.Next(&it)
		if f != bump.OK {
			t.Fatal(f)
		}
		if !more {
			return
		}
		s.add("gradbump.item.flow", it.Flow)
		s.add("gradbump.item.size", it.HeadLen()-bump.ItemLen+len(it.Raw)+len(it.Encoded))
		s.add("gradbump.item.sequence", it.Sequence)
		s.add("gradbump.item.alike", it.Alike)
		s.add("gradbump.item.bigendian", it.BigEndian)
		s.add("gradbump.item.type", uint8(it.Type))
		s.add("gradbump.item.codec", it.Codec)
		s.add("gradbump.item.payload", it.Payload)
		s.add("gradbump.item.id", it.ID)
		s.add("gradbump.item.raw", it.Raw)
		s.add("gradbump.item.encoded", it.Encoded)
		if !it.Alike {
			s.add("gradbump.item.offset", it.Offset)
			s.add("gradbump.item.head", it.Head)
			s.add("gradbump.item.protocol", it.Head[9])
			s.add("gradbump.item.src", inet.Addr(it.Head[12:16]))
			s.add("gradbump.item.dst", inet.Addr(it.Head[16:20]))
			s.add("gradbump.item.srcport", binary.BigEndian.Uint16(it.Head[20:]))
			s.add("gradbump.item.dstport", binary.BigEndian.Uint16(it.Head[22:]))
		}
	}
}
