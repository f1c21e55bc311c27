package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"gradnic/aggregation"
	"gradnic/internal/logtest"
	"gradnic/wire/inet"
	"gradnic/wire/native"
)

func TestNativeRefusals(t *testing.T) {
	var log logtest.Lines
	cfg := testConfig()
	cfg.Logger = log.Logger()
	n, ws := nativeJob(t, cfg, JobSpec{Workers: 2, Slots: 4, Members: members(2, false)})
	w := ws[0]
	ok := le32(1, 2, 3, 4)
	header := func(h native.Header, b []byte) []byte { h.Epoch = w.epoch; return w.frame(h, b) }
	raw := func(off int, v byte) []byte { f := w.contribution(0, 0, ok); f[off] = v; return f }
	for _, c := range []struct {
		reason string
		frame  []byte
	}{
		{"native-version", raw(42, 0x21)},
		{"native-kind", raw(42, 0x1f)},
		{"native-reserved", raw(43, 0x80)},
		{"native-type", raw(44, 9)},
		{"native-codec", raw(45, 1)},
		{"native-length", raw(69, 1)},
		{"unknown-job", raw(47, 9)},
		{"rank-out-of-range", raw(49, 2)},
		{"unknown-worker", raw(49, 1)},
		{"wrong-type", raw(44, 3)},
		{"wrong-direction", header(native.Header{Kind: native.Result}, ok)},
		{"slot-out-of-range", header(native.Header{Kind: native.Contribution, Slot: 4}, ok)},
		{"wrong-size", header(native.Header{Kind: native.Contribution}, ok[:12])},
		{"wrong-size", header(native.Header{Kind: native.Contribution, Elements: 5}, ok)},
		{"wrong-size", header(native.Header{Kind: native.Report}, ok[:4])},
		{"wrong-size", header(native.Header{Kind: native.Leave}, nil)},
	} {
		before := check(t, n).Total
		mustSend(t, w.port, c.frame)
		after := waitReceived(t, n, before.Received+1)
		if got := after.Total.Drops[c.reason] - before.Drops[c.reason]; got != 1 || after.Total.Dropped() != before.Dropped()+1 {
			t.Errorf("%s: drops %v, before %v", c.reason, after.Total.Drops, before.Drops)
		}
	}
	// Another station cannot take a rank, and the log says who asked, but not each time.
	thief := *w
	f := thief.frame(native.Header{Kind: native.Report}, []byte{0, 0, 0, 0, 0, 0, 0, 1})
	f[11]++
	const times = 50
	for range times {
		mustSend(t, w.port, f)
		w.notice(native.Refused)
	}
	if said := log.With("another station asks for a rank", "rank=0", "refused=true"); len(said) == 0 || len(said) == times {
		t.Errorf("asked %d times, said %q", times, said)
	}
	silent(t, ws[0].port, ws[1].port)
	check(t, n)
}

// Before all have come the last station that asks has a rank. Two that were given the same one are told by the log.
func TestNativeOneRankTwice(t *testing.T) {
	var log logtest.Lines
	cfg := testConfig()
	cfg.Logger = log.Logger()
	n, mem := memNIC(t, cfg, 2)
	install(t, n, JobSpec{Name: "j", Protocol: ProtocolNative, Workers: 2, Elements: 4, Slots: 4})
	w := &nativeWorker{t: t, port: mem[0]}
	w.report(0, 4)
	w.notice(native.Waiting)
	f := w.frame(native.Header{Kind: native.Report}, []byte{0, 0, 0, 0, 0, 0, 0, 1})
	f[11]++
	mustSend(t, w.port, f)
	w.notice(native.Waiting)
	if said := log.With("another station asks for a rank", "job=j rank=0", "refused=false"); len(said) != 1 {
		t.Errorf("said %q", said)
	}
	check(t, n)
}

func TestNativeInstallRefuses(t *testing.T) {
	n, _ := memNIC(t, testConfig(), 1)
	for _, s := range []JobSpec{
		{Workers: 1025, Elements: 4},
		{Workers: 2, Elements: 0},
		{Workers: 2, Elements: 430},
		{Workers: 2, Elements: 4, Slots: 8193},
		{Workers: 65, Elements: 4, Native: &NativeSpec{Type: aggregation.Float32, Order: aggregation.Ranked}},
		{Workers: 64, Elements: 360, Slots: 8192, Native: &NativeSpec{Type: aggregation.Float32, Order: aggregation.Ranked}},
		{Workers: 2, Elements: 16, Native: &NativeSpec{Type: aggregation.BFP16, Codec: "bfp16"}},
		{Workers: 2, Elements: 16, Native: &NativeSpec{Type: aggregation.Int32, Codec: "bfp16"}},
		{Workers: 2, Elements: 16, Native: &NativeSpec{Type: aggregation.Float32, Codec: "thc"}},
		{Workers: 2, Elements: 16, Native: &NativeSpec{Type: aggregation.Float32, Codec: "nonesuch"}},
		{Workers: 2, Elements: 16, Native: &NativeSpec{Type: aggregation.Float32, Result: "block16e5m4"}},
		{Workers: 2, Elements: 16, Native: &NativeSpec{Type: aggregation.Float32, Op: aggregation.Max, Codec: "topk"}},
		{Workers: 2, Elements: 2000, Native: &NativeSpec{Type: aggregation.Float32, Codec: "bfp16"}},
		{Workers: 2, Elements: 1000, Native: &NativeSpec{Type: aggregation.Float32, Codec: "bfp16", Result: "none"}},
		{Workers: 2, Elements: 4, Multicast: &MulticastSpec{IP: inet.Addr{10, 0, 0, 1}}},
		{Workers: 2, Elements: 4, Native: &NativeSpec{Keys: make([]native.Key, 1)}},
		{Workers: 2, Elements: 4, Native: &NativeSpec{Keys: make([]native.Key, 2)}, Multicast: &MulticastSpec{IP: inet.Addr{239, 0, 0, 1}}},
		{Workers: 2, Elements: 424, Native: &NativeSpec{Keys: make([]native.Key, 2)}}, // without keys it fits
	} {
		s.Name, s.Protocol = "j", ProtocolNative
		if err := n.InstallJob(s); err == nil {
			t.Errorf("installed %+v", s)
			n.RemoveJob("j")
		}
	}
	for i := range 3 {
		install(t, n, JobSpec{Name: fmt.Sprint("j", i), Protocol: ProtocolNative, Workers: 1024, Elements: 4, Slots: 2})
		if st, _ := n.Job(fmt.Sprint("j", i)); st.Native.ID != uint16(i+1) {
			t.Errorf("number %d", st.Native.ID)
		}
	}
	if err := n.InstallJob(JobSpec{Name: "k", Protocol: ProtocolNative, Workers: 1, Elements: 1, Native: &NativeSpec{ID: 2}}); !errors.Is(err, ErrJobExists) {
		t.Errorf("the same number twice: %v", err)
	}
}

