package layers

import (
	"bytes"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"gradnic/internal/captures"
	"gradnic/wire/accl"
	"gradnic/wire/bump"
	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/wire/ring"
	"gradnic/wire/switchml"
)

func TestMain(m *testing.M) {
	Register()
	os.Exit(m.Run())
}

var typeOf = map[string]gopacket.LayerType{
	"switchml": LayerTypeSwitchML, "native": LayerTypeNative, "accl": LayerTypeACCL, "ring": LayerTypeRing, "bump": LayerTypeBump,
}

// protocol is the layer of a capture's frames.
func protocol(file string) gopacket.LayerType {
	for name, lt := range typeOf {
		if strings.Contains(file, name) {
			return lt
		}
	}
	return gopacket.LayerTypeZero
}

// Every frame of every capture has its layer, which says what the wire package says, and gives the same bytes again:
// both the layer alone and the whole frame.
func TestCapturesRoundTrip(t *testing.T) {
	for _, file := range captures.Files() {
		frames, err := captures.Frames(file)
		if err != nil {
			t.Fatal(err)
		}
		want := protocol(file)
		rest := 0
		for i, frame := range frames {
			p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
			l := p.Layer(want)
			if l == nil {
				if want != LayerTypeACCL || p.ErrorLayer() == nil {
					t.Fatalf("%s, frame %d: %v", file, i+1, p)
				}
				rest++ // a datagram without a header
				continue
			}
			if e := p.ErrorLayer(); e != nil {
				t.Fatalf("%s, frame %d: %v", file, i+1, e.Error())
			}
			compare(t, frame, l)
			again(t, frame, p, l.(gopacket.SerializableLayer))
		}
		if (want == LayerTypeACCL) != (rest == 3) || len(frames) < 4 {
			t.Errorf("%s: %d of %d frames without a layer", file, rest, len(frames))
		}
	}
}

// compare holds the fields against the wire package's view of the frame.
func compare(t *testing.T, frame []byte, l gopacket.Layer) {
	t.Helper()
	var p inet.Packet
	inet.Parse(frame, &p)
	switch l := l.(type) {
	case *SwitchML:
		v, _ := switchml.Validate(p.Payload)
		e0, e1 := v.Exponents()
		if l.Size != v.SizeCode() || l.Job != v.Job() || l.TSI != v.TSI() || l.PoolIndex != v.PoolIndex() || l.Set() != v.Set() ||
			l.Slot() != v.Slot() || l.E0 != e0 || l.E1 != e1 || len(l.Values()) != v.Elements() || !bytes.Equal(l.Payload, v.Values()) {
			t.Fatalf("%+v of %x", l, v[:10])
		}
	case *Native:
		v, _ := native.Validate(p.Payload)
		if l.Header != v.Header() || !bytes.Equal(l.Payload, v.Untagged().Payload()) {
			t.Fatalf("%+v of %x", l, v)
		}
		if v.Tagged() && (l.Counter != v.Counter() || l.Tag != v.Tag() || l.Kind == native.Report && l.Salt != v.Salt()) {
			t.Fatalf("%+v of %x", l, v)
		}
		_, report := l.Report()
		_, notice := l.Notice()
		_, leave := l.Leave()
		if report != (l.Kind == native.Report) || notice != (l.Kind == native.Notice) || leave != (l.Kind == native.Leave) {
			t.Fatalf("%v: report %v, notice %v, leave %v", l.Kind, report, notice, leave)
		}
	case *ACCL:
		var h accl.Header
		accl.ParseHeader(p.Payload, &h)
		if l.Header != h || len(l.Elements()) != min(int(h.Count), accl.OneDatagram) {
			t.Fatalf("%+v of %x", l, p.Payload[:64])
		}
	case *Ring:
		v, _ := ring.Validate(p.Payload)
		want := Ring{BaseLayer: l.BaseLayer, Kind: v.Kind(), Length: uint16(len(v.Payload()))}
		switch v.Kind() {
		case ring.Data:
			want.Data = v.Data()
		case ring.Ack:
			want.Ack = v.Ack()
		case ring.Hello:
			want.Hello = v.Hello()
			want.Members = []ring.Member{v.Member(0), v.Member(1), v.Member(2)}
		case ring.Notice:
			want.Notice = v.Notice()
		}
		if len(l.Members) == 0 {
			want.Members = l.Members
		}
		if !reflect.DeepEqual(*l, want) {
			t.Fatalf("%+v\nwant %+v", l, want)
		}
	case *Bump:
		var h bump.Header
		body, f := bump.Open(frame, &h)
		if f != bump.OK || l.Kind != h.Kind || int(l.ItemsN) != h.Items || l.Boot != h.Boot || l.Sequence != h.Sequence || l.Seed != h.Seed ||
			!bytes.Equal(l.Payload, body) {
			t.Fatalf("%v: %+v of %+v", f, l, h)
		}
		items, err := l.Items()
		_, control := l.Control()
		if err != nil || len(items) != h.Items || control != (h.Kind != bump.Data) {
			t.Fatalf("%d items, %v; control %v", len(items), err, control)
		}
	default:
		t.Fatalf("%T", l)
	}
}

