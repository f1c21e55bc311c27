package acclrun

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"gradnic/internal/acclcheck/rig"
	"gradnic/wire/inet"
	"gradnic/worker/accl"
)

// childEnv makes the test binary one rank, in a namespace of its own.
const childEnv = "GRADNIC_TEST_ACCL"

func TestMain(m *testing.M) {
	if s := os.Getenv(childEnv); s != "" {
		var o Options
		if err := json.Unmarshal([]byte(s), &o); err != nil {
			panic(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r, err := Run(ctx, o)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	os.Exit(m.Run())
}

// runAll runs all ranks, each in a process and a namespace of its own, and returns their reports.
func runAll(t *testing.T, transports []string, o Options) []*Report {
	t.Helper()
	n := rig.New(t, len(transports), func(r int) bool { return transports[r] == OverUDP })
	reports := make([]*Report, len(transports))
	var g sync.WaitGroup
	for r, transport := range transports {
		own := o
		own.Rank.Rank, own.Transport, own.Interface = r, transport, rig.Interface
		for _, p := range n.Peers {
			own.Rank.Ranks = append(own.Rank.Ranks, accl.Peer{IP: p.IP})
		}
		b, err := json.Marshal(own)
		if err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), childEnv+"="+string(b))
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := n.Spaces[r].Start(cmd); err != nil {
			t.Fatal(err)
		}
		g.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			if err := json.Unmarshal(out.Bytes(), &reports[r]); err != nil {
				t.Errorf("rank %d: %v: %s", r, err, &errs)
			}
		})
	}
	g.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return reports
}

func options(c accl.Call) Options {
	return Options{
		Call: c, Counts: []int{17, 3000}, Seed: 1, Iterations: 3, Warmup: 1, Check: true, Sync: true,
		Settle: 600 * time.Millisecond, Join: 20 * time.Second,
	}
}

// TestRun: ranks in processes of their own, over sockets and in NICs, find each other, and every element is right.
func TestRun(t *testing.T) {
	for _, c := range []struct {
		call       accl.Call
		transports []string
	}{
		{accl.Call{Collective: accl.AllReduce, Type: accl.Float32, Half: true}, []string{OverXDP, OverUDP, OverXDP}},
		{accl.Call{Collective: accl.Bcast, Type: accl.Float64, Root: 1}, []string{OverUDP, OverUDP}},
	} {
		t.Run(c.call.Collective.String(), func(t *testing.T) {
			for r, p := range runAll(t, c.transports, options(c.call)) {
				if !p.OK || p.Error != "" || len(p.Rows) != 2 || p.Sent == 0 || p.Received == 0 || len(p.Faults) != 0 || p.Transport != c.transports[r] {
					t.Fatalf("rank %d: %+v", r, p)
				}
				for _, row := range p.Rows {
					if row.Wrong != 0 || row.Iterations != 3 || row.TimeUs <= 0 || row.MinUs > row.MaxUs || row.AlgBW <= 0 {
						t.Errorf("rank %d: %+v", r, row)
					}
				}
			}
		})
	}
}

// TestWrong: elements that are not what they must be are found and are an error.
func TestWrong(t *testing.T) {
	n := rig.New(t, 2, nil)
	o := options(accl.Call{Collective: accl.AllGather, Type: accl.Int32})
	o.Settle, o.Counts = 0, []int{10}
	o.Transport, o.Rank.Ranks = OverUDP, n.Peers
	other := n.UDP(t, accl.Config{Rank: 1, Ranks: n.Peers})
	go func() {
		c := accl.Call{Collective: accl.AllGather, Type: accl.Int32, Count: 10, Src: make([]byte, 40), Dst: make([]byte, 80)}
		time.Sleep(200 * time.Millisecond) // until the other one listens, and for what comes before this one is ready there is a pool
		for range 4 {
			_ = other.Do(t.Context(), c)
		}
	}()
	var r *Report
	var err error
	if e := n.Spaces[0].Do(func() error { r, err = Run(t.Context(), o); return nil }); e != nil {
		t.Fatal(e)
	}
	if err == nil || r.OK || len(r.Rows) != 1 || r.Rows[0].Wrong != 4*10 || !strings.Contains(err.Error(), "40 elements are wrong") {
		t.Errorf("%v, %+v", err, r)
	}
	var b strings.Builder
	if err := r.Table(&b); err != nil || !strings.Contains(b.String(), "allgather, rank 0 of 2 over udp") || !strings.Contains(b.String(), "     40\n") {
		t.Errorf("%v: %s", err, &b)
	}
}

