package collective

import (
	"context"
	"encoding/json"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gradnic/dataplane"
	"gradnic/internal/netlab/netlabtest"
)

func TestTableOptionsRefused(t *testing.T) {
	for _, tt := range []struct {
		o    TableOptions
		want string
	}{
		{TableOptions{Workers: 33}, "33 workers"}, {TableOptions{From: 6, To: 8}, "multiples of 4"}, {TableOptions{From: 64, To: 8}, "multiples of 4"},
		{TableOptions{Factor: 1}, "factor 1"}, {TableOptions{Rounds: -1}, "rounds"}, {TableOptions{Transports: []string{"tcp"}}, `transport "tcp"`},
		{TableOptions{Transports: []string{"native+zip"}}, "native+zip"}, {TableOptions{Loss: 1}, "legal are 0 to below 1"}, {TableOptions{Loss: math.NaN()}, "legal are"},
		{TableOptions{Loss: 0.1, Transports: []string{"native", "udp-ps"}}, "udp-ps goes past the NIC"},
	} {
		if _, err := Compare(t.Context(), tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
}

func TestWay(t *testing.T) {
	seconds := make([]float64, 100)
	for i := range seconds {
		seconds[i] = float64(i+1) / 1000
	}
	w := newWay(1e6, 4, seconds, 3)
	if w.Time != 50500*time.Microsecond || w.P50 != 50*time.Millisecond || w.P99 != 99*time.Millisecond || w.Wrong != 3 || w.Rounds != 100 {
		t.Errorf("%+v", w)
	}
	if bus := w.AlgBW * 1.5; w.BusBW != bus || w.AlgBW < 0.0197 || w.AlgBW > 0.0199 {
		t.Errorf("algbw %v, busbw %v", w.AlgBW, w.BusBW)
	}
	if w := newWay(1e6, 4, seconds[:99], 0); w.P99 != 0 {
		t.Errorf("p99 %v of 99 rounds", w.P99)
	}
}

// What is wrong is counted: one element at one rank.
func TestWrongIsCounted(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		_, wrong, err := reduceAll(3, 100, inPlace, 0.1, func(rank int, dst, src []float32) (time.Duration, error) {
			if inPlace != (&dst[0] == &src[0]) {
				t.Error("in place, or not")
			}
			for i := range dst {
				dst[i] = 6 * float32(1-2*(i&1))
			}
			dst[7] *= 1.05 // within the tolerance
			if rank == 1 {
				dst[50] = 0
			}
			return time.Second, nil
		})
		if err != nil || wrong != 1 {
			t.Errorf("%d wrong, %v", wrong, err)
		}
	}
}

// The parameter server sums right, also when datagrams are lost on the way back and forth.
func TestParameterServerWithLoss(t *testing.T) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(conn, 3)
	var clients []*client
	for i := range 3 {
		c, err := net.DialUDP("udp4", nil, conn.LocalAddr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		// A small buffer loses datagrams of a burst.
		if err := c.SetReadBuffer(8 << 10); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, newClient(c, i, 1500))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, n := range []int{1, 365, 366, 100_000} {
		_, wrong, err := reduceAll(3, n, n%2 == 0, exact, func(rank int, dst, src []float32) (time.Duration, error) {
			return 0, clients[rank].allReduce(ctx, dst, src)
		})
		if err != nil || wrong != 0 {
			t.Fatalf("%d elements: %d wrong, %v", n, wrong, err)
		}
	}
	for _, c := range clients {
		c.conn.Close()
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

// With a NIC that loses frames, sums are right too, and frames have been lost.
func TestCompareWithLoss(t *testing.T) {
	netlabtest.NeedRoot(t)
	o := TableOptions{Workers: 2, From: 64 * kib, To: 64 * kib, Rounds: 2, Loss: 0.05}
	table, err := Compare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if table.Loss != o.Loss || len(table.Rows) != 3 {
		t.Fatalf("%+v", table)
	}
	for _, r := range table.Rows {
		if r.Out.Wrong != 0 || r.In.Wrong != 0 {
			t.Errorf("%s: %+v, %+v", r.Transport, r.Out, r.In)
		}
	}
	s, err := newStar(1, Link{MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.loss = o.Loss
	k, err := s.startNIC(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, wrong, err := k.reduce(t.Context(), 360*400, false, exact); err != nil || wrong != 0 {
		t.Errorf("%d wrong elements: %v", wrong, err)
	}
	// Of 400 contributions and 400 results, 20 each are to be lost; none of either in 400 is once in 10^9.
	total := k.n.Snapshot().Total
	if total.Drops[dataplane.ImpairedIngress.String()] == 0 || total.ReplicaDrops[dataplane.ImpairedEgress.String()] == 0 {
		t.Errorf("lost: %v, %v", total.Drops, total.ReplicaDrops)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

// Every transport of this machine sums right over links of its own.
func TestCompare(t *testing.T) {
	netlabtest.NeedRoot(t)
	transports := []string{"native", "native+bfp16", "switchml", "udp-ps"}
	if os.Getenv("GRADNIC_TEST_GLOO") != "" {
		transports = Transports()
	}
	table, err := Compare(t.Context(), TableOptions{
		Dir: t.TempDir(), Workers: 2, From: 16 * kib, To: 64 * kib, Rounds: 3, WarmUp: 1, Transports: transports, Command: "test", Log: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := table.Write(&text); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + text.String())
	if want := 2 * (len(transports) - len(table.Notes)); len(table.Rows) != want {
		t.Errorf("%d rows, want %d", len(table.Rows), want)
	}
	for _, r := range table.Rows {
		for name, w := range map[string]*Way{"out of place": r.Out, "in place": r.In} {
			if w == nil && r.Transport == "gloo" && name == "out of place" {
				continue
			}
			if w == nil || w.Wrong != 0 || w.Rounds != 3 || w.Time <= 0 {
				t.Errorf("%s, %d bytes, %s: %+v", r.Transport, r.Bytes, name, w)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "t.json")
	if err := table.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var back Table
	if err := json.Unmarshal(b, &back); err != nil || len(back.Rows) != len(table.Rows) {
		t.Errorf("read back: %v, %d rows", err, len(back.Rows))
	}
	if r := table.Report(); len(r.Rows) != len(table.Rows) || len(r.Plots) != 2 || len(r.Plots[0].Lines) < len(transports)-len(table.Notes) {
		t.Errorf("report of %d rows, %d plots", len(r.Rows), len(r.Plots))
	}
}
