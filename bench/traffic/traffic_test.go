package traffic

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"gradnic/bench/flow"
	"gradnic/bench/rate"
	"gradnic/bench/sink"
	"gradnic/dataplane"
	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/inet"
	"gradnic/xdp"
)

// The line rate that everybody knows: 64 bytes with FCS at 10 Gbit/s are 14.88 Mpps.
func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		g    Generate
		want []string
	}{
		{Generate{FCS: true, Rate: rate.Rate{Value: 100, Unit: rate.Percent}, Link: 10e9, Flow: flow.Options{Sizes: []int{64}}},
			[]string{"frame 60 B, with FCS 64 B, on the wire 84 B", "line rate 14.88 Mpps", "100% is 14.88 Mpps"}},
		{Generate{Rate: rate.Rate{Value: 10e9, Unit: rate.L1}, Flow: flow.Options{Sizes: []int{60}}}, []string{"10Gbit/s-L1 is 14.88 Mpps over 1 queue\n"}},
		{Generate{IMIX: true}, []string{"frame 590 B", "as fast as it goes, from 1 queue"}},
		{Generate{Rate: rate.Rate{Value: 1000, Unit: rate.PPS}, Queues: 3}, []string{"1kpps is 1000 pps over 3 queues"}},
	} {
		tt.g.Flow.ToIP, tt.g.Flow.To = inet.Addr{10, 0, 0, 1}, inet.MAC{2}
		got, err := tt.g.Plan()
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := got.Write(&text); err != nil {
			t.Error(err)
		}
		for _, w := range tt.want {
			if !strings.Contains(text.String(), w) {
				t.Errorf("no %q in\n%s", w, text.String())
			}
		}
	}
	g := Generate{Rate: rate.Rate{Value: 50, Unit: rate.Percent}, Interface: "lo", Flow: flow.Options{To: inet.MAC{2}, ToIP: inet.Addr{1}}}
	if _, err := g.Plan(); err == nil || !strings.Contains(err.Error(), "not known") {
		t.Errorf("percent of a link without a speed: %v", err)
	}
	// What no run would do is not planned either.
	for fails, g := range map[string]Generate{
		`generator "tcp"`:    {Kind: "tcp"},
		"one size from":      {Kind: "kernel", IMIX: true},
		"not native":         {Kind: "kernel", Flow: flow.Options{Kind: flow.Native}},
		"-1s from 1 queues":  {For: -time.Second, Queues: 1},
		"0s from -1 queues":  {Queues: -1},
		"no destination IP":  {Flow: flow.Options{Sizes: []int{60}}},
		"sizes and IMIX exc": {IMIX: true, Flow: flow.Options{Sizes: []int{60}}},
	} {
		if _, err := g.Plan(); err == nil || !strings.Contains(err.Error(), fails) {
			t.Errorf("%q: %v", fails, err)
		}
	}
}

// A generator at one end and a sink or a NIC at the other: the figures of both fit together.
func TestEndToEnd(t *testing.T) {
	lab := netlabtest.New(t, "gntraffic")
	a, b := netlabtest.Namespace(t, lab, "a"), netlabtest.Namespace(t, lab, "b")
	netlabtest.Veth(t, lab, netlab.End{NS: a, Name: "a0", Addr: "10.50.0.1/24", Queues: 2}, netlab.End{NS: b, Name: "b0", Addr: "10.50.0.253/24", Queues: 2})
	_, mac, err := b.Interface("b0")
	if err != nil {
		t.Fatal(err)
	}
	to := flow.Options{To: inet.MAC(mac), ToIP: inet.Addr{10, 50, 0, 253}, Sizes: []int{124}}
	for _, kind := range []string{"kernel", "xdp", "udp"} {
		ctx, cancel := context.WithCancel(t.Context())
		var sum *sink.Summary
		ready, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- b.Do(func() (err error) {
				address, queues := "", 2
				if kind == "udp" {
					address = "10.50.0.253"
				}
				sum, err = Receive(ctx, "b0", address, 0, sink.Options{Queues: queues, Latency: true}, func() { close(ready) })
				return err
			})
		}()
		select {
		case <-ready:
		case err := <-done:
			t.Fatal(kind, err)
		}
		g := Generate{Kind: kind, Interface: "a0", Flow: to, Rate: rate.Rate{Value: 2e6, Unit: rate.L2}, For: 300 * time.Millisecond}
		var sent *Sent
		err := a.Do(func() (err error) { sent, err = g.Run(t.Context()); return })
		cancel()
		if err2 := <-done; err != nil || err2 != nil {
			t.Fatal(kind, err, err2)
		}
		// On a machine that is busy with other things the run is INVALID, and says so; all of it arrives even then, since the
		// sink's memory holds all of it.
		if want := uint64(586); sent.Invalid == "" && sent.Frames != want {
			t.Errorf("%s: sent %d frames, want %d", kind, sent.Frames, want)
		}
		if sum.Unique != sent.Frames || sum.Damaged+sum.Lost != 0 || sent.Frames == 0 {
			t.Errorf("%s: sent %d frames; arrived %+v", kind, sent.Frames, sum)
		}
		if sent.Invalid == "" && (math.Abs(sent.L2/2e6-1) > 0.01 || math.Abs(sent.L1/sent.L2-148./128) > 1e-9) {
			t.Errorf("%s: L2 %.0f, L1 %.0f bit/s, asked 2e6 L2", kind, sent.L2, sent.L1)
		}
		var text strings.Builder
		if err := sent.Write(&text); err != nil || WriteSummary(&text, sum) != nil || !strings.Contains(text.String(), "Gbit/s L1") || !strings.Contains(text.String(), "0 lost") {
			t.Errorf("%s: %v\n%s", kind, err, text.String())
		}
	}

	// Now a NIC that reflects, and one that sinks in the kernel.
	for _, d := range []Device{{Function: dataplane.Reflect}, {Function: dataplane.Sink, InKernel: true}} {
		device(t, a, b, d, to)
	}
}

// device lets a NIC be the device under test for a moment, on the interface b0, while 1,000 frames come.
func device(t *testing.T, a, b *netlab.NS, d Device, to flow.Options) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var rep *DeviceReport
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- b.Do(func() (err error) {
			d.Interface, d.Pktgen, d.MAC, d.IP, d.Lanes = "b0", true, inet.MAC{6, 0, 0, 0, 0, 0xfe}, inet.Addr{10, 50, 0, 254}, 2
			rep, err = d.Run(ctx, func() { close(ready) })
			return err
		})
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	g := Generate{Kind: "xdp", Interface: "a0", Flow: to, Rate: rate.Rate{Value: 5000, Unit: rate.PPS}, For: 200 * time.Millisecond, Queues: 2}
	var sent *Sent
	err := a.Do(func() (err error) { sent, err = g.Run(t.Context()); return })
	time.Sleep(50 * time.Millisecond)
	cancel()
	if err2 := <-done; err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	received, passed := rep.Counters.Received, rep.Counters.Passed
	if d.InKernel { // no lane has seen any
		received, passed = rep.Port.Steering[xdp.Sunk.String()], rep.Port.Steering[xdp.Sunk.String()]-received
	}
	if received < sent.Frames || passed != received || rep.Pktgen == nil || rep.Pktgen.Other < sent.Frames {
		t.Errorf("%v, in the kernel %t: sent %d; the device says %+v, %+v", d.Function, d.InKernel, sent.Frames, rep.Counters, rep.Pktgen)
	}
}