// again serializes the layer and what follows, as it is and with lengths and checksums made anew.
func again(t *testing.T, frame []byte, p gopacket.Packet, l gopacket.SerializableLayer) {
	t.Helper()
	var whole []gopacket.SerializableLayer
	for _, layer := range p.Layers() {
		whole = append(whole, layer.(gopacket.SerializableLayer))
	}
	ethernet := p.LinkLayer().(*layers.Ethernet)
	for _, opts := range []gopacket.SerializeOptions{{}, {FixLengths: true}, {FixLengths: true, ComputeChecksums: true}} {
		b := gopacket.NewSerializeBuffer()
		if u, ok := l.(*Bump); ok {
			if f := u.Verify(ethernet); f != bump.OK {
				t.Fatal(f)
			}
			u.SetLinkLayerForChecksum(ethernet)
		}
		if u := p.Layer(layers.LayerTypeUDP); u != nil {
			_ = u.(*layers.UDP).SetNetworkLayerForChecksum(p.NetworkLayer())
			if opts.ComputeChecksums {
				continue // gopacket's own layers then write what these protocols leave out
			}
		}
		if err := gopacket.SerializeLayers(b, opts, whole...); err != nil {
			t.Fatal(err)
		}
		got := b.Bytes()
		if len(got) < len(frame) {
			got = append(bytes.Clone(got), make([]byte, len(frame)-len(got))...) // Ethernet's padding
		}
		if !bytes.Equal(got, frame) {
			t.Fatalf("%+v:\n got %x\nwant %x", opts, got, frame)
		}
	}
}

// A parser reuses its layers: nothing of the message before stays.
func TestParserReusesLayers(t *testing.T) {
	var r Ring
	parser := gopacket.NewDecodingLayerParser(LayerTypeRing, &r)
	parser.IgnoreUnsupported = true
	frames, err := captures.Frames("captures/ring.pcap")
	if err != nil {
		t.Fatal(err)
	}
	var found []gopacket.LayerType
	for i, frame := range frames {
		if err := parser.DecodeLayers(frame[inet.PayloadOffset:], &found); err != nil || len(found) != 1 {
			t.Fatalf("frame %d: %v, %v", i+1, found, err)
		}
		var fresh Ring
		if err := fresh.DecodeFromBytes(frame[inet.PayloadOffset:], gopacket.NilDecodeFeedback); err != nil {
			t.Fatal(err)
		}
		if len(fresh.Members) != len(r.Members) {
			t.Fatalf("frame %d: %d members, want %d", i+1, len(r.Members), len(fresh.Members))
		}
		fresh.Members = r.Members
		if !reflect.DeepEqual(fresh, r) {
			t.Fatalf("frame %d: %+v\nwant %+v", i+1, r, fresh)
		}
	}
}

// What a wire package refuses is an error with the drop reason's name; a message that was cut is truncated.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		layer     gopacket.DecodingLayer
		data      []byte
		want      string
		truncated bool
	}{
		{new(SwitchML), []byte{0x11, 0}, "switchml-short", true},
		{new(SwitchML), make([]byte, 266), "switchml-message-type", false},
		{new(Native), make([]byte, 31), "native-short", true},
		{new(Native), make([]byte, 32), "native-version", false},
		{new(ACCL), make([]byte, 63), "accl-short", true},
		{new(ACCL), bytes.Repeat([]byte{1}, 64), "accl-not-a-header", false},
		{new(ACCL), make([]byte, 64), "accl-empty", false},
		{new(ACCL), append([]byte{1}, make([]byte, 63)...), "accl-wrong-piece", true},
		{new(ACCL), append([]byte{1}, make([]byte, 191)...), "accl-wrong-piece", false},
		{new(Ring), make([]byte, 39), "ring-short", true},
		{new(Ring), bytes.Repeat([]byte{0x11}, 40), "ring-length", false},
		{new(Bump), make([]byte, 19), "bump-short", true},
		{new(Bump), append([]byte{0x11, 1, 9, 9}, make([]byte, 16)...), "bump-short", true},
		{new(Bump), make([]byte, 40), "bump-version", false},
	} {
		var cut feedback
		err := c.layer.DecodeFromBytes(c.data, &cut)
		if err == nil || err.Error() != c.want || bool(cut) != c.truncated {
			t.Errorf("%T: %v, truncated %v; want %s, %v", c.layer, err, cut, c.want, c.truncated)
		}
	}
}