// TestNobody: without the others the rank ends at its timeout, with the reason.
func TestNobody(t *testing.T) {
	n := rig.New(t, 2, nil)
	o := options(accl.Call{Collective: accl.AllReduce, Type: accl.Int32})
	o.Settle, o.Transport, o.Rank = 0, OverUDP, accl.Config{Ranks: n.Peers, Timeout: 200 * time.Millisecond}
	var r *Report
	var err error
	if e := n.Spaces[0].Do(func() error { r, err = Run(t.Context(), o); return nil }); e != nil {
		t.Fatal(e)
	}
	if err == nil || r.OK || len(r.Rows) != 0 || !strings.Contains(r.Error, "message 0 from rank 1: no message in time") || r.Sent == 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestRanks(t *testing.T) {
	dir := t.TempDir()
	write := func(s string) string {
		name := filepath.Join(dir, fmt.Sprint(len(s), ".json"))
		if err := os.WriteFile(name, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	a, b := inet.Addr{10, 0, 0, 1}, inet.Addr{10, 0, 0, 2}
	mac := inet.MAC{2, 0, 0, 0, 0, 1}
	for s, want := range map[string][]accl.Peer{
		"10.0.0.1,10.0.0.2":                             {{IP: a}, {IP: b}},
		"10.0.0.1:7, 10.0.0.2@02:00:00:00:00:01":        {{IP: a, Port: 7}, {IP: b, MAC: mac}},
		"10.0.0.1:7@02:00:00:00:00:01":                  {{IP: a, Port: 7, MAC: mac}},
		write(`{"ips": ["10.0.0.1", "10.0.0.2:5600"]}`): {{IP: a}, {IP: b, Port: 5600}},
	} {
		if got, err := Ranks(s); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "10.0.0", "10.0.0.1:x", "10.0.0.1@2", "::1", "[::1]:5", write(`{"ips": []}`), write(`{`), filepath.Join(dir, "no.json")} {
		if got, err := Ranks(s); err == nil {
			t.Errorf("%q: %v", s, got)
		}
	}
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"0 ranks":            func(o *Options) { o.Rank.Ranks = nil },
		"transport":          func(o *Options) { o.Transport = "tcp" },
		"interface":          func(o *Options) { o.Transport = OverXDP },
		"a group's":          func(o *Options) { o.MAC[0] = 1 },
		"root 2 of 2":        func(o *Options) { o.Call.Root = 2 },
		"recv":               func(o *Options) { o.Call.Collective = accl.Recv },
		"nobody to send to":  func(o *Options) { o.Call.Collective = accl.Send; o.Rank.Ranks = o.Rank.Ranks[:1] },
		"no count":           func(o *Options) { o.Counts = nil },
		"count -1":           func(o *Options) { o.Counts = []int{-1} },
		"0 iterations":       func(o *Options) { o.Iterations = 0 },
		"a time is negative": func(o *Options) { o.Settle = -1 },
		"multiples of 64":    func(o *Options) { o.Rank.Segment = 5 },
	} {
		o := options(accl.Call{Collective: accl.AllReduce})
		o.Transport = OverUDP
		o.Rank.Ranks = []accl.Peer{{IP: inet.Addr{10, 0, 0, 1}}, {IP: inet.Addr{10, 0, 0, 2}}}
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestBusFactor(t *testing.T) {
	for c, want := range map[accl.Collective]float64{
		accl.AllReduce: 1.5, accl.AllGather: 0.75, accl.ReduceScatter: 0.75, accl.Bcast: 1, accl.Reduce: 1, accl.Scatter: 0.75, accl.Gather: 0.75, accl.Send: 1,
	} {
		if got := busFactor(c.String(), 4); got != want {
			t.Errorf("%v: %v, want %v", c, got, want)
		}
	}
}
