package xdp

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	goleak.VerifyTestMain(m)
}

var (
	nicMAC = [6]byte{0x02, 0x6e, 0x69, 0x63, 0, 1}
	nicIP  = [4]byte{10, 50, 0, 1}
)

// rig is a veth pair between two namespaces: nic, where the steering program and the
// sockets under test are, and peer.
type rig struct {
	t         testing.TB
	lab       *netlab.Lab
	nic, peer *netlab.NS
	nicIf     int
	peerIf    int
}

func newRig(t testing.TB, queues, mtu int) *rig {
	t.Helper()
	lab := netlabtest.New(t, "xdp")
	r := &rig{t: t, lab: lab, nic: netlabtest.Namespace(t, lab, "nic"), peer: netlabtest.Namespace(t, lab, "peer")}
	netlabtest.Veth(t, lab,
		netlab.End{NS: r.nic, Name: "port", MTU: mtu, Queues: queues},
		netlab.End{NS: r.peer, Name: "wire", MTU: mtu, Queues: queues})
	var err error
	if r.nicIf, _, err = r.nic.Interface("port"); err != nil {
		t.Fatal(err)
	}
	if r.peerIf, _, err = r.peer.Interface("wire"); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) umem(o UMEMOptions) *UMEM {
	r.t.Helper()
	u, err := NewUMEM(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := u.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return u
}

// open opens a socket in ns and closes it when the test ends.
func (r *rig) open(ns *netlab.NS, u *UMEM, o SocketOptions) *Socket {
	r.t.Helper()
	s, err := openIn(ns, u, o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return s
}

func openIn(ns *netlab.NS, u *UMEM, o SocketOptions) (s *Socket, err error) {
	err = ns.Do(func() error {
		s, err = u.Open(o)
		return err
	})
	return s, err
}

// attach attaches to an interface of ns and detaches when the test ends.
func (r *rig) attach(ns *netlab.NS, o AttachOptions) *Steering {
	r.t.Helper()
	st, err := attachIn(ns, o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := st.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return st
}

func attachIn(ns *netlab.NS, o AttachOptions) (st *Steering, err error) {
	err = ns.Do(func() error {
		st, err = Attach(o)
		return err
	})
	return st, err
}

// receiver opens queue 0 of the NIC's end, takes all its frames, and fills n chunks
// from first on.
func (r *rig) receiver(u *UMEM, o SocketOptions, first, n int) (*Socket, *Steering) {
	r.t.Helper()
	o.IfIndex = r.nicIf
	s := r.open(r.nic, u, o)
	st := r.attach(r.nic, AttachOptions{IfIndex: r.nicIf, MultiBuffer: o.MultiBuffer})
	if err := errors.Join(st.SetWholePort(true), st.Bind(o.Queue, s)); err != nil {
		r.t.Fatal(err)
	}
	if got := s.Fill(chunkRange(u, first, n)); got != n {
		r.t.Fatalf("fill took %d of %d", got, n)
	}
	return s, st
}

// chunkRange gives the addresses of n chunks from first on.
func chunkRange(u *UMEM, first, n int) []uint64 {
	a := make([]uint64, n)
	for i := range a {
		a[i] = uint64(first+i) * uint64(u.ChunkSize())
	}
	return a
}

// numbered writes a UDP frame to the NIC that carries a number into a chunk.
func numbered(u *UMEM, chunk uint64, number uint32, size int) Desc {
	d := Desc{Addr: chunk, Len: uint32(size)}
	f := u.Frame(d)
	copy(f, udpFrame(0xbee0, size-42))
	binary.BigEndian.PutUint32(f[42:], number)
	return d
}

func number(f []byte) uint32 { return binary.BigEndian.Uint32(f[42:]) }

// udpFrame is an untagged frame to the NIC's address.
func udpFrame(port uint16, payload int) []byte {
	f := make([]byte, 42+payload)
	copy(f, nicMAC[:])
	copy(f[6:], []byte{2, 0, 0, 0, 0, 9})
	binary.BigEndian.PutUint16(f[12:], 0x0800)
	f[14] = 0x45
	binary.BigEndian.PutUint16(f[16:], uint16(28+payload))
	f[22], f[23] = 64, 17
	copy(f[26:], []byte{10, 50, 0, 9})
	copy(f[30:], nicIP[:])
	binary.BigEndian.PutUint16(f[34:], 4000)
	binary.BigEndian.PutUint16(f[36:], port)
	binary.BigEndian.PutUint16(f[38:], uint16(8+payload))
	return f
}

// drain receives for at most d, until done says so, and gives the chunks back.
func drain(t testing.TB, s *Socket, d time.Duration, each func(Desc), done func() bool) bool {
	t.Helper()
	var batch [64]Desc
	var back []Desc
	until := time.Now().Add(d)
	for !done() {
		n := s.Receive(batch[:])
		for _, x := range batch[:n] {
			each(x)
		}
		back = append(back, batch[:n]...)
		back = back[:copy(back, back[s.FillDescs(back):])]
		if n != 0 {
			continue
		}
		if time.Now().After(until) {
			return false
		}
		if _, err := s.Wait(time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	for len(back) > 0 && time.Now().Before(until) {
		back = back[:copy(back, back[s.FillDescs(back):])]
	}
	if len(back) > 0 {
		t.Fatalf("the fill ring has no room for %d chunks", len(back))
	}
	return true
}

// reap completes until nothing that was posted is outstanding.
func reap(t testing.TB, s *Socket, d time.Duration, each func(uint64)) {
	t.Helper()
	var batch [64]uint64
	for until := time.Now().Add(d); s.Completed() != s.TxPosted(); {
		n := s.Complete(batch[:])
		for _, a := range batch[:n] {
			each(a)
		}
		if n == 0 {
			if err := s.Kick(); err != nil {
				t.Fatal(err)
			}
			if time.Now().After(until) {
				t.Fatalf("%d of %d completions missing after %v", s.TxPosted()-s.Completed(), s.TxPosted(), d)
			}
		}
	}
}
