package peers

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"gradnic/bench/flow"
	"gradnic/bench/gen"
	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/inet"
)

// TestMain lets the test binary be the contestants' process too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "contestant" {
		if err := Main(os.Args[2:], os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString("contestant: " + err.Error() + "\n")
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestTasks(t *testing.T) {
	for i, name := range taskNames {
		got, err := ParseTask(name)
		if err != nil || got != Task(i) || got.String() != name {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
	if _, err := ParseTask("rest"); err == nil || !strings.Contains(err.Error(), "aggregate64") {
		t.Errorf("a task that there is not: %v", err)
	}
	if Aggregate64.elements() != 64 || Multicast256.elements() != 256 {
		t.Error("elements of the tasks")
	}
}

func TestMainRefuses(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"lane"}, "KIND IFNAME QUEUE TASK CPU"},
		{[]string{"dpdk", "lo", "0", "drop", "0"}, `no contestant is named "dpdk"`},
		{[]string{"rings", "not-there0", "0", "drop", "0"}, "not-there0"},
		{[]string{"rings", "lo", "0", "rest", "0"}, "task"},
		{[]string{"rings", "lo", "x", "drop", "0"}, "queue"},
		{[]string{"rings", "lo", "0", "drop", "x"}, "CPU"},
	} {
		if err := Main(tt.args, strings.NewReader(""), &strings.Builder{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
	}
}

// What testpmd says at its end, as version 22.11 prints it.
func TestTestpmdTotals(t *testing.T) {
	const said = `  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++
  RX-packets: 123456         RX-dropped: 0             RX-total: 123456
  TX-packets: 120000         TX-dropped: 3456          TX-total: 123456
  ++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++`
	m := testpmdTotals.FindStringSubmatch(said)
	if m == nil || m[1] != "123456" || m[2] != "120000" || m[3] != "3456" {
		t.Errorf("%q", m)
	}
	if got := ending(strings.Repeat("x", 1000) + "end"); len(got) != 300 || !strings.HasSuffix(got, "end") {
		t.Errorf("ending of %d bytes", len(got))
	}
	if err := HaveTestpmd(); err != nil && !errors.Is(err, ErrNotInstalled) {
		t.Error(err)
	}
}

// Each Go contestant takes every frame of a slow generator, in its own process, and sends every one back; afterwards the
// netdev is free for the next.
func TestContestantsTakeEveryFrame(t *testing.T) {
	lab := netlabtest.New(t, "gnpeers")
	from, to := netlabtest.Namespace(t, lab, "from"), netlabtest.Namespace(t, lab, "to")
	netlabtest.Veth(t, lab, netlab.End{NS: from, Name: "a0"}, netlab.End{NS: to, Name: "b0"})
	fromIndex, _, err := from.Interface("a0")
	if err != nil {
		t.Fatal(err)
	}
	toIndex, _, err := to.Interface("b0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := flow.New(flow.Options{Kind: flow.SwitchML, To: nicMAC, ToIP: inet.Addr(nicIP), Sizes: []int{308}})
	if err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, 308)
	s.Next(frame, 0)
	for _, kind := range []string{"lane", "rings", "asavie", "packet", "slowed"} {
		p, err := Launch(to, kind, []string{os.Args[0], "contestant", kind}, Target{Interface: "b0", IfIndex: toIndex, CPU: 0, Task: Reflect})
		if err != nil {
			t.Fatal(err)
		}
		var (
			sent     *gen.Result
			returned uint64
		)
		err = from.Do(func() error {
			g, err := gen.Open(gen.Options{IfIndex: fromIndex, Frame: frame, Rate: 2000})
			if err != nil {
				return err
			}
			defer g.Close()
			if sent, err = g.RunPaced(t.Context(), 100*time.Millisecond); err != nil {
				return err
			}
			time.Sleep(100 * time.Millisecond)
			returned, err = g.Returned()
			return err
		})
		got, err2 := p.Stop()
		if err != nil || err2 != nil {
			t.Fatal(kind, err, err2)
		}
		// The library's own reflector may leave its last frames unsent until more come.
		most := uint64(0)
		if kind == "asavie" {
			most = 64
		}
		if got.Received != sent.Frames || got.Returned != sent.Frames || returned+most < sent.Frames || returned > sent.Frames || got.Lost != 0 || got.CPU <= 0 {
			t.Errorf("%s: sent %d, back %d, counted %+v", kind, sent.Frames, returned, got)
		}
	}
}
