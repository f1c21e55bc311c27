package show

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"gradnic/dataplane"
)

// TablePort writes all about one port, then its queues.
func TablePort(w io.Writer, p *Port) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name string, value any) { fmt.Fprintf(t, "%s\t%v\n", name, value) }
	line("port", p.Name)
	line("kind", p.Kind)
	line("state", fmt.Sprintf("%s, rebuilt %d times", state(p), p.Rebuilds))
	line("mode", mode(p))
	line("sockets", cmp.Or(p.Sockets, "-"))
	line("function", p.Function)
	line("received", fmt.Sprintf("%d in %d batches: contributed %d, duplicates %d, answered %d, passed %d, dropped %d", p.Received, p.Batches, p.Contributed, p.Duplicates, p.Answered, p.Passed, p.Dropped()))
	line("results", fmt.Sprintf("%d, resent %d, wrapped elements %d", p.Results, p.Resent, p.Wrapped))
	line("sent", fmt.Sprintf("%d with %d kicks: completed %d, reclaimed %d; replicas %d, not sent %d", p.Transmitted, p.Kicks, p.Completed, p.Reclaimed, p.Replicas, p.ReplicasDropped()))
	line("drops", reasons(p.Drops))
	line("not sent", reasons(p.ReplicaDrops))
	line("kernel", kernelLosses(p))
	line("steering", reasons(p.Steering))
	for _, b := range p.Budgets {
		rate := "no bound"
		if b.Rate > 0 {
			rate = fmt.Sprintf("%d frames/s, burst %d", b.Rate, b.Burst)
		}
		line("budget", fmt.Sprintf("%s: %s: taken %d, dropped %d", b.Name, rate, b.Taken, b.Dropped))
	}
	line("impairment", Impairment(p.Impairment))
	if err := t.Flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return TableQueues(w, QueuesOf([]Port{*p}))
}

// mode is how a port's program runs.
func mode(p *Port) string {
	m := cmp.Or(p.Mode, "-")
	if p.ZeroCopy {
		m += " zero-copy"
	}
	if p.NoNative != "" {
		m += fmt.Sprintf(" (native: %s)", p.NoNative)
	}
	return m
}

// reasons lists counts by name, without those that are 0; "-" is none.
func reasons(counts map[string]uint64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// kernelReasons names what the kernel says that it lost.
func kernelReasons(k dataplane.KernelStatistics) map[string]uint64 {
	return map[string]uint64{
		"rx-dropped": k.RxDropped, "rx-ring-full": k.RxRingFull, "fill-ring-empty": k.FillRingEmpty,
		"rx-invalid-descs": k.RxInvalid, "tx-invalid-descs": k.TxInvalid,
	}
}

// kernelLosses is a line of that.
func kernelLosses(p *Port) string {
	if why := p.Kernel.StatisticsError; why != "" {
		return "unknown: " + why
	}
	return reasons(kernelReasons(p.Kernel))
}
