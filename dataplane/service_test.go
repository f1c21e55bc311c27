package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/inet"
	"gradnic/xdp"
)

const servicePort = 7000

// echoService answers each frame twice: a copy with a mark, then the frame itself, both to the sender; a payload that
// begins with drop or take gets that verdict.
type echoService struct {
	ticks, frames int
	next          func(now int64) int64
	ticked        chan int64
}

func (e *echoService) Receive(x *Exchange, in []Arrival) {
	for k := range in {
		e.frames++
		f := in[k].Bytes
		if len(f) < 43 {
			x.Drop(k, reasonInet+Reason(inet.Short))
			continue
		}
		switch payload := f[42:]; {
		case bytes.HasPrefix(payload, []byte("drop")):
			x.Drop(k, NotForUs)
		case bytes.HasPrefix(payload, []byte("take")):
			// no verdict: consumed
		default:
			if out, ok := x.Emit(in[k].Port, len(f)); ok {
				copy(out, f)
				copy(out[0:6], f[6:12])
				copy(out[6:12], f[0:6])
				out[42] ^= 0xff
			}
			var dst [6]byte
			copy(dst[:], f)
			copy(f[0:6], f[6:12])
			copy(f[6:12], dst[:])
			x.Send(k, in[k].Port, len(f))
		}
	}
}

func (e *echoService) Tick(x *Exchange) int64 {
	e.ticks++
	if e.ticked != nil {
		select {
		case e.ticked <- x.Now():
		default:
		}
	}
	if e.next == nil {
		return 0
	}
	return e.next(x.Now())
}

// toService is a frame to the service's UDP port.
func toService(size int, number uint32, flow uint16) []byte {
	f := udpFrame(size, number)
	binary.BigEndian.PutUint16(f[34:], flow)
	binary.BigEndian.PutUint16(f[36:], servicePort)
	return f
}

