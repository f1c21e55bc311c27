package dataplane

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"gradnic/aggregation"
	"gradnic/wire/inet"
	"gradnic/wire/native"
)

// nativeWorker is one end of a native conversation, by hand.
type nativeWorker struct {
	t     testing.TB
	port  *MemPort
	rank  int
	epoch uint32
	life  uint32
	typ   native.Type
}

func (w *nativeWorker) end() native.Endpoint {
	return native.Endpoint{MAC: workerMAC(w.rank), IP: workerIP(w.rank), Port: uint16(4000 + w.rank)}
}

func (w *nativeWorker) frame(h native.Header, payload []byte) []byte {
	from, to := w.end(), native.Endpoint{MAC: nicMAC, IP: nicIP, Port: native.Port}
	h.Job, h.Rank, h.Type = 1, uint16(w.rank), w.typ
	f := make([]byte, native.FrameLen(len(payload)))
	copy(f[native.ValuesOffset:], payload)
	native.PutFrame(f, &from, &to, &h, len(payload))
	return f
}

func (w *nativeWorker) report(low uint64, slots int) {
	w.t.Helper()
	b := make([]byte, native.ReportLen)
	(&native.ReportBody{Life: w.life, Nonce: uint32(100 + w.rank)}).Put(b)
	mustSend(w.t, w.port, w.frame(native.Header{Kind: native.Report, Epoch: w.epoch, Round: uint32(low) / uint32(slots), Slot: uint32(low) % uint32(slots)}, b))
}

func (w *nativeWorker) contribution(slot, round uint32, values []byte) []byte {
	return w.frame(native.Header{Kind: native.Contribution, Epoch: w.epoch, Slot: slot, Round: round, Elements: 4}, values)
}

func (w *nativeWorker) recv() native.View {
	w.t.Helper()
	f := recv(w.t, w.port)
	var p inet.Packet
	if x := inet.Parse(f, &p); x != inet.OK {
		w.t.Fatalf("rank %d: %v", w.rank, x)
	}
	v, x := native.Validate(p.Payload)
	if x != native.OK {
		w.t.Fatalf("rank %d: %v", w.rank, x)
	}
	return bytes.Clone(v)
}

func (w *nativeWorker) notice(code native.Code) native.NoticeBody {
	w.t.Helper()
	v := w.recv()
	n, ok := native.ParseNotice(v.Payload())
	if v.Kind() != native.Notice || !ok || n.Code != code {
		w.t.Fatalf("rank %d got %v %v, want notice %v", w.rank, v.Kind(), n.Code, code)
	}
	w.epoch = v.Epoch()
	if code == native.Ready {
		w.life = n.Life
	}
	return n
}

func (w *nativeWorker) result(values []byte, flags native.Flags) native.View {
	w.t.Helper()
	v := w.recv()
	if v.Kind() != native.Result || !bytes.Equal(v.Payload(), values) || v.Flags() != flags || v.Epoch() != w.epoch {
		w.t.Fatalf("rank %d got %v flags %#x %x, want a result flags %#x %x", w.rank, v.Kind(), v.Flags(), v.Payload(), flags, values)
	}
	return v
}

func le32(v ...int32) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return b
}

// nativeJob starts a NIC with a native job of int32, 4 elements a packet, and brings its workers together.
func nativeJob(t testing.TB, cfg Config, s JobSpec) (*NIC, []*nativeWorker) {
	t.Helper()
	n, mem := memNIC(t, cfg, s.Workers)
	s.Name, s.Protocol = "j", ProtocolNative
	if s.Elements == 0 {
		s.Elements = 4
	}
	install(t, n, s)
	ws := make([]*nativeWorker, s.Workers)
	for r := range ws {
		ws[r] = &nativeWorker{t: t, port: mem[r], rank: r}
		if s.Native != nil {
			ws[r].typ = native.Type(s.Native.Type)
		}
	}
	together(ws, s.Slots)
	return n, ws
}

func together(ws []*nativeWorker, slots int) {
	for r, w := range ws {
		w.report(0, slots)
		if r < len(ws)-1 {
			w.notice(native.Waiting)
		}
	}
	for _, w := range ws {
		w.notice(native.Ready)
	}
}

