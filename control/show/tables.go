package show

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"gradnic/dataplane"
	"gradnic/xdp"
)

// table writes rows in aligned columns, numbers and words both to the left as ss
// and docker do it; an empty cell is "-".
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, heads ...string) *table {
	t := &table{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.StripEscape)}
	t.row(anys(heads)...)
	return t
}

func anys(in []string) []any {
	out := make([]any, len(in))
	for i, s := range in {
		out[i] = s
	}
	return out
}

func (t *table) row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(t.w, "\t")
		}
		s := fmt.Sprint(c)
		if s == "" {
			s = "-"
		}
		fmt.Fprint(t.w, s)
	}
	fmt.Fprintln(t.w)
}

// Ranks writes ranks as a list with ranges, "0-3,7"; nothing is "-".
func Ranks(ranks []int) string {
	if len(ranks) == 0 {
		return "-"
	}
	sorted := slices.Sorted(slices.Values(ranks))
	var parts []string
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		switch {
		case j > i+1:
			parts = append(parts, fmt.Sprintf("%d-%d", sorted[i], sorted[j]))
		case j == i+1:
			parts = append(parts, strconv.Itoa(sorted[i]), strconv.Itoa(sorted[j]))
		default:
			parts = append(parts, strconv.Itoa(sorted[i]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

func ago(t *time.Time, now time.Time) string {
	if t == nil {
		return "never"
	}
	d := now.Sub(*t)
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return d.Round(time.Second).String() + " ago"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m ago"
	}
	return d.Round(time.Minute).String() + " ago"
}

// lasted is how long something lasts since then; nil: it is not so.
func lasted(since *time.Time, now time.Time) string {
	if since == nil {
		return ""
	}
	return rounded(max(0, now.Sub(*since))).String()
}

// TableJobs writes one line a job.
func TableJobs(w io.Writer, jobs []Job) error {
	t := newTable(w, "JOB", "TENANT", "PROTOCOL", "WORKERS", "JOINED", "ELEMENTS", "SLOTS", "IN USE", "WAITING", "RESULTS", "MISSING", "ADDED UP")
	for _, j := range jobs {
		t.row(j.Name, j.Tenant, j.Protocol, j.Workers, j.Joined, j.Elements, j.Slots, j.Use.InUse, j.Use.Waiting, j.Results, Ranks(j.Missing), j.where())
	}
	return t.w.Flush()
}

// where says who adds contributions up.
func (j *Job) where() string {
	if j.InKernel {
		return "in kernel"
	}
	return "in lanes"
}

// TableJob writes all about one job; now is what "ago" counts from.
func TableJob(w io.Writer, j Job, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name string, value any) { fmt.Fprintf(t, "%s\t%v\n", name, value) }
	line("job", j.Name)
	line("tenant", cmp.Or(j.Tenant, "-"))
	line("protocol", j.Protocol)
	line("added up", j.where())
	if j.Multicast != "" {
		line("multicast", j.Multicast)
	}
	if n := j.Native; n != nil {
		line("native", fmt.Sprintf("number %d, %s of %s, order %s, policy %s", n.Number, n.Op, n.Type, n.Order, n.Policy))
		if n.Codec != "none" || n.Result != "none" {
			line("codec", fmt.Sprintf("%s for contributions, %s for results", n.Codec, n.Result))
		}
		line("state", fmt.Sprintf("%s in epoch %#x, ranks %s", n.State, n.Epoch, cmp.Or(Ranks(n.Ranks), "-")))
	}
	line("installed", fmt.Sprintf("%s, by %s, generation %d", ago(j.Installed, now), j.Origin, j.Generation))
	if j.Lease != nil {
		lease := time.Duration(*j.Lease * float64(time.Second))
		line("lease", fmt.Sprintf("%v, ends in %v unless renewed", lease, max(0, j.Expires.Sub(now)).Round(time.Second)))
	}
	line("workers", fmt.Sprintf("%d, of which %d known, %d joined", j.Workers, len(j.Members), j.Joined))
	line("elements", j.Elements)
	line("slots", fmt.Sprintf("%d in two versions: %d in use, %d complete, %d waiting", j.Slots, j.Use.InUse, j.Use.Complete, j.Use.Waiting))
	line("results", fmt.Sprintf("%d, resent %d, wrapped elements %d", j.Results, j.Resent, j.Wrapped))
	line("durations", j.Completions.line())
	line("missing", missing(j))
	if err := t.Flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	wt := newTable(w, "RANK", "MAC", "IP", "PORT", "RX", "CONTRIBUTED", "DUPLICATES", "TX", "RESENT", "LAST TO COME", "LAST SEEN", "MISSING FOR")
	known := map[int]Worker{}
	for _, m := range j.Members {
		known[m.Rank] = m
	}
	for rank := range j.Workers {
		m, ok := known[rank]
		if !ok {
			wt.row(rank, "", "", "", 0, 0, 0, 0, 0, 0, "never: not added", "")
			continue
		}
		wt.row(rank, m.MAC, m.IP, m.Port, m.Received, m.Contributed, m.Duplicates, m.Sent, m.Resent, m.Last, ago(m.LastSeen, now), lasted(m.Missing, now))
	}
	return wt.w.Flush()
}

// missing names the ranks that a job waits for: those that all others wait for to begin, those that could have begun,
// and those that are late.
func missing(j Job) string {
	var waited []int
	for _, r := range j.Missing {
		if !slices.Contains(j.NeverCame, r) {
			waited = append(waited, r)
		}
	}
	var parts []string
	if len(j.NeverReg) > 0 {
		parts = append(parts, "never registered: rank "+Ranks(j.NeverReg))
	}
	if len(j.NeverSent) > 0 {
		parts = append(parts, "registered but never sent: rank "+Ranks(j.NeverSent))
	}
	if len(waited) > 0 {
		parts = append(parts, "unfinished slots wait for: rank "+Ranks(waited))
	}
	if len(parts) == 0 {
		return "nobody"
	}
	return strings.Join(parts, "; ")
}

// TableWorkers writes one line a worker of every job.
func TableWorkers(w io.Writer, workers []Worker, now time.Time) error {
	t := newTable(w, "JOB", "RANK", "MAC", "IP", "PORT", "RX", "CONTRIBUTED", "DUPLICATES", "TX", "RESENT", "LAST TO COME", "LAST SEEN", "MISSING FOR")
	for _, m := range workers {
		t.row(m.Job, m.Rank, m.MAC, m.IP, m.Port, m.Received, m.Contributed, m.Duplicates, m.Sent, m.Resent, m.Last, ago(m.LastSeen, now), lasted(m.Missing, now))
	}
	return t.w.Flush()
}

// TablePools writes one line a pool.
func TablePools(w io.Writer, pools []Pool) error {
	t := newTable(w, "JOB", "SLOTS", "ELEMENTS", "VERSIONS", "IN USE", "COMPLETE", "WAITING", "MISSING")
	for _, p := range pools {
		t.row(p.Job, p.Slots, p.Elements, p.Use.Total, p.Use.InUse, p.Use.Complete, p.Use.Waiting, Ranks(p.Missing))
	}
	return t.w.Flush()
}

// TableGroups writes one line a member.
func TableGroups(w io.Writer, groups []Group) error {
	t := newTable(w, "JOB", "MEMBERS", "RANK", "MAC", "IP", "PORT", "MULTICAST")
	for _, g := range groups {
		size := fmt.Sprintf("%d/%d", len(g.Members), g.Size)
		if len(g.Members) == 0 {
			t.row(g.Job, size, "", "", "", "", g.Multicast)
		}
		for _, m := range g.Members {
			t.row(g.Job, size, m.Rank, m.MAC, m.IP, m.Port, g.Multicast)
		}
	}
	return t.w.Flush()
}

// TablePorts writes one line a port.
func TablePorts(w io.Writer, ports []Port) error {
	t := newTable(w, "PORT", "KIND", "MODE", "STATE", "QUEUES", "FUNCTION", "RX", "TX", "DROPS", "KERNEL DROPS", "TO KERNEL", "SUMMED", "FILL", "SENDING", "SOCKETS", "IMPAIRMENT")
	for i := range ports {
		p := &ports[i]
		t.row(p.Name, p.Kind, mode(p), state(p), p.Queues, p.Function, p.Received, p.Transmitted,
			p.Dropped()+p.ReplicasDropped(), kernelDrops(p.Kernel), toKernel(p), summed(p),
			of(p.Rings.Fill, p.Rings.FillMost), of(p.Rings.Transmit, p.Rings.TransmitMost), p.Sockets, Impairment(p.Impairment))
	}
	return t.w.Flush()
}

// TableQueues writes one line a queue.
func TableQueues(w io.Writer, queues []Queue) error {
	t := newTable(w, "PORT", "QUEUE", "LANE", "RX", "FRAMES/BATCH", "TX", "KERNEL DROPS", "FILL", "SENDING")
	for i := range queues {
		q := &queues[i]
		lost, batch := "", "-"
		if q.Kernel != nil {
			lost = kernelDrops(*q.Kernel)
		}
		if q.Batches > 0 {
			batch = fmt.Sprintf("%.1f", float64(q.Received)/float64(q.Batches))
		}
		t.row(q.Port, q.Queue, q.Lane, q.Received, batch, q.Transmitted, lost, of(q.Fill, q.FillMost), of(q.Transmit, q.TransmitMost))
	}
	return t.w.Flush()
}

// state is a port's state, and why it is what it is.
func state(p *Port) string {
	if p.Why == "" {
		return string(p.State)
	}
	return fmt.Sprintf("%s (%s)", p.State, p.Why)
}

// toKernel is how many frames the steering program has left to the kernel; "" where there is none.
func toKernel(p *Port) string {
	if p.Kind != "xdp" {
		return ""
	}
	var n uint64
	for v := xdp.Verdict(0); v < xdp.NumVerdicts; v++ {
		if v.Passed() {
			n += p.Steering[v.String()]
		}
	}
	return strconv.FormatUint(n, 10)
}

// summed is how many frames the steering program has added to slots itself; "" where there is none.
func summed(p *Port) string {
	if p.Kind != "xdp" {
		return ""
	}
	return strconv.FormatUint(p.Steering[xdp.Summed.String()], 10)
}

func kernelDrops(k dataplane.KernelStatistics) string {
	if k.StatisticsError != "" {
		return "unknown"
	}
	return strconv.FormatUint(k.RxDropped+k.RxRingFull+k.FillRingEmpty+k.RxInvalid+k.TxInvalid, 10)
}

// Impairment writes an impairment as the flags of `gradnic set impair`; nil is "-".
func Impairment(i *dataplane.Impairment) string {
	if i == nil {
		return "-"
	}
	var parts []string
	percent := func(name string, p float64) {
		if p > 0 {
			parts = append(parts, name+" "+strconv.FormatFloat(p*100, 'g', 6, 64)+"%")
		}
	}
	list := func(name string, ks []uint64) {
		if len(ks) == 0 {
			return
		}
		words := make([]string, 0, len(ks))
		for _, k := range ks {
			words = append(words, strconv.FormatUint(k, 10))
		}
		parts = append(parts, name+" "+strings.Join(words, ","))
	}
	percent("ingress-loss", i.IngressLoss)
	percent("egress-loss", i.EgressLoss)
	list("drop-ingress", i.DropIngress)
	list("drop-egress", i.DropEgress)
	percent("duplicate", i.Duplicate)
	percent("reorder", i.Reorder)
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, " ")
}

// TableLanes writes one line a lane.
func TableLanes(w io.Writer, lanes []dataplane.LaneSnapshot) error {
	t := newTable(w, "LANE", "CPU", "BUSY", "SPIN", "SLEEP", "RX", "RX/BATCH", "CONTRIBUTED", "RESULTS", "TX", "DROPS", "BATCHES", "KICKS", "SLEEPS", "FREE", "FILL", "TRANSMIT", "HANDOFF", "HELD", "FRAMES")
	for i := range lanes {
		l := &lanes[i]
		cpu := "-"
		if l.CPU >= 0 {
			cpu = strconv.Itoa(l.CPU)
		}
		t.row(l.Lane, cpu, percent(l.Time.Share(l.Time.Busy)), percent(l.Time.Share(l.Time.Spin)), percent(l.Time.Share(l.Time.Sleep)),
			l.Received, ratio(l.Received, l.Batches), l.Contributed, l.Results, l.Transmitted, l.Dropped()+l.ReplicasDropped(), l.Batches, l.Kicks, l.Sleeps,
			l.Frames.Free, l.Frames.Fill, l.Frames.Transmit, l.Frames.Handoff, l.Frames.Held, l.Frames.Total)
	}
	return t.w.Flush()
}

// TableDrops writes one line a reason; reasons that never happened are left out.
func TableDrops(w io.Writer, d Drops) error {
	t := newTable(w, "WHERE", "REASON", "FRAMES")
	rows := func(where string, m map[string]uint64) {
		for _, reason := range slices.Sorted(maps.Keys(m)) {
			if m[reason] > 0 {
				t.row(where, reason, m[reason])
			}
		}
	}
	rows("received", d.Drops)
	rows("result", d.ReplicaDrops)
	rows("kernel", kernelReasons(d.Kernel))
	rows("steering", d.Steering)
	rows("over budget of", d.Budgets)
	if d.Kernel.StatisticsError != "" {
		t.row("kernel", "unknown: "+d.Kernel.StatisticsError, "?")
	}
	return t.w.Flush()
}

// TableCounters writes one counter a line, as ethtool -S does.
func TableCounters(w io.Writer, c Counters) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	group := func(name string) { fmt.Fprintf(t, "%s\n", name) }
	line := func(name string, v uint64) { fmt.Fprintf(t, "  %s\t%d\n", name, v) }
	n := &c.Counters
	group("received frames")
	line("received", n.Received)
	line("injected", n.Injected)
	line("contributed", n.Contributed)
	line("duplicates", n.Duplicates)
	line("answered", n.Answered)
	line("passed", n.Passed)
	line("in_flight", n.InFlight)
	line("dropped", n.Dropped())
	group("results")
	line("results", n.Results)
	line("resent", n.Resent)
	line("wrapped", n.Wrapped)
	line("replicas", n.Replicas)
	line("replicas_dropped", n.ReplicasDropped())
	group("sent frames")
	line("transmitted", n.Transmitted)
	line("completed", n.Completed)
	group("lanes")
	line("batches", n.Batches)
	line("kicks", n.Kicks)
	line("sleeps", n.Sleeps)
	group("frames by place")
	line("free", c.Frames.Free)
	line("fill", c.Frames.Fill)
	line("transmit", c.Frames.Transmit)
	line("handoff", c.Frames.Handoff)
	line("held", c.Frames.Held)
	line("total", c.Frames.Total)
	group("kernel")
	line("rx_dropped", c.Kernel.RxDropped)
	line("rx_ring_full", c.Kernel.RxRingFull)
	line("fill_ring_empty", c.Kernel.FillRingEmpty)
	line("rx_invalid_descs", c.Kernel.RxInvalid)
	line("tx_invalid_descs", c.Kernel.TxInvalid)
	line("tx_ring_empty", c.Kernel.TxRingEmpty)
	if err := t.Flush(); err != nil {
		return err
	}
	verdict := "the accounts add up"
	if c.Fault != "" {
		verdict = "the accounts do not add up: " + c.Fault
	}
	_, err := fmt.Fprintln(w, verdict)
	return err
}

// TableNIC writes one value a line.
func TableNIC(w io.Writer, n NIC) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, l := range []struct {
		name  string
		value any
	}{{"mac", n.MAC}, {"ip", n.IP}, {"version", n.Version}, {"ports", n.Ports}, {"lanes", n.Lanes}, {"jobs", n.Jobs}} {
		fmt.Fprintf(t, "%s\t%v\n", l.name, l.value)
	}
	return t.Flush()
}
