package bump

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	wire "gradnic/wire/bump"
)

// StatusHandler answers any request with the bump's Status as JSON.
func (b *Bump) StatusHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(b.Status()) // the asking one has gone
	})
}

// ServeStatus answers on l until it is closed.
func (b *Bump) ServeStatus(l net.Listener) error {
	s := http.Server{Handler: b.StatusHandler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	if err := s.Serve(l); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve the status on %v: %w", l.Addr(), err)
	}
	return nil
}

// AskStatus asks the bump that answers at the path of a Unix socket.
func AskStatus(ctx context.Context, path string) (s Status, err error) {
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://bump/status", nil)
	if err != nil {
		return s, fmt.Errorf("ask for the bump's status: %w", err)
	}
	r, err := c.Do(req)
	if err != nil {
		return s, fmt.Errorf("ask for the bump's status at %s: %w", path, err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&s); err != nil {
		return s, fmt.Errorf("the bump's status at %s: %w", path, err)
	}
	return s, nil
}

// Table writes the status for people.
func (s *Status) Table(w io.Writer) error {
	c := &s.Counters
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "towards the wire\tframes\tbytes\n")
	fmt.Fprintf(t, "  from the host\t%d\t%d\n", c.Host.Frames, c.Host.Bytes)
	fmt.Fprintf(t, "  compressed\t%d\t%d\n", c.Compressed.Frames, c.Compressed.Bytes)
	fmt.Fprintf(t, "  carried by\t%d\t%d\tratio %.3f\n", c.Sent.Frames, c.Sent.Bytes, s.Ratio)
	fmt.Fprintf(t, "  passed\t%d\n", c.Host.Passed)
	for i, n := range c.Raw {
		if n > 0 {
			fmt.Fprintf(t, "    of a rule, %v\t%d\n", RawReason(i), n)
		}
	}
	fmt.Fprintf(t, "towards the host\n")
	fmt.Fprintf(t, "  from the wire\t%d\t%d\n", c.Wire.Frames, c.Wire.Bytes)
	fmt.Fprintf(t, "  restored\t%d\t%d\n", c.Restored.Frames, c.Restored.Bytes)
	fmt.Fprintf(t, "  out of\t%d\t%d\t%d missing, %d late\n", c.Received.Frames, c.Received.Bytes, c.Gaps, c.Late)
	fmt.Fprintf(t, "  passed\t%d\n", c.Wire.Passed)
	for i, n := range c.Faults {
		if n > 0 {
			fmt.Fprintf(t, "    refused, %v\t%d\n", wire.Fault(i), n)
		}
	}
	if len(s.Peers) > 0 {
		fmt.Fprintf(t, "local\tremote\tfar end\trestarts\n")
	}
	for _, p := range s.Peers {
		fmt.Fprintf(t, "%v\t%v\t%v\t%d\n", p.Local, p.Remote, p.State, p.Restarts)
	}
	return t.Flush()
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *PeerState) UnmarshalText(b []byte) error {
	i := slices.Index(peerNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("state %q: legal are %s", b, strings.Join(peerNames[:], ", "))
	}
	*s = PeerState(i)
	return nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *RawCounts) UnmarshalJSON(b []byte) error {
	m := map[string]uint64{}
	if err := json.Unmarshal(b, &m); err != nil {
		return fmt.Errorf("raw frames by reason: %w", err)
	}
	for i := range c {
		c[i] = m[RawReason(i).String()]
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *FaultCounts) UnmarshalJSON(b []byte) error {
	m := map[string]uint64{}
	if err := json.Unmarshal(b, &m); err != nil {
		return fmt.Errorf("faults: %w", err)
	}
	for i := range c {
		c[i] = m[wire.Fault(i).String()]
	}
	return nil
}

// Collector is the bump's counters for Prometheus.
func (b *Bump) Collector() prometheus.Collector { return collector{b} }

type collector struct{ b *Bump }

var (
	framesDesc = prometheus.NewDesc("gradnic_bump_frames_total", "Frames by what the bump in the wire did with them.", []string{"what"}, nil)
	bytesDesc  = prometheus.NewDesc("gradnic_bump_bytes_total", "Bytes of frames by what the bump in the wire did with them.", []string{"what"}, nil)
	rawDesc    = prometheus.NewDesc("gradnic_bump_raw_frames_total", "Frames of a rule that went as they were.", []string{"reason"}, nil)
	faultsDesc = prometheus.NewDesc("gradnic_bump_faults_total", "Frames from far ends, or items of them, that were refused.", []string{"reason"}, nil)
	ratioDesc  = prometheus.NewDesc("gradnic_bump_ratio", "Bytes of compressed host frames over the bytes that carried them.", nil, nil)
	peersDesc  = prometheus.NewDesc("gradnic_bump_far_ends", "Far ends by state.", []string{"state"}, nil)
)

// Describe implements prometheus.Collector.
func (collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{framesDesc, bytesDesc, rawDesc, faultsDesc, ratioDesc, peersDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c.b.Status()
	count := func(d *prometheus.Desc, n uint64, label string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), label)
	}
	n := &s.Counters
	for _, v := range []struct {
		what          string
		frames, bytes uint64
	}{
		{"compressed", n.Compressed.Frames, n.Compressed.Bytes}, {"sent", n.Sent.Frames, n.Sent.Bytes},
		{"received", n.Received.Frames, n.Received.Bytes}, {"restored", n.Restored.Frames, n.Restored.Bytes},
	} {
		count(framesDesc, v.frames, v.what)
		count(bytesDesc, v.bytes, v.what)
	}
	for _, v := range []struct {
		what   string
		frames uint64
	}{
		{"passed-to-wire", n.Host.Passed}, {"passed-to-host", n.Wire.Passed}, {"unsent", n.Unsent}, {"missing", n.Gaps}, {"late", n.Late},
	} {
		count(framesDesc, v.frames, v.what)
	}
	for i, v := range n.Raw {
		count(rawDesc, v, RawReason(i).String())
	}
	for i, v := range n.Faults[1:] {
		count(faultsDesc, v, wire.Fault(i+1).String())
	}
	out <- prometheus.MustNewConstMetric(ratioDesc, prometheus.GaugeValue, s.Ratio)
	var states [len(peerNames)]int
	for _, p := range s.Peers {
		states[p.State]++
	}
	for i, v := range states {
		out <- prometheus.MustNewConstMetric(peersDesc, prometheus.GaugeValue, float64(v), peerNames[i])
	}
}