type feedback bool

func (f *feedback) SetTruncated() { *f = true }

// A wrong checksum is told by Verify, and only by it.
func TestBumpChecksum(t *testing.T) {
	frames, err := captures.Frames("captures/bump.pcap")
	if err != nil {
		t.Fatal(err)
	}
	frame := bytes.Clone(frames[2])
	frame[0] ^= 2
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	u, ok := p.Layer(LayerTypeBump).(*Bump)
	if !ok {
		t.Fatal(p)
	}
	if f := u.Verify(p.LinkLayer().(*layers.Ethernet)); f != bump.BadChecksum {
		t.Error(f)
	}
	err = u.SerializeTo(gopacket.NewSerializeBuffer(), gopacket.SerializeOptions{ComputeChecksums: true})
	if err == nil {
		t.Error("a checksum without addresses")
	}
}

// The sessions put the messages of a capture together, also those of several datagrams that come mixed.
func TestACCLSessions(t *testing.T) {
	frames, err := captures.Frames("captures/accl.pcap")
	if err != nil {
		t.Fatal(err)
	}
	var s ACCLSessions
	whole := map[netip.AddrPort][]byte{}
	var counts []int
	datagram := func(frame []byte) (ACCLPart, netip.AddrPort, error) {
		var p inet.Packet
		if f := inet.Parse(frame, &p); f != inet.OK {
			t.Fatal(f)
		}
		from := netip.AddrPortFrom(netip.AddrFrom4(p.SrcIP), p.SrcPort)
		part, err := s.Datagram(from, netip.AddrPortFrom(netip.AddrFrom4(p.DstIP), p.DstPort), p.Payload)
		return part, from, err
	}
	for i, frame := range frames {
		part, from, err := datagram(frame)
		if err != nil {
			t.Fatalf("frame %d: %v", i+1, err)
		}
		if part.First != (len(whole[from]) == 0) || part.Offset != len(whole[from]) || int(part.Header.Src) != int(from.Port()-accl.BasePort) {
			t.Fatalf("frame %d: %+v", i+1, part)
		}
		whole[from] = append(whole[from], part.Elements...)
		if part.Last {
			if len(whole[from]) != int(part.Header.Count) {
				t.Fatalf("frame %d: %d bytes of %d", i+1, len(whole[from]), part.Header.Count)
			}
			counts = append(counts, len(whole[from]))
			delete(whole, from)
		}
	}
	if want := []int{36, 32, 36, 32, 4033, 10000}; !reflect.DeepEqual(counts, want) {
		t.Errorf("messages of %v bytes, want %v", counts, want)
	}
	// Frame 5 begins 10000 bytes; without frame 7 the next datagram is not the one expected, and ends the message.
	if _, _, err := datagram(frames[4]); err != nil {
		t.Fatal(err)
	}
	if _, _, err := datagram(frames[8]); err == nil || err.Error() != "accl-wrong-piece" {
		t.Errorf("a datagram is missing: %v", err)
	}
	if part, _, err := datagram(frames[4]); err != nil || !part.First {
		t.Errorf("after that: %+v, %v", part, err)
	}
}

// Whatever is decoded gives the same bytes again, and nothing panics.
func FuzzLayers(f *testing.F) {
	for _, file := range captures.Files() {
		frames, err := captures.Frames(file)
		if err != nil {
			f.Fatal(err)
		}
		offset := inet.PayloadOffset
		if protocol(file) == LayerTypeBump {
			offset = inet.EthernetLen
		}
		for i, frame := range frames {
			if i < 40 && len(frame) < 400 {
				f.Add(frame[offset:])
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, l := range []message{new(SwitchML), new(Native), new(ACCL), new(Ring), new(Bump)} {
			if l.DecodeFromBytes(bytes.Clone(data), gopacket.NilDecodeFeedback) != nil {
				continue
			}
			switch l := l.(type) {
			case *Native:
				l.Report()
				l.Notice()
				l.Leave()
			case *ACCL:
				l.Elements()
			case *Bump:
				_, _ = l.Items()
				l.Control()
			}
			b := gopacket.NewSerializeBuffer()
			if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{}, l, gopacket.Payload(l.LayerPayload())); err != nil {
				t.Fatalf("%T: %v", l, err)
			}
			if n := len(b.Bytes()); n > len(data) || !bytes.Equal(b.Bytes(), data[:n]) || n != len(data) && l.LayerType() != LayerTypeBump {
				t.Fatalf("%T: %x became %x", l, data, b.Bytes())
			}
		}
		var s ACCLSessions
		for len(data) > 0 {
			n := min(len(data), 64*(1+int(data[0])%3))
			_, _ = s.Datagram(netip.AddrPort{}, netip.AddrPort{}, data[:n])
			data = data[n:]
		}
	})
}
