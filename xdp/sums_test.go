package xdp

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"gradnic/internal/netlab/netlabtest"
)

// summing is a program that sums up, with a socket that results go to.
func summing(t testing.TB, multi bool) (*Steering, *Sums) {
	t.Helper()
	st := steeringWithSocket(t, multi)
	s := newSums(t, 1024)
	if err := errors.Join(st.SetAddress(nicMAC, nicIP), st.SetPorts(Ports(0xbee0, 0xbeef)), st.SetSums(s)); err != nil {
		t.Fatal(err)
	}
	return st, s
}

func newSums(t testing.TB, slots int) *Sums {
	t.Helper()
	netlabtest.NeedRoot(t)
	s, err := NewSums(SumsOptions{Slots: slots})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// sumFrame is a contribution of a rank, whose addresses are those of installSum's members.
func sumFrame(rank, slot, set int, values []int32) []byte {
	f := udpFrame(0xbee0, 10+4*len(values))
	f[10], f[29] = byte(rank+1), byte(rank+1)
	h := f[42:]
	h[0] = 0x11
	if len(values) == 256 {
		h[0] = 0x13
	}
	binary.BigEndian.PutUint16(h[6:], uint16(set<<15|slot))
	for i, v := range values {
		binary.BigEndian.PutUint32(h[10+4*i:], uint32(v))
	}
	return f
}

func installSum(t testing.TB, s *Sums, j SumJob) SumJobID {
	t.Helper()
	id, err := s.Install(j)
	if err != nil {
		t.Fatal(err)
	}
	for rank := range j.Workers {
		if err := s.SetMember(id, rank, [6]byte{2, 0, 0, 0, byte(rank + 1), 9}, [4]byte{10, 50, 0, byte(rank + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	return id
}

// BenchmarkSum tells what a contribution of 256 values costs.
func BenchmarkSum(b *testing.B) {
	st, s := summing(b, false)
	installSum(b, s, SumJob{Workers: 8, Elements: 256, Slots: 256})
	installed := st.program
	plain, err := loadSteering(false)
	if err != nil {
		b.Fatal(err)
	}
	defer plain.Close()
	frames := [][]byte{sumFrame(0, 1, 0, make([]int32, 256)), sumFrame(1, 1, 0, make([]int32, 256)), sumFrame(2, 1, 0, make([]int32, 256))}
	_ = frames
	// Two workers in turn, in both sets: each is a first contribution.
	c := cost(b, frames[0], max(b.N, 100_000), installed)
	b.ReportMetric(float64(c[0]), "ns/duplicate")
	var _ *ebpf.Program = installed
}
