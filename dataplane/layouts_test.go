package dataplane

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"gradnic/aggregation"
	"gradnic/internal/captures"
	"gradnic/wire/inet"
	"gradnic/wire/layout"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
)

func loadLayout(t testing.TB, name string) *layout.Layout {
	t.Helper()
	l, err := layout.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// parseLayout is a shipped layout with some of its text replaced.
func parseLayout(t testing.TB, name string, replace ...string) *layout.Layout {
	t.Helper()
	text, err := layout.Source(name)
	if err != nil {
		t.Fatal(err)
	}
	l, err := layout.Parse(name, []byte(strings.NewReplacer(replace...).Replace(string(text))))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The recorded packets pass through SwitchML's layout file, byte for byte, and are handed between lanes.
func TestCapturesThroughLayout(t *testing.T) {
	for _, elements := range []int{64, 256} {
		for _, lanes := range []int{1, 2} {
			t.Run(fmt.Sprintf("%d/%d-lanes", elements, lanes), func(t *testing.T) {
				cfg := Config{MAC: captures.SwitchMAC(), IP: captures.SwitchIP(), Wait: Interrupt, Lanes: lanes, Layouts: []*layout.Layout{loadLayout(t, "switchml")}}
				n, mem := memNIC(t, cfg, captures.Workers)
				j := capturesJob(elements)
				j.Layout = "switchml"
				install(t, n, j)
				replayCaptures(t, n, elements, []wire{mem[0], mem[1]})
			})
		}
	}
}

// A frame in another form than its job's is dropped, and so is one that is no frame of its layout; each by name.
func TestLayoutDrops(t *testing.T) {
	x := parseLayout(t, "switchml", "layout: switchml", "layout: far", "udp: 0xBEE0-0xBEEF", "udp: 9000-9015")
	cfg := testConfig()
	cfg.Layouts = []*layout.Layout{x}
	n, mem := memNIC(t, cfg, 2)
	install(t, n, JobSpec{Name: "plain", Workers: 1, Elements: 64, Slots: 4, Members: members(1, true)})
	far := JobSpec{Name: "far", Workers: 1, Elements: 64, Slots: 4, Members: members(2, true)[1:], Layout: "far"}
	far.Members[0].Rank = 0
	install(t, n, far)
	c := startCapture(t, n, CaptureOptions{Stages: []CaptureStage{CaptureDrop}})
	through := func(f []byte) []byte { // the same message by the layout
		at, k, ok := x.Leave(append(bytes.Clone(f), make([]byte, layout.MaxRunning)...), 0, len(f))
		if !ok || at != 0 || k != len(f) {
			t.Fatal("a request does not leave")
		}
		f = append([]byte(nil), f...)
		f[36], f[37] = 0x23, 0x28 // port 9000
		return f
	}
	sent, captured := uint64(0), 0
	for _, f := range []struct {
		port  int
		frame []byte
	}{
		{0, request(0, 64, 0, 0, 1, 1)}, {1, through(request(1, 64, 0, 0, 1, 1))}, // right
		{0, through(request(0, 64, 1, 0, 1, 1))}, {1, request(1, 64, 1, 0, 1, 1)}, // in the other's form
		{1, through(request(1, 64, 1, 0, 1, 1))[:70]},
	} {
		mustSend(t, mem[f.port], f.frame)
		sent++
	}
	bad := through(request(1, 64, 1, 0, 1, 1))
	bad[42] = 0x21 // message type
	mustSend(t, mem[1], bad)
	s := waitReceived(t, n, sent+1)
	d := s.Total.Drops
	if s.Total.Contributed != 2 || d["wrong-layout"] != 2 || d["layout-fixed"] != 1 || d["short"] != 1 {
		t.Fatalf("%+v", s.Total)
	}
	// A dropped message that came by a layout is shown with whole headers, as the rules have it.
	for _, f := range c.all(t) {
		if f.Reason != "wrong-layout" {
			continue
		}
		var p inet.Packet
		if x := inet.Parse(f.Data, &p); x != inet.OK || p.DstIP != nicIP || p.DstPort != switchml.PortBase {
			t.Errorf("captured: %v %+v", x, p)
		}
		if v, x := switchml.Validate(p.Payload); x != switchml.OK || v.Slot() != 1 {
			t.Errorf("captured: %v %x", x, p.Payload)
		}
		captured++
	}
	if captured != 2 {
		t.Errorf("%d frames in the wrong form captured", captured)
	}
	plain, other := recv(t, mem[0]), recv(t, mem[1])
	if plain[34] != 0xbe || plain[35] != 0xe0 || other[34] != 0x23 || other[35] != 0x28 || len(plain) != 308 || len(other) != 308 {
		t.Fatalf("%x\n%x", plain[:52], other[:52])
	}
	check(t, n)
}

// What a layout cannot carry is refused when the job is installed, and what cannot run when the NIC is made.
func TestLayoutRefusals(t *testing.T) {
	narrow := parseLayout(t, "inhouse", "offset: 4, width: 32, meaning: worker", "offset: 4, width: 3, meaning: worker")
	cfg := testConfig()
	cfg.Layouts = []*layout.Layout{narrow, loadLayout(t, "switchml")}
	n, err := New(cfg, NewMemPort("a"))
	if err != nil {
		t.Fatal(err)
	}
	nat := func(change func(*JobSpec)) JobSpec {
		s := JobSpec{Name: "j", Protocol: ProtocolNative, Workers: 3, Elements: 16, Layout: "inhouse"}
		change(&s)
		return s
	}
	for _, tt := range []struct {
		spec  JobSpec
		fails string
	}{
		{nat(func(s *JobSpec) { s.Layout = "other" }), `the NIC has no layout "other"`},
		{nat(func(s *JobSpec) { s.Layout = "switchml" }), "layout switchml has rules switchml, the job protocol native"},
		{nat(func(s *JobSpec) { s.Workers = 4 }), "field workers has bits for 3 workers, the job has 4"},
		{nat(func(s *JobSpec) { s.Native = &NativeSpec{ID: 300} }), "field group has 8 bits, the job needs job 300"},
		{nat(func(s *JobSpec) { s.Native = &NativeSpec{Type: aggregation.Int64} }), "field format has no value for int64"},
		{nat(func(s *JobSpec) { s.Native = &NativeSpec{Type: aggregation.Float32, Codec: "bfp16"} }), "compressed values go in native frames only"},
		{nat(func(s *JobSpec) { s.Native = &NativeSpec{Keys: make([]native.Key, 3)} }), "tags and layouts do not go together"},
		{nat(func(s *JobSpec) { s.Elements = 430 }), "the longest frame of 1792 bytes takes 1718"},
		{JobSpec{Name: "j", Workers: 1, Elements: 64, Layout: "switchml", Multicast: &MulticastSpec{}}, "leave multicast out"},
	} {
		err := n.InstallJob(tt.spec)
		if err == nil || !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("%+v: %v, want %q", tt.spec, err, tt.fails)
		}
	}
	if err := n.InstallJob(nat(func(*JobSpec) {})); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct {
		layouts []*layout.Layout
		port    PortSpec
		fails   string
	}{
		{[]*layout.Layout{loadLayout(t, "atp")}, NewMemPort("a"), "cannot run"},
		{[]*layout.Layout{narrow, narrow}, NewMemPort("a"), "cannot be told apart"},
		{[]*layout.Layout{narrow}, XDPPort{Interface: "eth9"}, "port eth9 takes IPv4 only"},
	} {
		cfg := testConfig()
		cfg.Layouts = tt.layouts
		if _, err := New(cfg, tt.port); err == nil || !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("%v, want %q", err, tt.fails)
		}
	}
}

// otherHeader is SwitchML's rules behind a longer header with the fields in another order and byte order.
func otherHeader(t testing.TB) *layout.Layout {
	t.Helper()
	l, err := layout.Parse("other.yaml", []byte(`layout: other
rules: switchml
encapsulation: {udp: 9000}
header: 18
fields:
  - {name: magic, offset: 0, width: 16, fixed: 0xACCE}
  - {name: seq, offset: 2, width: 32, byte-order: little, meaning: tag}
  - {name: cell, offset: 6, width: 14, meaning: slot}
  - {name: half, offset: 8, width: 1, meaning: version}
  - {name: run, offset: 9, width: 8, meaning: job}
  - {name: x1, offset: 12, width: 8, meaning: exponent1}
  - {name: x0, offset: 13, width: 8, meaning: exponent0}
  - {name: bytes, offset: 16, width: 16, meaning: length}
`))
	if err != nil {
		t.Fatal(err)
	}
	return l
}