func addService(t testing.TB, n *NIC, s ServiceSpec) *ServiceHandle {
	t.Helper()
	h, err := n.AddService(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestService: frames to a service's UDP port, or of its port, reach it whatever lane they come in by, in order, and are
// all accounted for; sizes that fit a chunk and those that do not.
func TestService(t *testing.T) {
	for _, whole := range []bool{false, true} {
		for _, lanes := range []int{1, 3} {
			for _, jumbo := range []bool{false, true} {
				t.Run(fmt.Sprintf("whole=%v/lanes=%d/jumbo=%v", whole, lanes, jumbo), func(t *testing.T) {
					cfg := testConfig()
					sizes := []int{60, 298, 1514}
					if jumbo {
						cfg = jumboConfig(2048, lanes)
						sizes = append(sizes, 2049, 4138, 9014)
					}
					cfg.Lanes = lanes
					n, mem := memNIC(t, cfg, 1)
					e := &echoService{}
					spec := ServiceSpec{Name: "echo", Lane: lanes - 1, Service: e, UDP: []uint16{servicePort}}
					if whole {
						spec.UDP, spec.Ports = nil, []string{mem[0].name}
					}
					h := addService(t, n, spec)
					sent := 0
					for flow := range uint16(5) {
						for i, size := range sizes {
							f := toService(size, uint32(i), flow)
							mustSend(t, mem[0], f)
							sent++
							marked := swapped(f)
							marked[42] ^= 0xff
							if got := recv(t, mem[0]); !bytes.Equal(got, marked) {
								t.Fatalf("flow %d, %d bytes: the copy is not right: %d bytes", flow, size, len(got))
							}
							if got := recv(t, mem[0]); !bytes.Equal(got, swapped(f)) {
								t.Fatalf("flow %d, %d bytes: the frame is not right: %d bytes", flow, size, len(got))
							}
						}
					}
					for _, what := range []string{"drop", "take"} {
						f := toService(100, 1, 9)
						copy(f[42:], what)
						mustSend(t, mem[0], f)
						sent++
					}
					waitReceived(t, n, uint64(sent))
					s := check(t, n)
					silent(t, mem[0])
					if s.Total.Drops["not-for-us"] != 1 || s.Total.Passed != uint64(sent-1) || s.Total.Replicas != uint64(sent-2) {
						t.Fatalf("verdicts: %+v", s.Total)
					}
					var frames, ticks int
					h.Run(func() { frames, ticks = e.frames, e.ticks })
					if frames != sent || ticks == 0 {
						t.Fatalf("%d frames of %d reached the service, %d ticks", frames, sent, ticks)
					}
					if err := h.Close(); err != nil {
						t.Fatal(err)
					}
					mustSend(t, mem[0], toService(100, 1, 9))
					s = waitReceived(t, n, uint64(sent+1))
					if s.Total.Drops["unknown-port"] != 1 {
						t.Fatalf("after the service was taken out: %v", s.Total.Drops)
					}
					if err := h.Close(); err != nil {
						t.Fatalf("second close: %v", err)
					}
				})
			}
		}
	}
}

// TestServiceTime: a service is called when it has asked to be, when it is woken, and not otherwise; a lane between
// sleeps.
func TestServiceTime(t *testing.T) {
	n, _ := memNIC(t, testConfig(), 1)
	e := &echoService{ticked: make(chan int64, 64)}
	const step = 5 * time.Millisecond
	left := 4
	e.next = func(now int64) int64 {
		if left--; left < 0 {
			return 0
		}
		return now + int64(step)
	}
	h := addService(t, n, ServiceSpec{Name: "timer", UDP: []uint16{servicePort}, Service: e})
	var last int64
	for i := range 5 {
		select {
		case now := <-e.ticked:
			if d := now - last; i > 0 && d < int64(step) {
				t.Errorf("tick %d came after %v", i, time.Duration(d))
			}
			last = now
		case <-time.After(5 * time.Second):
			t.Fatalf("tick %d did not come", i)
		}
	}
	select {
	case <-e.ticked:
		t.Fatal("a tick that nobody asked for")
	case <-time.After(4 * step):
	}
	h.Wake()
	select {
	case <-e.ticked:
	case <-time.After(5 * time.Second):
		t.Fatal("woken, and no tick")
	}
}

func TestServiceRefused(t *testing.T) {
	n, err := New(testConfig(), NewMemPort("m"), XDPPort{Interface: "x"})
	if err != nil {
		t.Fatal(err)
	}
	e := &echoService{}
	addService(t, n, ServiceSpec{Name: "first", UDP: []uint16{servicePort}, Ports: []string{"m"}, Service: e})
	for want, s := range map[string]ServiceSpec{
		"nothing to run":        {UDP: []uint16{1}},
		"legal are 0 to 0":      {UDP: []uint16{1}, Lane: 1, Service: e},
		"neither ports nor UDP": {Service: e},
		"another protocol's":    {UDP: []uint16{48864}, Service: e},
		`service "first" has`:   {UDP: []uint16{servicePort}, Service: e},
		"no port nope":          {Ports: []string{"nope"}, Service: e},
		"not opened as a whole": {Ports: []string{"x"}, Service: e},
		`m: service "first"`:    {Ports: []string{"m"}, Service: e},
	} {
		if _, err := n.AddService(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if err := n.SetFunction("m", Function{Kind: Sink}); err == nil || !strings.Contains(err.Error(), "first") {
		t.Errorf("the function of a service's port was set: %v", err)
	}
	if _, err := ParseFunctionKind("serve"); err == nil {
		t.Error("serve is not for users to set")
	}
}

// TestServiceOverVeth: the steering program brings a service's UDP port to it, also when it is added while the NIC runs,
// and a whole port's frames; frames longer than a chunk leave and arrive.
func TestServiceOverVeth(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole=%v", whole), func(t *testing.T) {
			lab := netlabtest.New(t, "serve")
			nic, peer := netlabtest.Namespace(t, lab, "nic"), netlabtest.Namespace(t, lab, "peer")
			netlabtest.Veth(t, lab, netlab.End{NS: nic, Name: "p0", MTU: 9000}, netlab.End{NS: peer, Name: "w", MTU: 9000})
			n := startNIC(t, testConfig(), XDPPort{Interface: "p0", Namespace: nic.Do, Mode: xdp.Native, WholePort: whole})
			needNative(t, n)
			w := openRaw(t, peer, "w")
			e := &echoService{}
			spec := ServiceSpec{Name: "echo", UDP: []uint16{servicePort}, Service: e}
			if whole {
				spec.UDP, spec.Ports = nil, []string{"p0"}
			}
			addService(t, n, spec)
			buf := make([]byte, 10000)
			for _, size := range []int{60, 1514, 4138, 9014} {
				f := toService(size, 7, 4000)
				if err := w.Send(f); err != nil {
					t.Fatal(err)
				}
				marked := swapped(f)
				marked[42] ^= 0xff
				for _, want := range [][]byte{marked, swapped(f)} {
					for {
						k, err := w.Recv(buf, time.Now().Add(5*time.Second))
						if err != nil {
							t.Fatalf("%d bytes: %v", size, err)
						}
						if whole && !slices.Equal(buf[26:34], want[26:34]) {
							continue // what the kernel has to say on a port of its own
						}
						if !bytes.Equal(buf[:k], want) {
							t.Fatalf("%d bytes: %d others came", size, k)
						}
						break
					}
				}
			}
		})
	}
}