// The conversations of docs/protocol.md, byte for byte.
func TestNativeVectors(t *testing.T) {
	play(t, "vectors.json", JobSpec{Elements: 4, Native: &NativeSpec{}})
	play(t, "codec.json", JobSpec{Elements: 16, Native: &NativeSpec{Type: aggregation.Float32, Codec: "topk=2", Result: "bfp16"}})
}

func play(t *testing.T, file string, job JobSpec) {
	t.Helper()
	b, err := os.ReadFile("../testdata/native/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name, From, Frame string
		Rank              int
	}
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	var n *NIC
	var mem []*MemPort
	next := func(epoch uint32) {
		mem = []*MemPort{NewMemPort("a"), NewMemPort("b")}
		n, err = New(testConfig(), mem[0], mem[1])
		if err != nil {
			t.Fatal(err)
		}
		n.newEpoch = func() uint32 { return epoch }
		job.Name, job.Protocol, job.Workers, job.Slots, job.Native.Deadline = "j", ProtocolNative, 2, 8, 2*time.Second
		install(t, n, job)
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Stop(t.Context()) })
	}
	next(0x11111111)
	sent := 0
	for _, v := range vectors {
		frame, err := hex.DecodeString(v.Frame)
		if err != nil {
			t.Fatal(err)
		}
		if v.Name == "after the network was started again, rank 1 sends again" {
			check(t, n)
			n.Stop(t.Context())
			next(0x22222222)
		}
		if v.From == "worker" {
			mustSend(t, mem[v.Rank], frame)
			sent++
			continue
		}
		if got := recv(t, mem[v.Rank]); !bytes.Equal(got, frame) {
			t.Fatalf("%s:\n got %x\nwant %x", v.Name, got, frame)
		}
	}
	if sent == 0 {
		t.Fatal("no vectors")
	}
	silent(t, mem...)
	check(t, n)
}

// Case 1 of the numbers: a duplicate counts once, a late resend gets the stored result, a packet of an older round
// does not touch a newer one, and one of a later round comes too early.
func TestNativeRounds(t *testing.T) {
	n, ws := nativeJob(t, testConfig(), JobSpec{Workers: 4, Slots: 8})
	one := func(r int, round uint32) []byte {
		return ws[r].contribution(7, round, le32(int32(r), 1, -1, int32(round)))
	}
	send := func(r int, round uint32) { mustSend(t, ws[r].port, one(r, round)) }
	base := check(t, n).Total
	send(0, 0)
	send(0, 0)
	for r := 1; r < 4; r++ {
		waitReceived(t, n, base.Received+uint64(r+1))
		send(r, 0)
	}
	want := le32(6, 4, -4, 0)
	for _, w := range ws {
		if v := w.result(want, 0); v.Rank() != 4 || v.Slot() != 7 || v.Round() != 0 {
			t.Errorf("result of %d contributions for slot %d round %d", v.Rank(), v.Slot(), v.Round())
		}
	}
	send(1, 0)
	ws[1].result(want, native.FlagResend)
	for round := uint32(1); round < 4; round++ {
		for r := range ws {
			send(r, round)
		}
		for _, w := range ws {
			w.result(le32(6, 4, -4, 4*int32(round)), 0)
		}
	}
	send(2, 1) // its result is gone
	send(2, 5) // nobody can be there
	s := waitReceived(t, n, base.Received+5+1+12+2)
	if s.Total.Drops["stale-round"] != 1 || s.Total.Drops["early-round"] != 1 {
		t.Errorf("drops %v", s.Total.Drops)
	}
	if d := s.Total.Duplicates; d != 2 {
		t.Errorf("%d duplicates", d)
	}
	send(2, 3)
	ws[2].result(le32(6, 4, -4, 12), native.FlagResend)
	for _, w := range ws {
		silent(t, w.port)
	}
	check(t, n)
	st, err := n.Job("j")
	if err != nil || st.State.State != "ready" || st.State.Epoch != ws[0].epoch || st.Results != 4 || st.Resent != 2 {
		t.Errorf("status %+v %v", st, err)
	}
}