// FuzzNative gives a NIC any message to a running native job.
func FuzzNative(f *testing.F) {
	mem := NewMemPort("m")
	n, err := New(testConfig(), mem)
	if err != nil {
		f.Fatal(err)
	}
	n.newEpoch = func() uint32 { return 1 + uint32(len(n.jobs)) }
	epoch := uint32(0)
	n.newEpoch = func() uint32 { epoch++; return epoch }
	if err := n.InstallJob(JobSpec{Name: "j", Protocol: ProtocolNative, Workers: 2, Elements: 4, Slots: 4, Native: &NativeSpec{Deadline: time.Second}}); err != nil {
		f.Fatal(err)
	}
	// A second job has codecs, with results longer than contributions.
	if err := n.InstallJob(JobSpec{Name: "k", Protocol: ProtocolNative, Workers: 2, Elements: 40, Slots: 4, Native: &NativeSpec{
		Type: aggregation.Float32, Codec: "topk=2", Result: "bfp16", Deadline: time.Second,
	}}); err != nil {
		f.Fatal(err)
	}
	if err := n.openAll(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { n.closeAll() })
	l := n.lanes[0]
	w := &nativeWorker{rank: 0, port: mem}
	f.Add(byte(0), []byte(w.contribution(0, 0, le32(1, 2, 3, 4))[42:]))
	f.Add(byte(1), []byte(w.frame(native.Header{Kind: native.Report}, []byte{0, 0, 0, 0, 0, 0, 0, 1})[42:]))
	f.Add(byte(1), []byte(w.frame(native.Header{Kind: native.Report, Epoch: 1}, []byte{0, 0, 0, 1, 0, 0, 0, 1, 2})[42:]))
	f.Add(byte(0), []byte(w.frame(native.Header{Kind: native.Supply}, le32(1, 2, 3, 4))[42:]))
	f.Add(byte(0), []byte(w.frame(native.Header{Kind: native.Leave}, le32(1))[42:]))
	for rank := range byte(2) { // without values, either way
		f.Add(rank, []byte(w.frame(native.Header{Kind: native.Contribution, Flags: native.FlagNoValues}, nil)[42:]))
		f.Add(rank, []byte(w.frame(native.Header{Kind: native.Report, Flags: native.FlagNoValues, Slot: 1}, []byte{0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 1})[42:]))
	}
	topk := &nativeWorker{rank: 0, port: mem, typ: native.Float32}
	values := append(le32(2, 3, 5), le32(0x3f800000, -0x40800000)...) // 1 and -1
	frame := topk.contribution(0, 0, values)
	frame[45] = 11
	f.Add(byte(2), frame[42:])
	f.Add(byte(3), []byte(topk.frame(native.Header{Kind: native.Report}, []byte{0, 0, 0, 0, 0, 0, 0, 1})[42:]))
	buf := make([]byte, 4096)
	f.Fuzz(func(t *testing.T, rank byte, b []byte) {
		if len(b) > 1400 {
			return
		}
		w := nativeWorker{t: t, rank: int(rank % 2), port: mem}
		frame := w.frame(native.Header{}, b) // its header is overwritten
		frame = append(frame[:inet.PayloadOffset], b...)
		binary.BigEndian.PutUint16(frame[16:], uint16(len(frame)-14))
		binary.BigEndian.PutUint16(frame[38:], uint16(len(frame)-34))
		if len(b) > 7 {
			frame[49] %= 3
			frame[48], frame[46], frame[47] = 0, 0, 1+rank>>1&1
		}
		if len(b) > 11 {
			copy(frame[50:54], []byte{0, 0, 0, byte(l.natives[1+rank>>1&1].native.epoch) - frame[53]%2}) // often the right one
		}
		mustSend(t, mem, frame)
		for l.round() {
		}
		l.publish()
		s := n.Snapshot()
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		for range s.Frames.Transmit {
			if _, err := mem.Recv(buf, time.Now().Add(-1)); err != nil {
				break
			}
		}
	})
}
