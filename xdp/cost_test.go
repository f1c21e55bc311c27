package xdp

import (
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// minimal is the least program that brings frames to the sockets: one redirect.
func minimal(tb testing.TB, st *Steering) *ebpf.Program {
	tb.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "minimal", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, 16, asm.Word), // rx_queue_index
			asm.LoadMapPtr(asm.R1, st.sockets.FD()),
			asm.Mov.Imm(asm.R3, xdpPass),
			asm.FnRedirectMap.Call(),
			asm.Return(),
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.Close() })
	return p
}

// cost is what each program takes for one run over a frame, the median of interleaved test runs.
func cost(tb testing.TB, frame []byte, repeat int, programs ...*ebpf.Program) []time.Duration {
	tb.Helper()
	runs := make([][]time.Duration, len(programs))
	for range 15 {
		for i, p := range programs {
			_, d, err := p.Benchmark(frame, repeat, nil)
			if err != nil {
				tb.Fatal(err)
			}
			runs[i] = append(runs[i], d)
		}
	}
	out := make([]time.Duration, len(programs))
	for i, r := range runs {
		slices.Sort(r)
		out[i] = r[len(r)/2]
	}
	return out
}

// BenchmarkSteer tells what the steering program takes of a frame that it gives to a socket, beside the least program
// that does.
func BenchmarkSteer(b *testing.B) {
	st := steeringWithSocket(b, false)
	if err := st.SetAddress(nicMAC, nicIP); err != nil {
		b.Fatal(err)
	}
	if err := st.SetPorts(Ports(0xbee0, 0xbeef)); err != nil {
		b.Fatal(err)
	}
	repeat := max(b.N, 200_000)
	c := cost(b, udp(), repeat, minimal(b, st), st.program)
	if err := st.SetBudgets(&Budgets{Named: []Budget{{Name: "a", Rate: MaxRate, Burst: 1 << 20, Sources: [][6]byte{mac(9)}}}}); err != nil {
		b.Fatal(err)
	}
	c = append(c, cost(b, udp(), repeat, st.program)...)
	if s := spent(b, st, "a"); s.Taken == 0 {
		b.Fatal("nothing was charged")
	}
	b.ReportMetric(float64(c[0]), "ns/minimal")
	b.ReportMetric(float64(c[1]), "ns/steer")
	b.ReportMetric(float64(c[2]), "ns/steer+budget")
	b.ReportMetric(0, "ns/op")
}