// Every type is summed over lanes, with learned and with given stations.
func TestNativeTypesAndLanes(t *testing.T) {
	for _, lanes := range []int{1, 3} {
		for typ := aggregation.Int32; typ < aggregation.BFP16; typ++ {
			t.Run(fmt.Sprintf("%d lanes %v", lanes, typ), func(t *testing.T) {
				cfg := testConfig()
				cfg.Lanes = lanes
				s := JobSpec{Workers: 3, Slots: 7, Native: &NativeSpec{Type: typ, Order: aggregation.Ranked}}
				if lanes == 3 {
					s.Members = members(3, true)
				}
				n, ws := nativeJob(t, cfg, s)
				spec := n.poolSpec(&JobSpec{Workers: 3, Slots: 7, Elements: 4, Native: s.Native})
				in := make([][]byte, 3)
				for r := range in {
					in[r] = bytes.Repeat([]byte{byte(0x11 * (r + 1)), 0x30}, 16)[:spec.WireBytes()]
				}
				want := make([]byte, spec.WireBytes())
				if _, err := aggregation.Reference(spec, in, want); err != nil {
					t.Fatal(err)
				}
				for slot := range uint32(7) {
					for r := range ws { // another lane may not know yet that all are there
						ws[r].until(func(v native.View) bool {
							return r < 2 || v.Kind() == native.Result
						}, ws[r].contribution(slot, 0, in[r]), r < 2)
					}
					for _, w := range ws[:2] {
						w.until(func(v native.View) bool { return v.Kind() == native.Result && bytes.Equal(v.Payload(), want) }, nil, false)
					}
				}
				check(t, n)
			})
		}
	}
}

// until sends a frame and takes frames until ok says so; after a notice the frame is sent again.
func (w *nativeWorker) until(ok func(native.View) bool, frame []byte, quiet bool) {
	w.t.Helper()
	buf := make([]byte, 4096)
	if frame != nil {
		mustSend(w.t, w.port, frame)
	}
	for range 200 {
		wait := time.Second
		if quiet {
			wait = 5 * time.Millisecond
		}
		k, err := w.port.Recv(buf, time.Now().Add(wait))
		if err != nil {
			if quiet && errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
			w.t.Fatalf("rank %d: %v", w.rank, err)
		}
		v, f := native.Validate(buf[inet.PayloadOffset:k])
		if f != native.OK {
			w.t.Fatal(f)
		}
		if v.Kind() == native.Notice && frame != nil {
			mustSend(w.t, w.port, frame)
			continue
		}
		if ok(v) {
			return
		}
	}
	w.t.Fatalf("rank %d does not get there", w.rank)
}

// One multicast frame a port, asked for again alone.
func TestNativeMulticast(t *testing.T) {
	group := inet.Addr{239, 1, 2, 3}
	n, mem := memNIC(t, testConfig(), 2)
	install(t, n, JobSpec{Name: "j", Protocol: ProtocolNative, Workers: 4, Elements: 4, Slots: 4, Multicast: &MulticastSpec{IP: group}})
	var ws []*nativeWorker
	for r := range 4 {
		ws = append(ws, &nativeWorker{t: t, port: mem[r/2], rank: r})
	}
	for r, w := range ws {
		w.report(0, 4)
		if r < 3 {
			w.notice(native.Waiting)
		}
	}
	for _, w := range ws {
		if b := w.notice(native.Ready); b.Group != group || b.GroupPort != native.Port {
			t.Errorf("group %v port %d", b.Group, b.GroupPort)
		}
	}
	before := check(t, n).Total
	for _, w := range ws {
		w.epoch = ws[0].epoch
		mustSend(t, w.port, w.contribution(1, 0, le32(1, 2, 3, 4)))
	}
	for _, m := range mem {
		f := recv(t, m)
		var p inet.Packet
		inet.Parse(f, &p)
		if p.Dst != native.GroupMAC(group) || p.DstIP != group || p.DstPort != native.Port || p.TTL != 1 || inet.Checksum(f[14:34]) != 0 {
			t.Errorf("result to %v %v port %d, TTL %d", p.Dst, p.DstIP, p.DstPort, p.TTL)
		}
		if v, f := native.Validate(p.Payload); f != native.OK || !bytes.Equal(v.Payload(), le32(4, 8, 12, 16)) {
			t.Errorf("result %x %v", v, f)
		}
	}
	silent(t, mem...)
	if s := check(t, n).Total; s.Replicas-before.Replicas != 2 {
		t.Errorf("%d copies of one result for two ports", s.Replicas-before.Replicas)
	}
	mustSend(t, mem[1], ws[3].contribution(1, 0, le32(1, 2, 3, 4)))
	f := recv(t, mem[1])
	if inet.MAC(f[:6]) != workerMAC(3) {
		t.Errorf("asked alone, answered to %x", f[:6])
	}
	check(t, n)
}

// A worker that dies is named within the deadline, and the slots come back.
func TestNativeDeadline(t *testing.T) {
	n, ws := nativeJob(t, testConfig(), JobSpec{Workers: 3, Slots: 4, Native: &NativeSpec{Deadline: 150 * time.Millisecond}})
	start := time.Now()
	for _, w := range ws[:2] {
		mustSend(t, w.port, w.contribution(0, 0, le32(1, 2, 3, 4)))
	}
	named := false
	for !named {
		if time.Since(start) > 5*time.Second {
			t.Fatal("nobody is told")
		}
		time.Sleep(20 * time.Millisecond)
		mustSend(t, ws[0].port, ws[0].contribution(0, 0, le32(1, 2, 3, 4)))
		buf := make([]byte, 2048)
		k, err := ws[0].port.Recv(buf, time.Now().Add(10*time.Millisecond))
		if err != nil {
			continue
		}
		v, _ := native.Validate(buf[inet.PayloadOffset:k])
		b, ok := native.ParseNotice(v.Payload())
		if !ok || len(native.Bits(b.Ranks, 3)) != 1 || native.Bits(b.Ranks, 3)[0] != 2 {
			t.Fatalf("notice %+v", b)
		}
		named = b.Code == native.Aborted
		if !named && b.Code != native.Collecting {
			t.Fatalf("code %v", b.Code)
		}
	}
	if took := time.Since(start); took < 150*time.Millisecond {
		t.Errorf("aborted after %v", took)
	}
	if b := ws[1].notice(native.Aborted); native.Bits(b.Ranks, 3)[0] != 2 {
		t.Errorf("rank 1 is told of %v", native.Bits(b.Ranks, 3))
	}
	st, _ := n.Job("j")
	if st.Use.InUse != 0 || st.State.State != "aborted" {
		t.Errorf("slots in use %+v, state %+v", st.Use, st.State)
	}
	check(t, n)
	// It starts again with new workers.
	time.Sleep(time.Millisecond)
	for _, w := range ws {
		drainPort(w.port)
		w.life, w.epoch = 0, 0
	}
	for _, w := range ws {
		w.report(0, 4)
	}
	for _, w := range ws {
		w.until(func(v native.View) bool {
			b, ok := native.ParseNotice(v.Payload())
			w.epoch = v.Epoch()
			return ok && b.Code == native.Ready
		}, nil, false)
	}
	for _, w := range ws {
		mustSend(t, w.port, w.contribution(0, 0, le32(1, 1, 1, 1)))
	}
	for _, w := range ws {
		w.result(le32(3, 3, 3, 3), 0)
	}
	check(t, n)
}

func drainPort(p *MemPort) {
	buf := make([]byte, 4096)
	for {
		if _, err := p.Recv(buf, time.Now().Add(2*time.Millisecond)); err != nil {
			return
		}
	}
}

// A copy of a result that is lost on purpose, and whose chunk is free again at once, does not touch the others.
func TestNativeLostCopies(t *testing.T) {
	for lost := range 4 {
		n, ws := nativeJob(t, testConfig(), JobSpec{Workers: 4, Slots: 4, Elements: 256})
		if err := n.Impair(fmt.Sprint("m", lost), Impairment{EgressLoss: 1}); err != nil {
			t.Fatal(err)
		}
		in := make([]int32, 256)
		for i := range in {
			in[i] = int32(i * 7919)
		}
		values := le32(in...)
		for i := range in {
			in[i] *= 4
		}
		for _, w := range ws {
			f := w.contribution(0, 0, values)
			mustSend(t, w.port, f)
		}
		for r, w := range ws {
			if r != lost {
				w.result(le32(in...), 0)
			}
		}
		check(t, n)
	}
}
